// Weight type q5_K: see block32.h for what the members mean. A piece is 64 weights: the nibbles of 32 bytes and two bits of each of 32
// others.
#pragma once

#include "strata/quant/k_scales.h"

namespace strata {

struct q5_K : block_k64<block_q5_K> {
    struct weights {
        uint4v head;
        uint4v high[2];
        uint4v q[2];
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        const uint32_t at = offset + (p & 3) * 32;
        return {strata::load<uint4v>(row, offset),
                {strata::load<uint4v>(row, offset, 16), strata::load<uint4v>(row, offset, 32)},
                {strata::load<uint4v>(row, at, 48), strata::load<uint4v>(row, at, 64)}};
    }

    /// The fifth bits of both sub-blocks moved to bits 4 and 5 of each byte (other bits are left over).
    STRATA_DEVICE uint32_t align_high(uint32_t high, uint32_t p) { return __builtin_rotateright32(high, 2 * (p & 3) - 4); }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p) {
        int32_t product[2] = {0, 0};
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            const uint32_t q = w.q[i / 4][i % 4], high = align_high(w.high[i / 4][i % 4], p);
            product[0] = dot4_unsigned((q & low_nibbles) | (high & 0x10101010u), a.q[i / 4][i % 4], product[0]);
            product[1] = dot4_unsigned((q >> 3 & 0x1e1e1e1eu) | (high & 0x20202020u), a.q[2 + i / 4][i % 4], product[1]);
        }
        product[1] >>= 1;   // exact: all weights of the second sub-block were doubled
        return join_sub_blocks(w.head.x, unpack_scales(w.head, p), product, a, sum);
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t p) {
        const scale_pair s = unpack_scales(w.head, p);
        const float d = half_bits_to_float(w.head.x & 0xffff), m = half_bits_to_float(w.head.x >> 16);
        tile_piece t = {{},
                        {d * static_cast<float>(s.scale[0]), d * static_cast<float>(s.scale[1])},
                        {m * static_cast<float>(s.min[0]), m * static_cast<float>(s.min[1])}};
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            const uint32_t q = w.q[i / 4][i % 4], high = align_high(w.high[i / 4][i % 4], p);
            t.q[i / 4][i % 4] = (q & low_nibbles) | (high & 0x10101010u);
            t.q[2 + i / 4][i % 4] = (q >> 4 & low_nibbles) | (high >> 1 & 0x10101010u);
        }
        return t;
    }
};

}  // namespace strata
