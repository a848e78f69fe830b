// Weight type iq2_xxs: see block32.h for what the members mean. A piece is two sub-blocks.
#pragma once

#include "strata/quant/signed_grid.h"

namespace strata {

struct iq2_xxs : block64<block_iq2_xxs, 32>, with_grid<uint64_t, 256> {
    struct weights {
        uint4v q;   ///< indices, signs and scale of each sub-block
        uint16_t d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        return {strata::load<uint4v>(row, offset + (p & 3) * 16, 2), strata::load<uint16_t>(row, offset)};
    }

    STRATA_DEVICE const entry * whole_grid() { return iq2xxs_grid; }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t, const entry * grid = whole_grid()) {
        tile_piece t;
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            const uint32_t index = w.q[i / 4 * 2] >> i % 4 * 8 & 255, signs = w.q[i / 4 * 2 + 1] >> i % 4 * 7 & 127;
            put_eight(t.q, 2 * i, grid[index], complete_signs(signs));
        }
        const float d = half_bits_to_float(w.d) * 0.125f;
        t.scale[0] = d * odd_scale(w.q.y >> 28);
        t.scale[1] = d * odd_scale(w.q.w >> 28);
        return t;
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p, const entry * grid) {
        return dot_unpacked(unpack(w, p, grid), a, sum);
    }
};

}  // namespace strata
