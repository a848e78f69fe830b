// Arguments of the kernels that gather rows (GET_ROWS), scatter them (SET_ROWS), or copy them in order, converting between types.
#pragma once

#include "strata/args/division.h"

namespace strata {

enum class rows_source : uint32_t { f32, f16, bf16 };

/// Rows (i1, i2, i3) of a tensor, contiguous each. The index tensor, one number a row, is repeated along i2 and i3; a null index means i1.
/// Gathering, row i1 of dst is row index of src; scattering, row index of dst is row i1 of src. Strides in bytes.
struct rows_args {
    void * dst;
    const void * src;
    const void * index;              ///< i32, or i64 of which the low half is read
    uint32_t row;                    ///< elements a row
    uint32_t count;                  ///< _rows kernels: waves with work; _flat kernels: elements; _blocks kernels: blocks; < 2^31
    fast_divisor parts;              ///< _rows kernels: tiles a row; _flat kernels: elements a row; _blocks kernels: blocks a row
    fast_divisor ne1, ne2;
    fast_divisor index_ne1, index_ne2;
    uint64_t dst_stride[3], src_stride[3], index_stride[3];
    rows_source source;              ///< _blocks kernels: type of src
};

/// Rows of a multiple of 32 that are gathered, and quantized as well.
struct gather_q8_1_args {
    rows_args rows;                  ///< of a _rows kernel
    void * values;                   ///< dst as quantize_q8_1 makes it: int8 [row][element]
    void * meta;                     ///< q8_1_meta [row][element / 32]
};

constexpr uint32_t rows_tile = 256;   ///< elements of a row a wave
constexpr uint32_t rows_block = 256;  ///< work-items a workgroup
constexpr uint32_t dequantize_block = 64;  ///< of the kernels that dequantize: a processor has new rows to ask for whenever two waves have ended

/// Lanes that make a quantized block.
struct quantizer_lanes {
    static constexpr uint32_t q4_0 = 1, q4_1 = 1, q5_0 = 1, q5_1 = 1, q8_0 = 8, q1_0 = 1, q2_0 = 2;
    static constexpr uint32_t q2_K = 16, q3_K = 16, q4_K = 8, q5_K = 8, q6_K = 16;
    static constexpr uint32_t tq1_0 = 8, tq2_0 = 8, iq4_nl = 1, iq4_xs = 8, mxfp4 = 1, nvfp4 = 4;
};

}  // namespace strata
