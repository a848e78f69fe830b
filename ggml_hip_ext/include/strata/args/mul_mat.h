// Arguments of the matrix product kernels: dst[column][row] = sum over k of weights[row][k] * activations[column][k], a matrix at a time.
#pragma once

#include "strata/args/division.h"

namespace strata {

/// Which weight matrix belongs to which activation matrix (strides in bytes).
struct weight_batches {
    uint64_t stride2, stride3;         ///< between weight matrices
    fast_divisor channels;             ///< activation matrices in dimension 2; matrix z is (z % channels, z / channels)
    fast_divisor ratio2, ratio3;       ///< activation matrices that share a weight matrix, in dimensions 2 and 3
};

/// MUL_MAT_ID: an expert's weights for each pair (token, slot). Pair p is (p / used, p % used).
struct expert_choice {
    const void * ids;                  ///< i32, the expert of each pair; null: a product without experts
    uint64_t stride_slot, stride_token;   ///< of ids, bytes
    fast_divisor used;                 ///< slots a token
    fast_divisor sources;              ///< columns of activations a token; slot s reads column s % sources
    fast_divisor layers;               ///< of the mat-vecs' grid that lie side by side in x: see find_workgroup()
};

/// Up to as many pairs as a tile has columns, all of one expert: pairs first .. first + count - 1 of the list sorted by expert.
struct expert_tile {
    uint32_t expert, first, count;     ///< count 0: nothing to do
    uint32_t unused;
};

/// An entry of the list of pairs sorted by expert.
struct expert_column {
    uint32_t source;                   ///< column of activations: its index, or its offset in bytes, as route_args has it
    uint32_t pair;                     ///< column of the result
};

/// Tells a tile kernel which columns it works on. Null `tiles`: all columns of a matrix in order.
struct expert_tiles {
    const expert_tile * tiles;         ///< one a workgroup in y
    const expert_column * columns;
};

/// route_experts: sorts the pairs by expert and cuts each expert's list into tiles. Grid: experts.
struct route_args {
    expert_choice experts;
    expert_tile * tiles;               ///< pairs / tile_columns + experts of them; those of an expert follow each other, then empty ones
    expert_column * columns;           ///< a pair each
    uint32_t pairs;                    ///< < 2^31
    fast_divisor tile_columns;
    uint32_t token_step, slot_step;    ///< expert_column::source is token * token_step + slot % sources * slot_step
};

/// quantize_q8_1: rows of floats become bytes and a q8_1_meta for each 32. Grid: rows, chunks of 512 values, matrices.
struct quantize_args {
    const void * src;                  ///< f32, `values` a row, at any 4-byte aligned address
    void * values;                     ///< int8 [matrix][row][values]
    void * meta;                       ///< q8_1_meta [matrix][row][values / 32]
    uint64_t stride1, stride2, stride3;   ///< of src, bytes
    uint32_t length;                   ///< values a row, a multiple of 32
    uint32_t rows;                     ///< rows a matrix
    fast_divisor channels;             ///< matrices in dimension 2
};

/// Quantized weights times quantize_q8_1's output.
struct mul_mat_q_args {
    const void * weights;
    const void * values;               ///< int8 [matrix][column][k]
    const void * meta;                 ///< q8_1_meta [matrix][column][k / 32]
    float * dst;                       ///< [matrix][column][row]
    weight_batches batches;
    uint32_t stride1;                  ///< bytes between weight rows
    uint32_t rows;                     ///< of a weight matrix
    uint32_t columns;                  ///< of an activation matrix
    uint32_t k;                        ///< a multiple of the type's block
    expert_choice experts;             ///< of the mat-vec kernels for one column
    expert_tiles routed;               ///< of the tile kernels
};

/// f32, f16 or bf16 weights times f32 or f16 activations.
struct mul_mat_f_args {
    const void * weights;
    const void * activations;
    float * dst;                       ///< [matrix][column][row]
    uint64_t activation_stride2, activation_stride3;   ///< bytes between activation matrices
    weight_batches batches;
    uint32_t stride1, column_stride;   ///< bytes between weight rows and between columns of activations
    uint32_t rows, columns, k;
    expert_choice experts;             ///< of the mat-vec kernels for one column
    expert_tiles routed;               ///< of the tile kernels
};

#ifdef __AMDGCN__
/// Byte offset of the weight matrix that goes with activation matrix z.
STRATA_DEVICE uint64_t weight_matrix_offset(const weight_batches & b, uint32_t z) {
    const uint32_t i3 = quotient(z, b.channels), i2 = remainder(z, i3, b.channels);
    return quotient(i2, b.ratio2) * b.stride2 + quotient(i3, b.ratio3) * b.stride3;
}

/// Byte offset of activation matrix z.
STRATA_DEVICE uint64_t activation_matrix_offset(const mul_mat_f_args & a, uint32_t z) {
    const uint32_t i3 = quotient(z, a.batches.channels), i2 = remainder(z, i3, a.batches.channels);
    return i2 * a.activation_stride2 + i3 * a.activation_stride3;
}

/// Which rows and which pair a workgroup of a mat-vec has. Those of several tokens that have the same rows stand next to each other in x, so that
/// pairs of one expert read them at about the same time; else (`layers` is 1) a pair is a layer of the grid in z.
struct workgroup_place {
    uint32_t group;                    ///< of rows
    uint32_t layer;                    ///< pair; or matrix of a product without experts
};

STRATA_DEVICE workgroup_place find_workgroup(const expert_choice & e) {
    if (!e.ids) {
        return {block_x(), block_z()};
    }
    const uint32_t group = quotient(block_x(), e.layers);
    return {group, remainder(block_x(), group, e.layers) + block_z()};
}

/// A pair of token and slot, and which of the token's columns of activations it reads.
struct expert_pair {
    uint32_t token, slot, source;
};

STRATA_DEVICE expert_pair find_pair(const expert_choice & e, uint32_t pair) {
    const uint32_t token = quotient(pair, e.used), slot = remainder(pair, token, e.used);
    return {token, slot, remainder(slot, quotient(slot, e.sources), e.sources)};
}

/// The pair's expert.
STRATA_DEVICE uint32_t expert_of(const expert_choice & e, const expert_pair & p) {
    return *reinterpret_cast<const uint32_t *>(static_cast<const char *>(e.ids) + (p.token * e.stride_token + p.slot * e.stride_slot));
}

/// The tile of this workgroup, in scalar registers.
STRATA_DEVICE expert_tile find_tile(const expert_tiles & r, uint32_t index) {
    const expert_tile t = r.tiles[index];
    return {uniform(t.expert), uniform(t.first), uniform(t.count), 0};
}
#endif

}  // namespace strata
