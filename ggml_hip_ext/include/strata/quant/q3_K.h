// Weight type q3_K: see block32.h for what the members mean. A piece is 64 weights: the four fields of sixteen bytes, and four bits of
// sixteen others.
#pragma once

#include "strata/quant/block4x16.h"

namespace strata {

struct q3_K : block4x16<block_q3_K> {
    static constexpr bool has_min = false;

    struct weights {
        uint4v low, high;
        uint32_t scales[3];
        uint16_t d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        const uint32_t at = offset + (p & 1) * 16;
        const auto first = strata::load<uint2v>(row, offset, 96);
        return {strata::load<uint4v>(row, at + (p >> 1 & 1) * 32, 32), strata::load<uint4v>(row, at),
                {first.x, first.y, strata::load<uint32_t>(row, offset, 104)}, strata::load<uint16_t>(row, offset, 108)};
    }

    /// Scale of the piece's sixteen weights of quarter `quarter`.
    STRATA_DEVICE int32_t scale(const weights & w, uint32_t quarter, uint32_t p) {
        const uint32_t half_block = p >> 1 & 1, at = (quarter & 1) * 16 + (p & 1) * 8;
        const uint32_t low = w.scales[quarter >> 1] >> (at + 4 * half_block), high = w.scales[2] >> (at + 4 * half_block + (quarter & 2));
        return static_cast<int32_t>((low & 15) | (high & 3) << 4) - 32;
    }

    /// Four weights 32 (q - 4) of quarter `quarter` as signed bytes. `high` has all top bits inverted, which takes off the 4.
    STRATA_DEVICE uint32_t thirty_two_times(uint32_t low, uint32_t high, uint32_t quarter, uint32_t p) {
        const uint32_t two = quarter < 3 ? low << (5 - 2 * quarter) : low >> 1;
        return (two & 0x60606060u) | (high >> (4 * (p >> 1 & 1) + quarter) & 0x01010101u) << 7;
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p) {
        int32_t product[4] = {0, 0, 0, 0};
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
#pragma unroll
            for (uint32_t quarter = 0; quarter < 4; ++quarter) {
                product[quarter] = dot4_signed(thirty_two_times(w.low[i], ~w.high[i], quarter, p), a.q[quarter][i], product[quarter]);
            }
        }
        float x = 0;
#pragma unroll
        for (uint32_t quarter = 0; quarter < 4; ++quarter) {
            x = __builtin_fmaf(static_cast<float>(mul24(product[quarter], scale(w, quarter, p))), a.d[quarter], x);
        }
        return __builtin_fmaf(half_bits_to_float(w.d) * 0.03125f, x, sum);
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t p) {
        tile_piece t;
#pragma unroll
        for (uint32_t quarter = 0; quarter < 4; ++quarter) {
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                t.q[quarter][i] = thirty_two_times(w.low[i], ~w.high[i], quarter, p);
            }
            t.scale[quarter] = half_bits_to_float(w.d) * (0.03125f * static_cast<float>(scale(w, quarter, p)));
        }
        return t;
    }
};

}  // namespace strata
