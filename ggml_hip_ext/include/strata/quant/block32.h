// What the weight types with blocks of 32 have in common. A weight type is a struct with
//   block            its layout
//   pieces           pieces a block has; a piece is what one lane takes at a time in a mat-vec, and one work-item in a tile
//   group            neighbouring weights that share a scale (32 or 16)
//   has_min          weights are scale * q - min (else scale * q)
//   weights          registers that hold a piece as it lies in memory
//   load(row, o, p)  reads piece p of the block at byte o of the row; `row` is uniform, o block_offset(p) plus a multiple of whole blocks
//   activation, load_activation, dot(w, a, sum, p)    the mat-vec's side: dot adds the product of a piece to a sum
//   unpack(w, p)     the tile's side: the piece as signed bytes, scales and mins. Bytes go to tile_offset(p, i) in a row of the tile.
//   tile_swizzle(r)  what the numbers of 16-byte words in row r of the tile are exclusive-or'ed with: the eight values in another order for
//                    each eight rows, such that the words that eight neighbouring work-items write at a time lie in different banks
#pragma once

#include "strata/quant/activation.h"

namespace strata {

/// A piece as a tile of bytes needs it: `Words` groups of 16 bytes at a distance of Stride, and the scale and min of each 32- or 16-group.
template <uint32_t Words, uint32_t Scales>
struct unpacked {
    uint4v q[Words];
    float scale[Scales];
    float min[Scales];   ///< unset unless the type has mins
};

constexpr uint32_t low_nibbles = 0x0f0f0f0f, high_nibbles = 0xf0f0f0f0;

/// Bytes b - Bias for bytes 0 <= b < 128, four at a time.
template <uint32_t Bias>
STRATA_DEVICE uint32_t subtract_from_bytes(uint32_t bytes) {
    return ((bytes | 0x80808080u) - Bias * 0x01010101u) ^ 0x80808080u;
}

/// Bits 0-3 of `bits`, one to each byte.
STRATA_DEVICE uint32_t spread_bits(uint32_t bits) { return (bits & 15) * 0x00204081u & 0x01010101u; }

template <class Block>
struct block32 {
    using block = Block;
    using activation = activation32;
    static constexpr uint32_t pieces = 1;
    static constexpr uint32_t group = 32;

    /// Byte offsets of the block of piece `p` in a row, of the activations of the piece and of their meta.
    STRATA_DEVICE uint32_t block_offset(uint32_t p) { return p * sizeof(Block); }
    STRATA_DEVICE uint32_t value_offset(uint32_t p) { return p * 32; }
    STRATA_DEVICE uint32_t meta_offset(uint32_t p) { return p * sizeof(q8_1_meta); }
    STRATA_DEVICE activation load_activation(const void * values, uint32_t value_offset, const void * meta, uint32_t meta_offset) {
        return load_activation32(values, value_offset, meta, meta_offset);
    }

    using tile_piece = unpacked<2, 1>;
    /// Byte offset, within a tile row that starts at a multiple of 256 weights, of word i of piece p, and index of its scale i.
    STRATA_DEVICE uint32_t tile_offset(uint32_t p, uint32_t i) { return p * 32 + i * 16; }
    STRATA_DEVICE uint32_t tile_swizzle(uint32_t row) { return row & 7; }
    STRATA_DEVICE uint32_t scale_index(uint32_t p, uint32_t) { return p; }
};

/// sum over a block of unsigned 4-bit weights times activations.
STRATA_DEVICE int32_t dot_nibbles(uint4v q, const activation32 & a) {
    int32_t low = 0, high = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        low = dot4_unsigned(q[i] & low_nibbles, a.q[0][i], low);
        high = dot4_unsigned(q[i] & high_nibbles, a.q[1][i], high);   // sixteen times too much, exactly
    }
    return low + (high >> 4);
}

/// Unsigned 5-bit weights as bytes: elements 0-15, then 16-31.
struct bytes32 {
    uint4v q[2];
};

STRATA_DEVICE bytes32 join_fifth_bits(uint4v q, uint32_t high) {
    bytes32 b;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        b.q[0][i] = (q[i] & low_nibbles) | spread_bits(high >> 4 * i) << 4;
        b.q[1][i] = (q[i] >> 4 & low_nibbles) | spread_bits(high >> (16 + 4 * i)) << 4;
    }
    return b;
}

STRATA_DEVICE int32_t dot_bytes(const bytes32 & w, const activation32 & a) {
    int32_t sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
        sum = dot4_unsigned(w.q[i / 4][i % 4], a.q[i / 4][i % 4], sum);
    }
    return sum;
}

STRATA_DEVICE bytes32 split_nibbles(uint4v q) { return {{q & low_nibbles, q >> 4 & low_nibbles}}; }

template <uint32_t Bias>
STRATA_DEVICE bytes32 subtract(const bytes32 & b) {
    bytes32 r;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
        r.q[i / 4][i % 4] = subtract_from_bytes<Bias>(b.q[i / 4][i % 4]);
    }
    return r;
}

}  // namespace strata
