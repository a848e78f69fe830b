// Arguments of the row norms.
#pragma once

#include "strata/args/division.h"

namespace strata {

enum class norm_kind : uint32_t {
    rms,   ///< x / sqrt(mean of squares + eps)
    mean,  ///< (x - mean) / sqrt(variance + eps)
    l2,    ///< x / max(sqrt(sum of squares), eps)
};

/// Rows of f32; row (i1, i2, i3) lies at a byte offset of the sum of index * stride.
struct norm_args {
    void * dst;
    const void * src;
    uint32_t row;               ///< elements a row
    uint32_t rows;              ///< rows in all, < 2^31
    fast_divisor ne1, ne2;
    uint64_t dst_stride[3], src_stride[3];
    uint64_t dst_step, src_step;  ///< bytes between elements of a row; norm_any only, elsewhere rows are contiguous
    norm_kind kind;
    float eps;
};

constexpr uint32_t norm_block = 256;     ///< work-items a workgroup
constexpr uint32_t norm_wave_row = 1024; ///< longest row of norm_wave, which keeps it in registers

}  // namespace strata
