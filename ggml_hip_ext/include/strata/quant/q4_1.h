// Weight type q4_1: see block32.h for what the members mean.
#pragma once

#include "strata/quant/block32.h"

namespace strata {

struct q4_1 : block32<block_q4_1> {
    static constexpr bool has_min = true;

    struct weights {
        uint4v q;
        uint32_t dm;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t) {
        return {strata::load<uint4v>(row, offset, 4), strata::load<uint32_t>(row, offset)};
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t) {
        sum = __builtin_fmaf(static_cast<float>(dot_nibbles(w.q, a)), half_bits_to_float(w.dm & 0xffff) * a.d, sum);
        return __builtin_fmaf(half_bits_to_float(w.dm >> 16), a.d * static_cast<float>(a.sum), sum);
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t) {
        const bytes32 b = split_nibbles(w.q);
        return {{b.q[0], b.q[1]}, {half_bits_to_float(w.dm & 0xffff)}, {-half_bits_to_float(w.dm >> 16)}};
    }
};

}  // namespace strata
