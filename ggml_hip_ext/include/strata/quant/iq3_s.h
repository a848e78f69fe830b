// Weight type iq3_s: see block32.h for what the members mean. A piece is two sub-blocks.
#pragma once

#include "strata/quant/signed_grid.h"

namespace strata {

struct iq3_s : block64<block_iq3_s, 32>, with_grid<uint32_t, 512> {
    struct weights {
        uint4v q;
        uint2v signs;
        uint16_t high, d;
        uint8_t scales;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        const uint32_t part = p & 3;
        return {strata::load<uint4v>(row, offset + part * 16, 2), strata::load<uint2v>(row, offset + part * 8, 74),
                strata::load<uint16_t>(row, offset + part * 2, 66), strata::load<uint16_t>(row, offset),
                strata::load<uint8_t>(row, offset + part, 106)};
    }

    STRATA_DEVICE const entry * whole_grid() { return iq3s_grid; }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t, const entry * grid = whole_grid()) {
        tile_piece t;
#pragma unroll
        for (uint32_t i = 0; i < 16; ++i) {
            const uint32_t index = (w.q[i / 4] >> i % 4 * 8 & 255) | (w.high >> i & 1) << 8;
            t.q[i / 4][i % 4] = apply_signs(grid[index], w.signs[i / 8] >> i % 8 * 4);
        }
        const float d = half_bits_to_float(w.d);
        t.scale[0] = d * odd_scale(w.scales);
        t.scale[1] = d * odd_scale(w.scales >> 4);
        return t;
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p, const entry * grid) {
        return dot_unpacked(unpack(w, p, grid), a, sum);
    }
};

}  // namespace strata
