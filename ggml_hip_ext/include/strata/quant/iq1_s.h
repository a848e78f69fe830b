// Weight type iq1_s: see block32.h for what the members mean. A piece is two sub-blocks.
#pragma once

#include "strata/quant/ternary_grid.h"

namespace strata {

struct iq1_s : block64<block_iq1_s, 32>, with_grid<uint32_t, 2048> {
    struct weights {
        uint2v q;
        uint32_t high;
        uint16_t d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        return {strata::load<uint2v>(row, offset + (p & 3) * 8, 2), strata::load<uint32_t>(row, offset + (p & 3) * 4, 34),
                strata::load<uint16_t>(row, offset)};
    }

    STRATA_DEVICE const entry * whole_grid() { return iq1s_grid_gpu; }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t, const entry * grid = whole_grid()) {
        tile_piece t;
#pragma unroll
        for (uint32_t s = 0; s < 2; ++s) {
            const uint32_t high = w.high >> 16 * s;
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                put_eight_ternary(t.q, 8 * s + 2 * i, grid[(w.q[s] >> 8 * i & 255) | (high >> 3 * i & 7) << 8], (high & 0x8000) != 0);
            }
            t.scale[s] = half_bits_to_float(w.d) * odd_eighths(high >> 12);
        }
        return t;
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p, const entry * grid) {
        return dot_unpacked(unpack(w, p, grid), a, sum);
    }
};

}  // namespace strata
