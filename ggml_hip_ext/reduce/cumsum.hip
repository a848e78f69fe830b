// CUMSUM: running sums along f32 rows. A wave takes 512 neighbouring elements, a workgroup eight times as many.
#include "strata/args/cumsum.h"
#include "strata/reduce.h"
#include "strata/row_part.h"

namespace strata {

constexpr uint32_t wave_step = 4 * wave_size;
constexpr uint32_t steps = cumsum_wave_row / wave_step;
constexpr uint32_t block_waves = cumsum_block / wave_size;
static_assert(cumsum_tile_row == block_waves * cumsum_wave_row || wave_size != 32);  // waves of 64 are refused

STRATA_DEVICE uint64_t row_offset(const cumsum_args & a, uint32_t row, const uint64_t (&stride)[3]) {
    const uint32_t rest = quotient(row, a.ne1), i1 = remainder(row, rest, a.ne1);
    const uint32_t i3 = quotient(rest, a.ne2), i2 = remainder(rest, i3, a.ne2);
    return i1 * stride[0] + i2 * stride[1] + i3 * stride[2];
}

STRATA_DEVICE const float * source_row(const cumsum_args & a, uint32_t row) {
    return reinterpret_cast<const float *>(static_cast<const char *>(a.src) + row_offset(a, row, a.src_stride));
}

STRATA_DEVICE float * result_row(const cumsum_args & a, uint32_t row) {
    return reinterpret_cast<float *>(static_cast<char *>(a.dst) + row_offset(a, row, a.dst_stride));
}

/// Running sums of the 512 elements from `first` on; returns their sum.
STRATA_DEVICE float scan_part(const float * row, uint32_t first, uint32_t length, float4v (&sums)[steps]) {
    float before = 0.0f;
#pragma unroll
    for (uint32_t k = 0; k < steps; k++) {
        float4v v = load_part<false>(row, first + k * wave_step, length);
        for (uint32_t i = 1; i < 4; i++) {
            v[i] += v[i - 1];
        }
        const float up_to_here = wave_scan(v[3]);
        sums[k] = v + (before + previous_lane(up_to_here));
        before += lane_value(up_to_here, wave_size - 1);
    }
    return before;
}

STRATA_DEVICE void store_sums(float * row, uint32_t first, uint32_t length, const float4v (&sums)[steps], float before) {
#pragma unroll
    for (uint32_t k = 0; k < steps; k++) {
        store_part<false>(row, first + k * wave_step, length, sums[k] + before);
    }
}

}  // namespace strata

using namespace strata;

/// A row a wave.
STRATA_KERNEL(cumsum_block) void cumsum_wave(cumsum_args a) {
    const uint32_t row = uniform(block_x() * block_waves + thread_x() / wave_size);
    if (row >= a.rows) {
        return;
    }
    float4v sums[steps];
    const uint32_t first = 4 * lane_id();
    scan_part(source_row(a, row), first, a.row, sums);
    store_sums(result_row(a, row), first, a.row, sums, 0.0f);
}

/// A tile a workgroup.
STRATA_KERNEL(cumsum_block) void cumsum_tile(cumsum_args a) {
    __shared__ float parts[block_waves], before_parts[block_waves];
    const uint32_t row = quotient(block_x(), a.tiles), tile = remainder(block_x(), row, a.tiles);
    const uint32_t wave = thread_x() / wave_size;
    const uint32_t first = tile * cumsum_tile_row + wave * cumsum_wave_row + 4 * lane_id();
    float before = 0.0f;
    if (a.totals) {
        for (uint32_t t = thread_x(); t < tile; t += cumsum_block) {
            before += a.totals[row * a.tiles.divisor + t];
        }
        before = block_sum<block_waves>(before, before_parts);
    }
    float4v sums[steps];
    const float total = scan_part(source_row(a, row), first, a.row, sums);
    if (lane_id() == 0) {
        parts[wave] = total;
    }
    barrier();
    for (uint32_t w = 0; w < wave; w++) {
        before += parts[w];
    }
    store_sums(result_row(a, row), first, a.row, sums, before);
}

/// The sum of a tile a workgroup.
STRATA_KERNEL(cumsum_block) void cumsum_totals(cumsum_args a) {
    __shared__ float parts[block_waves];
    const uint32_t row = quotient(block_x(), a.tiles), tile = remainder(block_x(), row, a.tiles);
    const uint32_t end = smaller(a.row, (tile + 1) * cumsum_tile_row);
    float4v sums = {0.0f, 0.0f, 0.0f, 0.0f};
    for (uint32_t e = tile * cumsum_tile_row + 4 * thread_x(); e < end; e += 4 * cumsum_block) {
        sums += load_part<false>(source_row(a, row), e, end);
    }
    const float total = block_sum<block_waves>((sums[0] + sums[1]) + (sums[2] + sums[3]), parts);
    if (thread_x() == 0) {
        static_cast<float *>(a.dst)[block_x()] = total;
    }
}
