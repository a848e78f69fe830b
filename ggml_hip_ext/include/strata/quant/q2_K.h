// Weight type q2_K: see block32.h for what the members mean. A piece is 64 weights: the four fields of sixteen bytes.
#pragma once

#include "strata/quant/block4x16.h"

namespace strata {

struct q2_K : block4x16<block_q2_K> {
    static constexpr bool has_min = true;

    struct weights {
        uint4v q;
        uint2v scales;   ///< all eight of the half block
        uint32_t dm;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        const uint32_t half_block = p >> 1 & 1;
        return {strata::load<uint4v>(row, offset + half_block * 32 + (p & 1) * 16, 16),
                strata::load<uint2v>(row, offset + half_block * 8),
                strata::load<uint32_t>(row, offset, 80)};
    }

    /// Scale (low nibble) and min (high nibble) of the piece's sixteen weights of quarter `quarter`.
    STRATA_DEVICE uint32_t scale_and_min(const weights & w, uint32_t quarter, uint32_t p) {
        return w.scales[quarter >> 1] >> ((quarter & 1) * 16 + (p & 1) * 8);
    }

    /// The activations with the sum of each sixteen.
    struct activation : activation4x16 {
        float s[4];
    };

    STRATA_DEVICE activation load_activation(const void * values, uint32_t value_offset, const void * meta, uint32_t meta_offset) {
        activation a = {load_activation4x16(values, value_offset, meta, meta_offset), {}};
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            a.s[i] = a.d[i] * static_cast<float>(sum_bytes(a.q[i]));
        }
        return a;
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p) {
        int32_t product[4] = {0, 0, 0, 0};
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
#pragma unroll
            for (uint32_t quarter = 0; quarter < 4; ++quarter) {   // the fields in place: 4^quarter times too much, exactly
                product[quarter] = dot4_unsigned(w.q[i] & 0x03030303u << 2 * quarter, a.q[quarter][i], product[quarter]);
            }
        }
        float x = 0, m = 0;
#pragma unroll
        for (uint32_t quarter = 0; quarter < 4; ++quarter) {
            const uint32_t both = scale_and_min(w, quarter, p);
            const int32_t scaled = mul24(product[quarter] >> 2 * quarter, static_cast<int32_t>(both & 15));
            x = __builtin_fmaf(static_cast<float>(scaled), a.d[quarter], x);
            m = __builtin_fmaf(static_cast<float>(both >> 4 & 15), a.s[quarter], m);
        }
        sum = __builtin_fmaf(half_bits_to_float(w.dm & 0xffff), x, sum);
        return __builtin_fmaf(-half_bits_to_float(w.dm >> 16), m, sum);
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t p) {
        const float d = half_bits_to_float(w.dm & 0xffff), m = half_bits_to_float(w.dm >> 16);
        tile_piece t;
#pragma unroll
        for (uint32_t quarter = 0; quarter < 4; ++quarter) {
            const uint32_t both = scale_and_min(w, quarter, p);
            t.q[quarter] = w.q >> 2 * quarter & 0x03030303u;
            t.scale[quarter] = d * static_cast<float>(both & 15);
            t.min[quarter] = m * static_cast<float>(both >> 4 & 15);
        }
        return t;
    }
};

}  // namespace strata
