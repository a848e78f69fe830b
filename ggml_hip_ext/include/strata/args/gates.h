// Arguments of the two gates of a delta net.
#pragma once

#ifdef __AMDGCN__
#include "strata/device.h"
#else
#include <cstdint>
#endif

namespace strata {

/// For each token and head: decay = softplus(alpha . x + bias) * factor and beta = sigmoid(beta . x). Rows of f32; strides in bytes.
struct gates_args {
    float * decay;                     ///< [token][head]
    float * beta;                      ///< [token][head]
    const void * alpha_rows;           ///< a row a head
    const void * beta_rows;
    const void * bias;                 ///< one a head
    const void * factor;               ///< one a head
    const void * x;                    ///< a row a token
    uint64_t alpha_stride, beta_stride, x_stride;
    uint32_t heads, length;
};

constexpr uint32_t gates_block = 128;  ///< work-items a workgroup

}  // namespace strata
