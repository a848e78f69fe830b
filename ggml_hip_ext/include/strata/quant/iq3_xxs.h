// Weight type iq3_xxs: see block32.h for what the members mean. A piece is two sub-blocks.
#pragma once

#include "strata/quant/signed_grid.h"

namespace strata {

struct iq3_xxs : block64<block_iq3_xxs, 32>, with_grid<uint32_t, 256> {
    struct weights {
        uint4v q;
        uint2v scales_and_signs;
        uint16_t d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        return {strata::load<uint4v>(row, offset + (p & 3) * 16, 2), strata::load<uint2v>(row, offset + (p & 3) * 8, 66),
                strata::load<uint16_t>(row, offset)};
    }

    STRATA_DEVICE const entry * whole_grid() { return iq3xxs_grid; }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t, const entry * grid = whole_grid()) {
        tile_piece t;
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            const uint32_t signs = complete_signs(w.scales_and_signs[i / 4] >> i % 4 * 7 & 127), two = w.q[i / 2] >> i % 2 * 16;
            t.q[i / 2][i % 2 * 2] = apply_signs(grid[two & 255], signs);
            t.q[i / 2][i % 2 * 2 + 1] = apply_signs(grid[two >> 8 & 255], signs >> 4);
        }
        const float d = half_bits_to_float(w.d) * 0.25f;
        t.scale[0] = d * odd_scale(w.scales_and_signs.x >> 28);
        t.scale[1] = d * odd_scale(w.scales_and_signs.y >> 28);
        return t;
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p, const entry * grid) {
        return dot_unpacked(unpack(w, p, grid), a, sum);
    }
};

}  // namespace strata
