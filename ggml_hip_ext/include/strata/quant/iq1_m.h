// Weight type iq1_m: see block32.h for what the members mean. A piece is two sub-blocks.
#pragma once

#include "strata/quant/ternary_grid.h"

namespace strata {

struct iq1_m : block64<block_iq1_m, 16>, with_grid<uint32_t, 2048> {
    struct weights {
        uint2v q, scales;
        uint32_t high;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        return {strata::load<uint2v>(row, offset + (p & 3) * 8), strata::load<uint2v>(row, offset, 48),
                strata::load<uint32_t>(row, offset + (p & 3) * 4, 32)};
    }

    STRATA_DEVICE const entry * whole_grid() { return iq1s_grid_gpu; }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t p, const entry * grid = whole_grid()) {
        tile_piece t;
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            const uint32_t high = w.high >> 4 * i;
            put_eight_ternary(t.q, 2 * i, grid[(w.q[i / 4] >> i % 4 * 8 & 255) | (high & 7) << 8], (high & 8) != 0);
        }
        const uint32_t d = (w.scales.x >> 12 & 15) | (w.scales.x >> 24 & 0xf0) | (w.scales.y >> 4 & 0xf00) | (w.scales.y >> 16 & 0xf000);
        const uint32_t scales = (p & 2 ? w.scales.y : w.scales.x) >> (p & 1) * 16;
#pragma unroll
        for (uint32_t s = 0; s < 4; ++s) {
            t.scale[s] = half_bits_to_float(static_cast<uint16_t>(d)) * odd_eighths(scales >> 3 * s);
        }
        return t;
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p, const entry * grid) {
        return dot_unpacked(unpack(w, p, grid), a, sum);
    }
};

}  // namespace strata
