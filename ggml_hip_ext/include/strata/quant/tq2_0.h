// Weight type tq2_0: see block32.h for what the members mean. A piece is 64 weights: two of the four fields of 32 bytes.
#pragma once

#include "strata/quant/block64.h"

namespace strata {

struct tq2_0 : block64<block_tq2_0, 32> {
    struct weights {
        uint4v q[2];
        uint16_t d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        const uint32_t at = offset + (p >> 1 & 1) * 32;
        return {{strata::load<uint4v>(row, at), strata::load<uint4v>(row, at, 16)}, strata::load<uint16_t>(row, offset, 64)};
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t p) {
        tile_piece t;
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            const uint32_t fields = w.q[i / 4][i % 4] >> (p & 1) * 4;
            t.q[i / 4][i % 4] = subtract_from_bytes<1>(fields & 0x03030303u);
            t.q[2 + i / 4][i % 4] = subtract_from_bytes<1>(fields >> 2 & 0x03030303u);
        }
        t.scale[0] = t.scale[1] = half_bits_to_float(w.d);
        return t;
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p) { return dot_unpacked(unpack(w, p), a, sum); }
};

}  // namespace strata
