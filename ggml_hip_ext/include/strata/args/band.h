// Arguments of the kernels that keep a diagonal band of matrices.
#pragma once

#include "strata/args/division.h"

namespace strata {

/// dst[i1][i0] = low <= i0 - i1 <= high ? src[i1][i0] : value. Rows are contiguous; the strides of rows, matrices and batches are in bytes.
struct band_args {
    void * dst;
    const void * src;         ///< not read if low > high
    uint64_t dst_stride[3], src_stride[3];
    uint32_t row;             ///< elements a row, < 2^30
    uint32_t count;           ///< work-items with four neighbouring elements each, < 2^31
    fast_divisor parts;       ///< work-items a row
    fast_divisor ne1, ne2;
    int32_t low, high;
    uint32_t value;           ///< bits of an element
};

constexpr uint32_t band_block = 256;  ///< work-items a workgroup

}  // namespace strata
