// Arguments of the kernel that ends a mixture of experts for one token.
#pragma once

#include "strata/args/mul_mat.h"

namespace strata {

constexpr uint32_t expert_output_rows = 4;    ///< of each matrix, a workgroup
constexpr uint32_t expert_output_used = 30;   ///< most chosen experts

/// dst = shared * sigmoid(gate . x) + weights[0] * expert[0] + weights[1] * expert[1] + ..., where `shared` and expert[slot] are products of
/// quantized weights of one type. Strides in bytes.
struct expert_output_args {
    mul_mat_q_args experts;            ///< of the chosen ones, one token; dst is the result
    const void * weights;              ///< f32, one a slot
    uint64_t weight_stride;
    // The shared expert's product.
    const void * shared;
    const void * shared_values;        ///< int8 [shared_k]
    const void * shared_meta;          ///< q8_1_meta [shared_k / 32]
    uint32_t shared_stride;            ///< between rows
    uint32_t shared_k;
    const void * gate;                 ///< f32, `length` of them
    const void * x;                    ///< the same
    uint32_t length;
};

}  // namespace strata
