// Which rows and columns a workgroup's tile of a product with f32, f16 or bf16 weights has.
#pragma once

#include "strata/args/mul_mat.h"

namespace strata {

/// Rows and columns are seen from the tile's corner. Loads beyond the edge repeat the last row or column: they stay in bounds, and their
/// results are not stored.
template <uint32_t Loads>
struct float_tile {
    const char * weights;                  ///< of the first row
    const char * activations;
    float * dst;                           ///< the corner, or with experts the first row of column 0 of the result
    uint32_t activation_at[Loads];         ///< bytes, of the columns that this work-item loads
    uint32_t last_row, last_column;
    bool routed;                           ///< with experts: column c of the tile is column targets[c] of the result
};

/// Finds the tile of `Rows` rows and `Columns` columns; this work-item loads columns line, line + lines, ... False if there is nothing to do.
/// `targets` is set after the next barrier.
template <uint32_t Rows, uint32_t Columns, uint32_t Loads>
STRATA_DEVICE bool find_float_tile(const mul_mat_f_args & a, uint32_t line, float_tile<Loads> & t, uint32_t * targets) {
    constexpr uint32_t lines = Columns / Loads;
    const uint32_t first_row = block_x() * Rows;
    t.last_row = a.rows - 1 - first_row;
    t.weights = static_cast<const char *>(a.weights) + static_cast<uint64_t>(first_row) * a.stride1;
    t.activations = static_cast<const char *>(a.activations);
    t.dst = a.dst + first_row;
    t.routed = a.routed.tiles != nullptr;
    if (t.routed) {
        const expert_tile tile = find_tile(a.routed, block_y());
        if (tile.count == 0) {
            return false;
        }
        t.last_column = tile.count - 1;
        t.weights += tile.expert * a.batches.stride2;
        const expert_column * columns = a.routed.columns + tile.first;
#pragma unroll
        for (uint32_t i = 0; i < Loads; ++i) {
            t.activation_at[i] = columns[smaller(i * lines + line, t.last_column)].source;
        }
        if (thread_x() < Columns) {
            targets[thread_x()] = columns[smaller(thread_x(), t.last_column)].pair;
        }
    } else {
        const uint32_t first_column = block_y() * Columns, z = block_z();
        t.last_column = a.columns - 1 - first_column;
        t.weights += weight_matrix_offset(a.batches, z);
        t.activations += activation_matrix_offset(a, z) + static_cast<uint64_t>(first_column) * a.column_stride;
        t.dst += (static_cast<uint64_t>(z) * a.columns + first_column) * a.rows;
#pragma unroll
        for (uint32_t i = 0; i < Loads; ++i) {
            t.activation_at[i] = smaller(i * lines + line, t.last_column) * a.column_stride;
        }
    }
    return true;
}

}  // namespace strata
