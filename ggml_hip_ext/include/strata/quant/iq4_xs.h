// Weight type iq4_xs: see block32.h for what the members mean. A piece is two sub-blocks.
#pragma once

#include "strata/codebooks.h"
#include "strata/quant/block64.h"

namespace strata {

struct iq4_xs : block64<block_iq4_xs, 32> {
    struct weights {
        uint4v q[2];
        uint2v head;   ///< d, scales_h, scales_l
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        const uint32_t at = offset + (p & 3) * 32;
        return {{strata::load<uint4v>(row, at, 8), strata::load<uint4v>(row, at, 24)}, strata::load<uint2v>(row, offset)};
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t p) {
        const float d = half_bits_to_float(w.head.x & 0xffff);
        const uint32_t low = w.head.y >> (p & 3) * 8, high = w.head.x >> (16 + (p & 3) * 4);
        const int32_t first = (low & 15) | (high & 3) << 4, second = (low >> 4 & 15) | (high >> 2 & 3) << 4;
        return {{look_up_low(iq4_values, w.q[0]), look_up_high(iq4_values, w.q[0]), look_up_low(iq4_values, w.q[1]),
                 look_up_high(iq4_values, w.q[1])},
                {d * static_cast<float>(first - 32), d * static_cast<float>(second - 32)},
                {}};
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p) { return dot_unpacked(unpack(w, p), a, sum); }
};

}  // namespace strata
