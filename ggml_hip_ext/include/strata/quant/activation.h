// Quantized activations as the kernels read them: the values of a column lie one after the other, and so do the q8_1_meta of its 32-blocks.
#pragma once

#include "strata/blocks.h"
#include "strata/dot.h"
#include "strata/memory.h"

namespace strata {

/// One 32-block.
struct activation32 {
    uint4v q[2];
    float d;
    int32_t sum;
};

STRATA_DEVICE activation32 load_activation32(const void * values, uint32_t value_offset, const void * meta, uint32_t meta_offset) {
    const auto m = load<q8_1_meta>(meta, meta_offset);
    return {{load<uint4v>(values, value_offset), load<uint4v>(values, value_offset, 16)}, m.d, m.sum};
}

/// Two neighbouring 32-blocks, with d * sum of each.
struct activation64 {
    uint4v q[4];
    float d[2], s[2];
};

STRATA_DEVICE activation64 load_activation64(const void * values, uint32_t value_offset, const void * meta, uint32_t meta_offset) {
    const auto m = load<uint4v>(meta, meta_offset);
    const float d0 = bit_cast<float>(m.x), d1 = bit_cast<float>(m.z);
    return {{load<uint4v>(values, value_offset), load<uint4v>(values, value_offset, 16), load<uint4v>(values, value_offset, 32),
             load<uint4v>(values, value_offset, 48)},
            {d0, d1},
            {d0 * static_cast<float>(static_cast<int32_t>(m.y)), d1 * static_cast<float>(static_cast<int32_t>(m.w))}};
}

/// Sixteen values, the same half of each, of four neighbouring 32-blocks.
struct activation4x16 {
    uint4v q[4];
    float d[4];
};

STRATA_DEVICE activation4x16 load_activation4x16(const void * values, uint32_t value_offset, const void * meta, uint32_t meta_offset) {
    activation4x16 a;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        a.q[i] = load<uint4v>(values, value_offset, 32 * i);
    }
    const auto m0 = load<uint4v>(meta, meta_offset), m1 = load<uint4v>(meta, meta_offset, 16);
    a.d[0] = bit_cast<float>(m0.x);
    a.d[1] = bit_cast<float>(m0.z);
    a.d[2] = bit_cast<float>(m1.x);
    a.d[3] = bit_cast<float>(m1.z);
    return a;
}

}  // namespace strata
