// What the weight types have in common whose pieces are sixteen weights of each quarter of half a block, with a scale for each: see
// block32.h for what the members mean.
#pragma once

#include "strata/quant/block32.h"

namespace strata {

template <class Block>
struct block4x16 {
    using block = Block;
    using activation = activation4x16;
    static constexpr uint32_t pieces = 4;
    static constexpr uint32_t group = 16;

    STRATA_DEVICE uint32_t block_offset(uint32_t p) { return (p >> 2) * sizeof(Block); }
    STRATA_DEVICE uint32_t value_offset(uint32_t p) { return (p >> 1) * 128 + (p & 1) * 16; }
    STRATA_DEVICE uint32_t meta_offset(uint32_t p) { return (p >> 1) * 4 * sizeof(q8_1_meta); }
    STRATA_DEVICE activation load_activation(const void * values, uint32_t value_offset, const void * meta, uint32_t meta_offset) {
        return load_activation4x16(values, value_offset, meta, meta_offset);
    }

    using tile_piece = unpacked<4, 4>;
    STRATA_DEVICE uint32_t tile_offset(uint32_t p, uint32_t i) { return (p >> 1) * 128 + (p & 1) * 16 + i * 32; }
    STRATA_DEVICE uint32_t tile_swizzle(uint32_t row) { return (row << 1 | (row >> 2 & 1)) & 7; }
    STRATA_DEVICE uint32_t scale_index(uint32_t p, uint32_t i) { return (p >> 1) * 8 + (p & 1) + i * 2; }
};

}  // namespace strata
