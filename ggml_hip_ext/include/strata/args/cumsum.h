// Arguments of the running sum.
#pragma once

#include "strata/args/division.h"

namespace strata {

/// Rows of f32, contiguous each; row (i1, i2, i3) lies at a byte offset of the sum of index * stride. Long rows are cut into tiles, whose sums
/// another launch computes before.
struct cumsum_args {
    void * dst;               ///< cumsum_totals: f32 [rows][tiles]
    const void * src;
    const float * totals;     ///< sums of the tiles, or null if a row is one tile
    uint64_t dst_stride[3], src_stride[3];
    uint32_t row;             ///< elements a row, < 2^30
    uint32_t rows;
    fast_divisor tiles;       ///< of a row
    fast_divisor ne1, ne2;
};

constexpr uint32_t cumsum_block = 256;   ///< work-items a workgroup
constexpr uint32_t cumsum_wave_row = 512;  ///< longest row of cumsum_wave
constexpr uint32_t cumsum_tile_row = 4096;  ///< elements a tile

}  // namespace strata
