// Arguments of the mat-vec that quantizes its activations itself.
#pragma once

#include "strata/args/glu.h"
#include "strata/args/mul_mat_group.h"

namespace strata {

/// Several matrices of one type times the same columns. A workgroup has mul_mat_quantize_waves waves, and mul_mat_quantize_lds(k, columns) bytes of
/// dynamic LDS.
struct mul_mat_quantize_args {
    const void * activations;          ///< f32 [column][k], at any 4-byte aligned address
    uint64_t column_stride;            ///< of activations, bytes
    mul_mat_group_args group;          ///< values and meta are not used; a member's dst is [column][row]
};

/// f32 activations of pairs of token and slot, at any 4-byte aligned address: a column a source of a token.
struct pair_activations {
    const void * data;
    uint64_t token_stride, source_stride;   ///< bytes
};

/// The product of each pair with the weights of its expert, or without experts of one column, which is the only pair. Workgroups as above.
struct mul_mat_pairs_quantize_args {
    mul_mat_q_args product;            ///< values and meta are not used
    pair_activations x;
};

/// The gated unit of such pairs, and of the shared expert with the first one's column.
struct mul_mat_glu_quantize_args {
    mul_mat_glu_args glu;              ///< values and meta of the product are not used; its own are null if the result is not to be quantized
    pair_activations x;
};

/// Where value `at` of a column lies in LDS, in bytes: sixteen bytes are left out after each 128, so that the pieces of neighbouring lanes lie in
/// different banks.
constexpr uint32_t mul_mat_quantize_place(uint32_t at) { return at + at / 128 * 16; }

/// Bytes that the values of a column of k take there.
constexpr uint32_t mul_mat_quantize_pitch(uint32_t k) { return mul_mat_quantize_place((k + 127) / 128 * 128); }

/// Bytes of LDS for all columns: their values, then the q8_1_meta of their 32-blocks.
constexpr uint32_t mul_mat_quantize_lds(uint32_t k, uint32_t columns) { return columns * (mul_mat_quantize_pitch(k) + k / 32 * 8); }

constexpr uint32_t mul_mat_quantize_waves = 16;   ///< of a workgroup

}  // namespace strata
