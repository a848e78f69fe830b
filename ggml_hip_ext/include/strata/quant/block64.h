// What the weight types have in common whose pieces are 64 neighbouring weights, decoded to signed bytes for mat-vec and tile alike: see
// block32.h for what the members mean.
#pragma once

#include "strata/quant/block32.h"

namespace strata {

/// Group: neighbouring weights that share a scale, 32 or 16.
template <class Block, uint32_t Group>
struct block64 {
    using block = Block;
    using activation = activation64;
    static constexpr uint32_t pieces = Block::elements / 64;
    static constexpr uint32_t group = Group;
    static constexpr bool has_min = false;

    STRATA_DEVICE uint32_t block_offset(uint32_t p) { return p / pieces * sizeof(Block); }
    STRATA_DEVICE uint32_t value_offset(uint32_t p) { return p * 64; }
    STRATA_DEVICE uint32_t meta_offset(uint32_t p) { return p * 2 * sizeof(q8_1_meta); }
    STRATA_DEVICE activation load_activation(const void * values, uint32_t value_offset, const void * meta, uint32_t meta_offset) {
        return load_activation64(values, value_offset, meta, meta_offset);
    }

    using tile_piece = unpacked<4, 64 / Group>;
    STRATA_DEVICE uint32_t tile_offset(uint32_t p, uint32_t i) { return p * 64 + i * 16; }
    STRATA_DEVICE uint32_t tile_swizzle(uint32_t row) { return row & 7; }
    STRATA_DEVICE uint32_t scale_index(uint32_t p, uint32_t i) { return p * (64 / Group) + i; }
};

/// sum + the product of an unpacked piece with its activations.
template <uint32_t Scales>
STRATA_DEVICE float dot_unpacked(const unpacked<4, Scales> & w, const activation64 & a, float sum) {
#pragma unroll
    for (uint32_t s = 0; s < Scales; ++s) {
        int32_t product = 0;
#pragma unroll
        for (uint32_t i = s * 16 / Scales; i < (s + 1) * 16 / Scales; ++i) {
            product = dot4_signed(w.q[i / 4][i % 4], a.q[i / 4][i % 4], product);
        }
        sum = __builtin_fmaf(static_cast<float>(product), w.scale[s] * a.d[s * 2 / Scales], sum);
    }
    return sum;
}

STRATA_DEVICE float dot_unpacked(const unpacked<2, 1> & w, const activation32 & a, float sum) {
    int32_t product = 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
        product = dot4_signed(w.q[i / 4][i % 4], a.q[i / 4][i % 4], product);
    }
    return __builtin_fmaf(static_cast<float>(product), w.scale[0] * a.d, sum);
}

}  // namespace strata
