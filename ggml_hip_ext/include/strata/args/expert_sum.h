// Arguments of the sum over the experts of each token, and of what the expert that all tokens share adds to it.
#pragma once

#include "strata/args/division.h"

namespace strata {

/// dst[token] = weights[token][0] * experts[token][0] + weights[token][1] * experts[token][1] + ...: rows of f32; strides in bytes.
struct expert_sum_args {
    float * dst;                        ///< contiguous
    const void * experts;
    const void * weights;
    uint64_t expert_stride_slot, expert_stride_token;
    uint64_t weight_stride_slot, weight_stride_token;
    uint32_t columns, used;
};

/// dst[token] = shared[token] * sigmoid(gate . x[token]) + routed[token] (+ residual[token]): rows of f32; strides in bytes. With `experts`, routed
/// is their weighted sum.
struct shared_gate_args {
    float * dst;                        ///< contiguous
    const void * gate;                  ///< a row of `length`
    const void * x;
    const void * shared;
    const void * routed;
    const void * residual;              ///< null: none
    uint64_t x_stride, shared_stride, routed_stride, residual_stride;
    uint32_t columns, length;
    expert_sum_args experts;            ///< without experts: null in `experts`; dst and columns are not used
};

constexpr uint32_t expert_sum_block = 256;       ///< work-items a workgroup
constexpr uint32_t shared_gate_block = 256;
constexpr uint32_t shared_gate_columns = 8192;   ///< most columns

}  // namespace strata
