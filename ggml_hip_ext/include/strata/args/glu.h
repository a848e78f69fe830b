// Gated linear units: kinds, and arguments of the kernels that compute one together with the two products it is made of.
#pragma once

#include "strata/args/mul_mat.h"

namespace strata {

enum class glu_kind : uint32_t { reglu, geglu, swiglu, geglu_erf, geglu_quick, swiglu_oai, swiglu_clamp };

/// Biases of the experts, added to a product's result: row e for expert e.
struct expert_bias {
    const void * rows;                 ///< f32; null: none
    uint64_t stride;                   ///< bytes between rows
};

/// The expert that all tokens share, next to the chosen ones of a single token: two more matrices of the same type and length of rows.
struct shared_expert {
    const void * weights, * up;        ///< null: none
    float * dst;                       ///< [row]
    void * values;                     ///< dst as quantize_q8_1 makes it, where that of the other experts is made
    void * meta;
    uint32_t rows;
    uint32_t layer;                    ///< of the grid in z: behind those of the chosen experts
};

/// dst = glu(weights * x, up * x) for one column of activations a matrix, or for two to eight of one.
struct mul_mat_glu_args {
    mul_mat_q_args product;            ///< of the matrix that is activated; dst is that of the whole
    const void * up;                   ///< the other matrix, of the same type, shape and strides
    expert_bias bias, up_bias;
    glu_kind kind;
    float alpha, limit;
    // dst as quantize_q8_1 makes it, for the kernels with q8_1 in their names; a row's values are `rows` of the product.
    void * values;                     ///< int8 [matrix][row]
    void * meta;                       ///< q8_1_meta [matrix][row / 32]
    shared_expert shared;
};

}  // namespace strata
