// Arguments of the kernels of backward passes and training. Strides are in bytes.
#pragma once

#include "strata/args/division.h"

namespace strata {

/// dst[m, n] = sum over k of a[m, k] * b[n, k], f32; `a` contiguous along m, dst contiguous. Matrices (i2, i3) of `a` serve several of b.
struct out_prod_args {
    float * dst;
    const float * a;
    const float * b;
    uint32_t m, n, k;
    fast_divisor ne2, ratio2, ratio3;
    uint64_t a_step;                  ///< along k
    uint64_t b_step[2];               ///< along n and k
    uint64_t a_stride[2], b_stride[2];///< between matrices
};

constexpr uint32_t out_prod_block = 256;   ///< work-items a workgroup, an m each
constexpr uint32_t out_prod_columns = 8;   ///< n's a work-item

/// Each element of dst, contiguous, is the sum of src at its repetitions.
struct repeat_back_args {
    float * dst;
    const void * src;
    uint32_t count;
    fast_divisor size[3];
    uint32_t repeats[4];
    uint64_t step[4];                 ///< of src
    uint64_t repeat_step[4];          ///< of src between repetitions
};

/// Rows of two f32 operands and of dst, contiguous each. RMS norm: gradient and input; softmax: gradient and result.
struct row_back_args {
    void * dst;
    const void * gradient;
    const void * forward;
    uint32_t row, rows;
    fast_divisor ne1, ne2;
    uint64_t dst_stride[3], gradient_stride[3], forward_stride[3];
    float param;                      ///< RMS norm: eps; softmax: scale
};

/// Row r of dst, contiguous f32, is the sum of the rows of src whose index is r.
struct get_rows_back_args {
    float * dst;
    const void * src;
    const int32_t * index;
    uint32_t count;                   ///< elements of dst, < 2^31
    uint32_t rows;                    ///< of src
    fast_divisor row;                 ///< elements a row
    uint64_t src_stride;
};

/// Rows of logits and of the probabilities they should give, f32, all contiguous. Loss: dst has a row's part of the mean loss each;
/// backward: its gradient.
struct cross_entropy_args {
    float * dst;
    const float * logits;
    const float * labels;
    const float * gradient;           ///< of the loss; backward only
    uint32_t row, rows;
};

/// A step of an optimizer, f32, all contiguous. AdamW: alpha, beta1, beta2, eps, decay, beta1h, beta2h; SGD: alpha, decay.
struct opt_step_args {
    float * weights;
    const float * gradient;
    float * mean;                     ///< running means of the gradient and of its square; AdamW only
    float * square;
    const float * params;
    uint32_t count;
};

constexpr uint32_t backward_block = 256;   ///< work-items a workgroup

}  // namespace strata
