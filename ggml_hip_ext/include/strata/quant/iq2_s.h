// Weight type iq2_s: see block32.h for what the members mean. A piece is two sub-blocks.
#pragma once

#include "strata/quant/signed_grid.h"

namespace strata {

struct iq2_s : block64<block_iq2_s, 16>, with_grid<uint64_t, 1024> {
    struct weights {
        uint2v q, signs;
        uint16_t high, scales, d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        const uint32_t eight = offset + (p & 3) * 8, two = offset + (p & 3) * 2;
        return {strata::load<uint2v>(row, eight, 2), strata::load<uint2v>(row, eight, 34), strata::load<uint16_t>(row, two, 66),
                strata::load<uint16_t>(row, two, 74), strata::load<uint16_t>(row, offset)};
    }

    STRATA_DEVICE const entry * whole_grid() { return iq2s_grid; }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t, const entry * grid = whole_grid()) {
        tile_piece t;
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            const uint32_t index = (w.q[i / 4] >> i % 4 * 8 & 255) | (w.high >> 2 * i & 3) << 8;
            put_eight(t.q, 2 * i, grid[index], w.signs[i / 4] >> i % 4 * 8);
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
