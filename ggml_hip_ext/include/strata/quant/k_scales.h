// What q4_K and q5_K have in common: pieces of 64 weights, whose 6-bit scales and mins come out of the block's first sixteen bytes.
#pragma once

#include "strata/quant/block64.h"

namespace strata {

/// Scales and mins of the two sub-blocks of a piece.
struct scale_pair {
    int32_t scale[2], min[2];
};

/// `head` is d, dmin and the twelve scale bytes; p & 3 says which quarter of the block the piece is.
/// All shifts and masks depend on p alone, so they are computed once a wave.
STRATA_DEVICE scale_pair unpack_scales(uint4v head, uint32_t p) {
    const bool second_half = (p & 2) != 0;
    const uint32_t shift = (p & 1) * 16;
    const uint32_t shift_top = shift + (second_half ? 2 : 0);
    const uint32_t mask_low = second_half ? 0x0f0f : 0, mask_top = second_half ? 0x3030 : 0x3f3f;
    const uint32_t scales = (head.w >> shift & mask_low) | (head.y >> shift_top & mask_top);
    const uint32_t mins = (head.w >> (shift + 4) & mask_low) | (head.z >> shift_top & mask_top);
    return {{static_cast<int32_t>(scales & 63), static_cast<int32_t>(scales >> 8 & 63)},
            {static_cast<int32_t>(mins & 63), static_cast<int32_t>(mins >> 8 & 63)}};
}

template <class Block>
struct block_k64 : block64<Block, 32> {
    using activation = activation64;
    using tile_piece = unpacked<4, 2>;
    static constexpr bool has_min = true;
};

/// Puts the integer dot products of the two sub-blocks together with all scales.
STRATA_DEVICE float join_sub_blocks(uint32_t dm, const scale_pair & s, const int32_t (&product)[2], const activation64 & a, float sum) {
    float x = static_cast<float>(mul24(product[0], s.scale[0])) * a.d[0];
    x = __builtin_fmaf(static_cast<float>(mul24(product[1], s.scale[1])), a.d[1], x);
    float m = static_cast<float>(s.min[0]) * a.s[0];
    m = __builtin_fmaf(static_cast<float>(s.min[1]), a.s[1], m);
    sum = __builtin_fmaf(half_bits_to_float(dm & 0xffff), x, sum);
    return __builtin_fmaf(-half_bits_to_float(dm >> 16), m, sum);
}

}  // namespace strata
