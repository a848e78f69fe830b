// Weight type iq2_xs: see block32.h for what the members mean. A piece is two sub-blocks.
#pragma once

#include "strata/quant/signed_grid.h"

namespace strata {

struct iq2_xs : block64<block_iq2_xs, 16>, with_grid<uint64_t, 512> {
    struct weights {
        uint4v q;   ///< index and signs of eight weights in each half
        uint16_t scales, d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        return {strata::load<uint4v>(row, offset + (p & 3) * 16, 2), strata::load<uint16_t>(row, offset + (p & 3) * 2, 66),
                strata::load<uint16_t>(row, offset)};
    }

    STRATA_DEVICE const entry * whole_grid() { return iq2xs_grid; }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t, const entry * grid = whole_grid()) {
        tile_piece t;
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            const uint32_t half_word = w.q[i / 2] >> i % 2 * 16;
            put_eight(t.q, 2 * i, grid[half_word & 511], complete_signs(half_word >> 9 & 127));
        }
        const float d = half_bits_to_float(w.d) * 0.125f;
#pragma unroll
        for (uint32_t s = 0; s < 4; ++s) {
            t.scale[s] = d * odd_scale(w.scales >> 4 * s);
        }
        return t;
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p, const entry * grid) {
        return dot_unpacked(unpack(w, p, grid), a, sum);
    }
};

}  // namespace strata
