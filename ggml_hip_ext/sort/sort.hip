// ARGSORT and TOP_K: sorted runs by merging in LDS, then merges of runs in memory. See strata/args/sort.h.
//
// Merging needs no communication: the place of a key in the merged run is its place in its own run plus the number of smaller keys in the
// other one, which a binary search finds.
#include "sort_key.h"
#include "strata/args/sort.h"
#include "strata/memory.h"

namespace strata {

/// Pieces of up to 2^width_log2 columns, all in Capacity places of LDS.
template <uint32_t Capacity>
STRATA_DEVICE void sort_chunks(const sort_chunks_args & a) {
    constexpr uint32_t mine = Capacity / sort_threads;   // places a work-item
    __shared__ uint64_t keys[2][Capacity];

    const uint32_t width = 1u << a.width_log2, places = a.pieces_a_block << a.width_log2;
    uint32_t row[mine], column[mine], length[mine];   // of the piece: its row, this place's column, how many columns it has
    bool used[mine];
#pragma unroll
    for (uint32_t i = 0; i < mine; ++i) {
        const uint32_t place = i * sort_threads + thread_x();
        const uint32_t piece = block_x() * a.pieces_a_block + (place >> a.width_log2);
        row[i] = quotient(piece, a.chunks);
        const uint32_t first = remainder(piece, row[i], a.chunks) * sort_chunk;
        column[i] = place & (width - 1);
        length[i] = smaller(a.source.columns - first, width);
        used[i] = place < places && piece < a.pieces && column[i] < length[i];
        if (used[i]) {
            const sort_source & s = a.source;
            const uint32_t rest = quotient(row[i], s.ne1), i1 = remainder(row[i], rest, s.ne1);
            const uint32_t i3 = quotient(rest, s.ne2), i2 = remainder(rest, i3, s.ne2);
            const char * from = static_cast<const char *>(s.data) + (i1 * s.stride[0] + i2 * s.stride[1] + i3 * s.stride[2]);
            const uint32_t at = first + column[i];
            keys[0][place] = sort_key(load<float>(from, at * 4), s.descending, at);
        }
    }

    const uint32_t longest = smaller(a.source.columns, width);
    uint32_t now = 0;
    for (uint32_t run = 1; run < longest; run *= 2) {
        barrier();
#pragma unroll
        for (uint32_t i = 0; i < mine; ++i) {
            const uint32_t place = i * sort_threads + thread_x(), in_run = column[i] & (run - 1);
            if (used[i] && in_run < a.keep) {
                const uint64_t key = keys[now][place];
                const uint32_t sibling = (column[i] - in_run) ^ run, origin = place - column[i];
                const uint32_t there = sibling < length[i] ? smaller(smaller(length[i] - sibling, run), a.keep) : 0;
                const uint64_t * others = &keys[now][origin + sibling];
                uint32_t below = 0;
                for (uint32_t step = run; step != 0; step >>= 1) {
                    if (below + step <= there && others[below + step - 1] < key) {
                        below += step;
                    }
                }
                const uint32_t to = in_run + below;
                if (to < a.keep) {
                    keys[now ^ 1][origin + (column[i] & ~(2 * run - 1)) + to] = key;
                }
            }
        }
        now ^= 1;
    }
    barrier();

#pragma unroll
    for (uint32_t i = 0; i < mine; ++i) {
        if (used[i] && column[i] < a.keep) {
            const uint32_t place = i * sort_threads + thread_x();
            const uint64_t key = keys[now][place];
            if (a.dst) {
                a.dst[static_cast<uint64_t>(row[i]) * a.keep + column[i]] = static_cast<int32_t>(key);
            } else {
                a.keys[static_cast<uint64_t>(block_x()) * smaller(a.keep, sort_chunk) + column[i]] = key;
            }
        }
    }
}

STRATA_KERNEL(sort_threads) void sort_chunks_256(sort_chunks_args a) { sort_chunks<sort_small_chunk>(a); }
STRATA_KERNEL(sort_threads) void sort_chunks_2048(sort_chunks_args a) { sort_chunks<sort_chunk>(a); }

/// Grid: groups of sort_threads keys.
STRATA_KERNEL(sort_threads) void merge_runs(merge_runs_args a) {
    const uint32_t item = block_x() * sort_threads + thread_x();
    if (item >= a.count) {
        return;
    }
    const uint32_t all_runs = quotient(item, a.kept), in_run = remainder(item, all_runs, a.kept);
    const uint32_t row = quotient(all_runs, a.runs), run = remainder(all_runs, row, a.runs);
    const auto keys_of = [&](uint32_t r) {
        return r < a.runs.divisor ? smaller(smaller(a.columns - r * a.run, a.run), a.kept.divisor) : 0;
    };
    if (in_run >= keys_of(run)) {
        return;
    }
    const uint32_t there = keys_of(run ^ 1);
    const uint64_t * keys = a.keys + static_cast<uint64_t>(row * a.runs.divisor) * a.kept.divisor;
    const uint64_t key = keys[run * a.kept.divisor + in_run];
    const uint64_t * others = keys + (run ^ 1) * a.kept.divisor;
    uint32_t below = 0;
    for (uint32_t step = a.first_step; step != 0; step >>= 1) {
        if (below + step <= there && others[below + step - 1] < key) {
            below += step;
        }
    }
    const uint32_t to = in_run + below;
    if (to >= a.merged_kept) {
        return;
    }
    if (a.dst) {
        a.dst[static_cast<uint64_t>(row) * a.merged_kept + to] = static_cast<int32_t>(key);
    } else {
        const uint32_t merged_runs = (a.runs.divisor + 1) / 2;
        a.merged[static_cast<uint64_t>(row * merged_runs + run / 2) * a.merged_kept + to] = key;
    }
}

}  // namespace strata
