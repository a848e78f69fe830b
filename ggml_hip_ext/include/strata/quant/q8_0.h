// Weight type q8_0: see block32.h for what the members mean.
#pragma once

#include "strata/quant/block32.h"

namespace strata {

struct q8_0 : block32<block_q8_0> {
    static constexpr bool has_min = false;

    struct weights {
        uint4v q[2];
        uint16_t d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t) {
        return {{strata::load<uint4v>(row, offset, 2), strata::load<uint4v>(row, offset, 18)}, strata::load<uint16_t>(row, offset)};
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t) {
        int32_t product = 0;
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            product = dot4_signed(w.q[i / 4][i % 4], a.q[i / 4][i % 4], product);
        }
        return __builtin_fmaf(static_cast<float>(product), half_bits_to_float(w.d) * a.d, sum);
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t) { return {{w.q[0], w.q[1]}, {half_bits_to_float(w.d)}, {}}; }
};

}  // namespace strata
