// Arguments of the kernels that order rows of f32: ARGSORT, TOP_K, ARGMAX.
//
// A number and its column are one 64-bit key that orders as the numbers do, equal ones by column. Rows are cut into chunks of up to 2048
// columns; sort_chunks sorts each into a run, then merge_runs joins neighbouring runs, twice as long at each pass. Where only the first
// `keep` columns are wanted, no run ever holds more. Every key has one place, so results never depend on timing.
#pragma once

#include "strata/args/division.h"

namespace strata {

constexpr uint32_t sort_threads = 256;
constexpr uint32_t sort_chunk = 2048;        ///< most columns that one workgroup sorts
constexpr uint32_t sort_small_chunk = 256;   ///< of the kernel for short rows, which may do several of them

/// Where a row of the source is: row r is (r % ne1, r / ne1 % ne2, r / ne1 / ne2). Strides in bytes.
struct sort_source {
    const void * data;                       ///< f32
    uint64_t stride[3];
    fast_divisor ne1, ne2;
    uint32_t columns;
    uint32_t descending;                     ///< 1: largest first
};

/// sort_chunks_<most columns>. Grid: workgroups of `rows_a_block` pieces; a piece is a chunk of a row.
struct sort_chunks_args {
    sort_source source;
    uint64_t * keys;                         ///< [piece][min(keep, sort_chunk)]; unused with dst
    int32_t * dst;                           ///< [row][keep], for rows of one chunk; else null
    uint32_t keep;                           ///< columns wanted, at most source.columns
    uint32_t pieces;
    fast_divisor chunks;                     ///< pieces a row
    uint32_t width_log2;                     ///< a piece has 2^width_log2 places, at least as many as columns
    uint32_t pieces_a_block;
};

/// merge_runs: one work-item for each key. Runs of `run` columns, of which at most `kept` are there, become runs of twice as many columns.
struct merge_runs_args {
    const uint64_t * keys;                   ///< [row][run][kept]
    uint64_t * merged;                       ///< [row][(runs + 1) / 2][merged_kept]; unused with dst
    int32_t * dst;                           ///< [row][merged_kept] at the last pass; else null
    uint32_t count;                          ///< rows * runs * kept, < 2^31
    uint32_t columns;                        ///< of a row
    uint32_t run;                            ///< columns that a run stands for
    uint32_t merged_kept;                    ///< min(keep, 2 run)
    uint32_t first_step;                     ///< of the binary search: the largest power of two up to `kept`
    fast_divisor kept, runs;                 ///< runs: a row
};

/// argmax. Grid: rows. Of equal numbers the last counts, NaN never, and a row without numbers gives 0.
struct argmax_args {
    const void * src;                        ///< f32 rows
    int32_t * dst;                           ///< one a row
    uint64_t stride;                         ///< between rows, bytes
    uint32_t columns;
};

}  // namespace strata
