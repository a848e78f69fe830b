// Norms of f32 rows: root mean square, mean and variance, Euclidean. How a row is summed depends on its length and layout alone: the same
// bits whatever other rows there are.
#include "row_norm.h"

namespace strata {

struct row_pointers {
    float * dst;
    const float * src;
};

STRATA_DEVICE row_pointers find_row(const norm_args & a, uint32_t row) {
    const uint32_t rest = quotient(row, a.ne1), i1 = remainder(row, rest, a.ne1);
    const uint32_t i3 = quotient(rest, a.ne2), i2 = remainder(rest, i3, a.ne2);
    return {reinterpret_cast<float *>(static_cast<char *>(a.dst) + (i1 * a.dst_stride[0] + i2 * a.dst_stride[1] + i3 * a.dst_stride[2])),
            reinterpret_cast<const float *>(static_cast<const char *>(a.src) +
                                            (i1 * a.src_stride[0] + i2 * a.src_stride[1] + i3 * a.src_stride[2]))};
}

// Elements e .. e+3 of a row of n less `shift`, but zeros past its end.
template <bool Fours>
STRATA_DEVICE float4v shifted(float4v v, float shift, uint32_t e, uint32_t n) {
    v -= shift;
    if (Fours ? e >= n : e + 4 > n) {
        for (uint32_t i = 0; i < 4; i++) {
            v[i] = e + i < n ? v[i] : 0.0f;
        }
    }
    return v;
}

STRATA_DEVICE float mean_of(const norm_args & a, float sum) { return sum / static_cast<float>(a.row); }

// What a row is multiplied by.
STRATA_DEVICE float norm_scale(const norm_args & a, float squares) {
    return a.kind == norm_kind::l2 ? 1.0f / max(sqrt(squares), a.eps) : rms_scale(squares, a.row, a.eps);
}

// A wave a row, the row in registers: at most norm_wave_row elements.
template <bool Fours>
STRATA_DEVICE void norm_in_wave(const norm_args & a) {
    const uint32_t row = uniform(block_x() * norm_waves + thread_x() / wave_size);
    if (row >= a.rows) {
        return;
    }
    const row_pointers at = find_row(a, row);
    const uint32_t first = 4 * (thread_x() % wave_size);
    constexpr uint32_t steps = norm_wave_steps;
    float4v values[steps];
#pragma unroll
    for (uint32_t k = 0; k < steps; k++) {
        if (k * wave_step < a.row) {
            values[k] = load_part<Fours>(at.src, first + k * wave_step, a.row);
        }
    }
    if (a.kind == norm_kind::mean) {
        float4v sums = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (uint32_t k = 0; k < steps; k++) {
            if (k * wave_step < a.row) {
                sums += values[k];
            }
        }
        const float mean = mean_of(a, wave_sum(lane_total(sums)));
#pragma unroll
        for (uint32_t k = 0; k < steps; k++) {
            if (k * wave_step < a.row) {
                values[k] = shifted<Fours>(values[k], mean, first + k * wave_step, a.row);
            }
        }
    }
    float4v sums = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (uint32_t k = 0; k < steps; k++) {
        if (k * wave_step < a.row) {
            add_squares(sums, values[k]);
        }
    }
    const float scale = norm_scale(a, wave_sum(lane_total(sums)));
#pragma unroll
    for (uint32_t k = 0; k < steps; k++) {
        if (k * wave_step < a.row) {
            store_part<Fours>(at.dst, first + k * wave_step, a.row, values[k] * scale);
        }
    }
}

// A workgroup a row, read two or three times: any length.
template <bool Fours>
STRATA_DEVICE void norm_in_block(const norm_args & a, float * parts) {
    const row_pointers at = find_row(a, block_x());
    const uint32_t first = 4 * thread_x();
    float mean = 0.0f;
    if (a.kind == norm_kind::mean) {
        float4v sums = {0.0f, 0.0f, 0.0f, 0.0f};
        for (uint32_t e = first; e < a.row; e += block_step) {
            sums += load_part<Fours>(at.src, e, a.row);
        }
        mean = mean_of(a, block_sum<norm_waves>(lane_total(sums), parts));
    }
    float4v sums = {0.0f, 0.0f, 0.0f, 0.0f};
    for (uint32_t e = first; e < a.row; e += block_step) {
        add_squares(sums, shifted<Fours>(load_part<Fours>(at.src, e, a.row), mean, e, a.row));
    }
    const float scale = norm_scale(a, block_sum<norm_waves>(lane_total(sums), parts + norm_waves));
    for (uint32_t e = first; e < a.row; e += block_step) {
        store_part<Fours>(at.dst, e, a.row, (load_part<Fours>(at.src, e, a.row) - mean) * scale);
    }
}

// A workgroup a row whose elements lie apart.
STRATA_DEVICE void norm_of_scattered(const norm_args & a, float * parts) {
    const row_pointers at = find_row(a, block_x());
    const auto element = [&](uint32_t e) { return load<float>(reinterpret_cast<const char *>(at.src) + e * a.src_step); };
    float mean = 0.0f;
    if (a.kind == norm_kind::mean) {
        float sum = 0.0f;
        for (uint32_t e = thread_x(); e < a.row; e += norm_block) {
            sum += element(e);
        }
        mean = mean_of(a, block_sum<norm_waves>(sum, parts));
    }
    float sum = 0.0f;
    for (uint32_t e = thread_x(); e < a.row; e += norm_block) {
        const float v = element(e) - mean;
        sum = fma(v, v, sum);
    }
    const float scale = norm_scale(a, block_sum<norm_waves>(sum, parts + norm_waves));
    for (uint32_t e = thread_x(); e < a.row; e += norm_block) {
        store(reinterpret_cast<char *>(at.dst) + e * a.dst_step, 0, (element(e) - mean) * scale);
    }
}

}  // namespace strata

using namespace strata;

// The kernels with 4 in their names take rows of a multiple of four elements.
STRATA_KERNEL(norm_block) void norm_wave(norm_args a) { norm_in_wave<false>(a); }
STRATA_KERNEL(norm_block) void norm_wave4(norm_args a) { norm_in_wave<true>(a); }

STRATA_KERNEL(norm_block) void norm_row(norm_args a) {
    __shared__ float parts[2 * norm_waves];
    norm_in_block<false>(a, parts);
}
STRATA_KERNEL(norm_block) void norm_row4(norm_args a) {
    __shared__ float parts[2 * norm_waves];
    norm_in_block<true>(a, parts);
}
STRATA_KERNEL(norm_block) void norm_any(norm_args a) {
    __shared__ float parts[2 * norm_waves];
    norm_of_scattered(a, parts);
}
