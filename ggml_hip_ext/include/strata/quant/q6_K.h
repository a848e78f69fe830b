// Weight type q6_K: see block32.h for what the members mean. A piece is 64 weights: sixteen of each quarter of half a block.
#pragma once

#include "strata/quant/block4x16.h"

namespace strata {

struct q6_K : block4x16<block_q6_K> {
    static constexpr bool has_min = false;

    struct weights {
        uint4v low[2];     ///< quarters 0 and 2, 1 and 3
        uint4v high;
        uint2v scales;     ///< all eight of the half block
        uint16_t d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        const uint32_t half_block = p >> 1 & 1, at = (p & 1) * 16;
        const uint32_t low = offset + half_block * 64 + at, high = offset + half_block * 32 + at;
        return {{strata::load<uint4v>(row, low), strata::load<uint4v>(row, low, 32)},
                strata::load<uint4v>(row, high, 128),
                strata::load<uint2v>(row, offset + half_block * 8, 192),
                strata::load<uint16_t>(row, offset, 208)};
    }

    /// Scale of the piece's sixteen weights of quarter `quarter`.
    STRATA_DEVICE int32_t scale(const weights & w, uint32_t quarter, uint32_t p) {
        const uint32_t two = w.scales[quarter >> 1] >> (p & 1) * 8;
        return static_cast<int8_t>(two >> (quarter & 1) * 16);
    }

    /// Four weights 4 (q - 32) of each quarter as signed bytes. `high` has the top bit of each two-bit field inverted, which takes off
    /// the 32.
    STRATA_DEVICE uint4v four_times(uint32_t low0, uint32_t low1, uint32_t high) {
        constexpr uint32_t low_mask = 0x3c3c3c3c, high_mask = 0xc0c0c0c0;
        return {(low0 << 2 & low_mask) | (high << 6 & high_mask), (low1 << 2 & low_mask) | (high << 4 & high_mask),
                (low0 >> 2 & low_mask) | (high << 2 & high_mask), (low1 >> 2 & low_mask) | (high & high_mask)};
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p) {
        int32_t product[4] = {0, 0, 0, 0};
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const uint4v q = four_times(w.low[0][i], w.low[1][i], w.high[i] ^ 0xaaaaaaaau);
#pragma unroll
            for (uint32_t quarter = 0; quarter < 4; ++quarter) {
                product[quarter] = dot4_signed(q[quarter], a.q[quarter][i], product[quarter]);
            }
        }
        float x = static_cast<float>(mul24(product[0], scale(w, 0, p))) * a.d[0];
#pragma unroll
        for (uint32_t quarter = 1; quarter < 4; ++quarter) {
            x = __builtin_fmaf(static_cast<float>(mul24(product[quarter], scale(w, quarter, p))), a.d[quarter], x);
        }
        return __builtin_fmaf(half_bits_to_float(w.d) * 0.25f, x, sum);
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t p) {
        constexpr uint32_t high_mask = 0x30303030;
        tile_piece t;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t high = w.high[i];
            t.q[0][i] = subtract_from_bytes<32>((w.low[0][i] & low_nibbles) | (high << 4 & high_mask));
            t.q[1][i] = subtract_from_bytes<32>((w.low[1][i] & low_nibbles) | (high << 2 & high_mask));
            t.q[2][i] = subtract_from_bytes<32>((w.low[0][i] >> 4 & low_nibbles) | (high & high_mask));
            t.q[3][i] = subtract_from_bytes<32>((w.low[1][i] >> 4 & low_nibbles) | (high >> 2 & high_mask));
            t.scale[i] = half_bits_to_float(w.d) * static_cast<float>(scale(w, i, p));
        }
        return t;
    }
};

}  // namespace strata
