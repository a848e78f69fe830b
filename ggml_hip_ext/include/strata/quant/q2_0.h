// Weight type q2_0: see block32.h for what the members mean. A piece is a block.
#pragma once

#include "strata/quant/block64.h"

namespace strata {

struct q2_0 : block64<block_q2_0, 32> {
    struct weights {
        uint4v q;
        uint16_t d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t) {
        return {strata::load<uint4v>(row, offset, 2), strata::load<uint16_t>(row, offset)};
    }

    /// The four two-bit fields of a byte, one to each byte.
    STRATA_DEVICE uint32_t spread_pairs(uint32_t byte) {
        const uint32_t nibbles = (byte | byte << 12) & 0x000f000fu;
        return (nibbles | nibbles << 6) & 0x03030303u;
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t) {
        tile_piece t;
#pragma unroll
        for (uint32_t i = 0; i < 16; ++i) {
            t.q[i / 4][i % 4] = subtract_from_bytes<1>(spread_pairs(w.q[i / 4] >> i % 4 * 8 & 255));
        }
        t.scale[0] = t.scale[1] = half_bits_to_float(w.d);
        return t;
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p) { return dot_unpacked(unpack(w, p), a, sum); }
};

}  // namespace strata
