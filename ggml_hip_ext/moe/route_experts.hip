// Sorts the pairs (token, slot) of a MUL_MAT_ID by expert, tokens and slots ascending within an expert, and cuts each expert's list into
// tiles. A workgroup does one expert: its waves count the pairs of smaller experts and of this one in a part of the ids each, and from
// these counts know where to write. Nothing but ballots and sums of integers: the order never depends on timing.
//
// The tiles of expert e begin at index (pairs of smaller experts) / tile_columns + e, which leaves room for all of them; those left over are
// marked empty. So the host can size the grid of the product without knowing the counts.
#include "strata/args/mul_mat.h"

namespace strata {

constexpr uint32_t route_threads = 256, route_waves = route_threads / wave_size;
constexpr uint32_t ids_at_once = 4;   // loads in flight

/// Grid: experts.
STRATA_KERNEL(route_threads) void route_experts(route_args a) {
    __shared__ uint32_t smaller_experts[route_waves], this_expert[route_waves];

    const uint32_t expert = block_x(), wave = uniform(thread_x() / wave_size), lane = lane_id();
    const uint32_t part = (a.pairs + route_threads - 1) / route_threads * wave_size;
    const uint32_t begin = smaller(wave * part, a.pairs), end = smaller(begin + part, a.pairs);

    uint32_t below = 0, equal = 0;
    for (uint32_t first = begin; first < end; first += ids_at_once * wave_size) {
        uint32_t ids[ids_at_once];
#pragma unroll
        for (uint32_t i = 0; i < ids_at_once; ++i) {
            ids[i] = expert_of(a.experts, find_pair(a.experts, smaller(first + i * wave_size + lane, end - 1)));
        }
#pragma unroll
        for (uint32_t i = 0; i < ids_at_once; ++i) {
            const bool exists = first + i * wave_size + lane < end;
            below += count_lanes(lanes_where(exists && ids[i] < expert));
            equal += count_lanes(lanes_where(exists && ids[i] == expert));
        }
    }
    if (lane == 0) {
        smaller_experts[wave] = below;
        this_expert[wave] = equal;
    }
    barrier();
    uint32_t offset = 0, at = 0, count = 0;
#pragma unroll
    for (uint32_t w = 0; w < route_waves; ++w) {
        offset += smaller_experts[w];
        at += w < wave ? this_expert[w] : 0;
        count += this_expert[w];
    }
    offset = uniform(offset);
    at = uniform(at) + offset;
    count = uniform(count);

    if (equal != 0) {
        for (uint32_t first = begin; first < end; first += wave_size) {
            const bool exists = first + lane < end;
            const expert_pair pair = find_pair(a.experts, exists ? first + lane : begin);
            const bool chosen = exists && expert_of(a.experts, pair) == expert;
            const lane_mask lanes = lanes_where(chosen);
            if (chosen) {
                a.columns[at + lanes_below(lanes)] = {pair.token * a.token_step + pair.source * a.slot_step, first + lane};
            }
            at += count_lanes(lanes);
        }
    }

    const uint32_t tiles = quotient(offset, a.tile_columns) + expert;
    const uint32_t tiles_end = quotient(offset + count, a.tile_columns) + expert + 1;
    for (uint32_t i = thread_x(); i < tiles_end - tiles; i += route_threads) {
        const uint32_t done = i * a.tile_columns.divisor;
        const uint32_t left = done < count ? count - done : 0;
        a.tiles[tiles + i] = {expert, offset + done, smaller(left, a.tile_columns.divisor), 0};
    }
}

}  // namespace strata
