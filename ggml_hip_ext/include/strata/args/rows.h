// Arguments of the kernels that gather rows (GET_ROWS), scatter them (SET_ROWS), or copy them in order, converting between types.
#pragma once

#include "strata/args/division.h"

namespace strata {

/// Rows (i1, i2, i3) of a tensor, contiguous each. The index tensor, one number a row, is repeated along i2 and i3; a null index means i1.
/// Gathering, row i1 of dst is row index of src; scattering, row index of dst is row i1 of src. Strides in bytes.
struct rows_args {
    void * dst;
    const void * src;
    const void * index;              ///< i32, or i64 of which the low half is read
    uint32_t row;                    ///< elements a row
    uint32_t count;                  ///< _rows kernels: waves with work; _flat kernels: elements; < 2^31
    fast_divisor parts;              ///< _rows kernels: tiles a row; _flat kernels: elements a row
    fast_divisor ne1, ne2;
    fast_divisor index_ne1, index_ne2;
    uint64_t dst_stride[3], src_stride[3], index_stride[3];
};

constexpr uint32_t rows_tile = 256;   ///< elements of a row a wave
constexpr uint32_t rows_block = 256;  ///< work-items a workgroup

}  // namespace strata
