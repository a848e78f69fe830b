// Arguments of the sums: over each row (SUM_ROWS, MEAN), over everything (SUM), and of comparisons (COUNT_EQUAL).
#pragma once

#include "strata/args/division.h"

namespace strata {

/// dst has one element a row; rows (i1, i2, i3) of src have any strides, in bytes.
struct sum_rows_args {
    void * dst;
    const void * src;
    uint32_t row;                             ///< elements a row
    uint32_t rows;
    uint32_t step;                            ///< bytes between the elements of a row
    uint32_t mean;                            ///< 1: the sum is divided by `row`
    fast_divisor ne1, ne2;
    uint64_t dst_stride[3], src_stride[3];
};

constexpr uint32_t sum_block = 256;           ///< work-items a workgroup
constexpr uint32_t sum_wave_row = 1024;       ///< longest row that a wave sums; longer ones take a workgroup

/// Workgroup b sums the elements b * chunk ... of src, in the order of the loops, and writes dst[b].
struct sum_all_args {
    void * dst;
    const void * a;
    const void * b;                           ///< COUNT_EQUAL: what `a` is compared with
    uint32_t count;                           ///< elements, < 2^31
    uint32_t chunk;                           ///< elements a workgroup
    uint32_t dim_count;                       ///< loops in use
    struct dim {
        fast_divisor size;
        uint32_t step_a, step_b;              ///< bytes
    } dims[4];                                ///< innermost first
};

constexpr uint32_t sum_chunk = 8192;          ///< elements that are worth a workgroup
constexpr uint32_t sum_most_blocks = 256;     ///< workgroups of the first pass

}  // namespace strata
