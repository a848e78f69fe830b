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
#endif

}  // namespace strata
