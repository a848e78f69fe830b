// Weight type nvfp4: see block32.h for what the members mean. A piece is a block.
#pragma once

#include "strata/codebooks.h"
#include "strata/quant/block64.h"

namespace strata {

struct nvfp4 : block64<block_nvfp4, 16> {
    struct weights {
        uint4v q[2];
        uint32_t d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t) {
        return {{strata::load<uint4v>(row, offset, 4), strata::load<uint4v>(row, offset, 20)}, strata::load<uint32_t>(row, offset)};
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t) {
        tile_piece t;
#pragma unroll
        for (uint32_t s = 0; s < 4; ++s) {
            const uint32_t first = w.q[s / 2][s % 2 * 2], second = w.q[s / 2][s % 2 * 2 + 1];
            t.q[s] = look_up_low(e2m1_values, uint4v{first, second, first >> 4, second >> 4});
            t.scale[s] = e4m3_half(w.d >> 8 * s & 255);
        }
        return t;
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p) { return dot_unpacked(unpack(w, p), a, sum); }
};

}  // namespace strata
