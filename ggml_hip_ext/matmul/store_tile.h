// How a wave writes its part of a matrix product: 16 x 16 WMMA results, activation columns along D's rows, weight rows along its columns.
#pragma once

#include "strata/memory.h"
#include "strata/wmma.h"

namespace strata {

/// Writes 32 rows x 16 ColumnTiles columns to `dst` (uniform; the corner), whose columns are `pitch` floats apart. Only the first `rows`
/// rows and `columns` columns exist; either may be zero or negative.
template <uint32_t ColumnTiles>
STRATA_DEVICE void store_tile(float * dst, uint32_t pitch, const float8 (&acc)[ColumnTiles][2], int32_t rows, int32_t columns) {
    const int32_t row = static_cast<int32_t>(wmma_lane_index()), half_row = static_cast<int32_t>(lane_id() >> 4);
    const uint32_t at = (half_row * pitch + row) * 4;
    if (rows >= 32 && columns >= static_cast<int32_t>(16 * ColumnTiles)) {
#pragma unroll
        for (uint32_t c = 0; c < ColumnTiles; ++c) {
#pragma unroll
            for (uint32_t i = 0; i < 8; ++i) {
                store(dst, at, acc[c][0][i]);
                store(dst, at, acc[c][1][i], 64);
                dst += 2 * static_cast<uint64_t>(pitch);
            }
        }
        return;
    }
#pragma unroll
    for (uint32_t c = 0; c < ColumnTiles; ++c) {
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            if (static_cast<int32_t>(16 * c + 2 * i) + half_row < columns) {
                if (row < rows) {
                    store(dst, at, acc[c][0][i]);
                }
                if (row + 16 < rows) {
                    store(dst, at, acc[c][1][i], 64);
                }
            }
            dst += 2 * static_cast<uint64_t>(pitch);
        }
    }
}

/// As store_tile, but column c of the tile is column targets[c] (in LDS) of `dst`, of which 2^32 bytes can be reached.
template <uint32_t ColumnTiles>
STRATA_DEVICE void store_scattered_tile(float * dst, uint32_t pitch, const float8 (&acc)[ColumnTiles][2], int32_t rows, int32_t columns,
                                        const uint32_t * targets) {
    const int32_t row = static_cast<int32_t>(wmma_lane_index()), half_row = static_cast<int32_t>(lane_id() >> 4);
#pragma unroll
    for (uint32_t c = 0; c < ColumnTiles; ++c) {
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            const int32_t column = static_cast<int32_t>(16 * c + 2 * i) + half_row;
            if (column < columns) {
                const uint32_t at = (targets[column] * pitch + row) * 4;
                if (row < rows) {
                    store(dst, at, acc[c][0][i]);
                }
                if (row + 16 < rows) {
                    store(dst, at, acc[c][1][i], 64);
                }
            }
        }
    }
}

}  // namespace strata
