// Arguments of the kernels that compute an RMS norm together with the pointwise ops around it.
#pragma once

#include "strata/args/norm.h"

namespace strata {

/// Rows of f32, contiguous each: row (i1, i2, i3) lies at a byte offset of the sum of index * stride. A stride of 0 repeats.
struct row_operand {
    void * data;
    uint64_t stride[3];
};

/// dst = norm(x) * weight and so on: see the kernels. Results may lie where `src` or `other` do, element by element.
struct norm_chain_args {
    row_operand dst;
    row_operand src;
    row_operand weight;
    row_operand other;          ///< what is added to the row before or after, or the gate of its product
    row_operand sum;            ///< second result, of the addition
    row_operand weight2;        ///< of the second norm
    uint32_t row;               ///< elements a row
    uint32_t rows;              ///< rows in all, < 2^31
    fast_divisor ne1, ne2;
    float eps, eps2;            ///< of the first and the second norm
    float scale, bias;          ///< instead of a weight
    // dst as quantize_q8_1 makes it of contiguous rows, or null; for kernels with 4 in their names and rows of a multiple of 32.
    void * values;              ///< int8 [row][element]
    void * meta;                ///< q8_1_meta [row][element / 32]
};

}  // namespace strata
