// Weight type q4_0: see block32.h for what the members mean.
#pragma once

#include "strata/quant/block32.h"

namespace strata {

struct q4_0 : block32<block_q4_0> {
    static constexpr bool has_min = false;

    struct weights {
        uint4v q;
        uint16_t d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t) {
        return {strata::load<uint4v>(row, offset, 2), strata::load<uint16_t>(row, offset)};
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t) {
        const int32_t product = dot_nibbles(w.q, a) - 8 * a.sum;
        return __builtin_fmaf(static_cast<float>(product), half_bits_to_float(w.d) * a.d, sum);
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t) {
        const bytes32 b = subtract<8>(split_nibbles(w.q));
        return {{b.q[0], b.q[1]}, {half_bits_to_float(w.d)}, {}};
    }
};

}  // namespace strata
