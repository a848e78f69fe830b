// Weight type q1_0: see block32.h for what the members mean. A piece is half a block.
#pragma once

#include "strata/quant/block64.h"

namespace strata {

struct q1_0 : block64<block_q1_0, 32> {
    struct weights {
        uint2v q;
        uint16_t d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        return {strata::load<uint2v>(row, offset + (p & 1) * 8, 2), strata::load<uint16_t>(row, offset)};
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t) {
        tile_piece t;
#pragma unroll
        for (uint32_t i = 0; i < 16; ++i) {
            t.q[i / 4][i % 4] = subtract_from_bytes<1>(spread_bits(w.q[i / 8] >> i % 8 * 4) << 1);
        }
        t.scale[0] = t.scale[1] = half_bits_to_float(w.d);
        return t;
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p) { return dot_unpacked(unpack(w, p), a, sum); }
};

}  // namespace strata
