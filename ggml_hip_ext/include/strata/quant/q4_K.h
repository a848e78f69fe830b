// Weight type q4_K: see block32.h for what the members mean. A piece is 64 weights: the nibbles of 32 bytes.
#pragma once

#include "strata/quant/k_scales.h"

namespace strata {

struct q4_K : block_k64<block_q4_K> {
    struct weights {
        uint4v head;
        uint4v q[2];
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        const uint32_t at = offset + (p & 3) * 32;
        return {strata::load<uint4v>(row, offset), {strata::load<uint4v>(row, at, 16), strata::load<uint4v>(row, at, 32)}};
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p) {
        int32_t product[2] = {0, 0};
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            product[0] = dot4_unsigned(w.q[i / 4][i % 4] & low_nibbles, a.q[i / 4][i % 4], product[0]);
            product[1] = dot4_unsigned(w.q[i / 4][i % 4] & high_nibbles, a.q[2 + i / 4][i % 4], product[1]);
        }
        product[1] >>= 4;   // exact: the high nibbles were taken in place
        return join_sub_blocks(w.head.x, unpack_scales(w.head, p), product, a, sum);
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t p) {
        const scale_pair s = unpack_scales(w.head, p);
        const float d = half_bits_to_float(w.head.x & 0xffff), m = half_bits_to_float(w.head.x >> 16);
        return {{w.q[0] & low_nibbles, w.q[1] & low_nibbles, w.q[0] >> 4 & low_nibbles, w.q[1] >> 4 & low_nibbles},
                {d * static_cast<float>(s.scale[0]), d * static_cast<float>(s.scale[1])},
                {m * static_cast<float>(s.min[0]), m * static_cast<float>(s.min[1])}};
    }
};

}  // namespace strata
