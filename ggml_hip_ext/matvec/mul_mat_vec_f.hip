// f32, f16 and bf16 weights times groups of one to eight columns: 8 or 32 lanes a row, eight values a lane at a time. With experts, a "matrix" is a pair of token and slot, which has one column and the weights of its expert.
#include "mul_mat_vec_f.h"
#include "strata/args/mul_mat.h"

namespace strata {

/// Grid: groups of 4 * 32 / Lanes rows, groups of Columns columns, matrices.
template <class Weight, class Activation, uint32_t Columns, uint32_t Lanes>
STRATA_DEVICE void mul_mat_vec_f(const mul_mat_f_args & a) {
    constexpr uint32_t wave_rows = wave_size / Lanes;
    const uint32_t lane = lane_id() % Lanes, z = block_z();
    const uint32_t first_row = uniform((block_x() * 4 + (thread_x() >> 5)) * wave_rows);
    if (first_row >= a.rows) {
        return;
    }
    uint32_t row_in_wave = lane_id() / Lanes;
    if (row_in_wave > a.rows - 1 - first_row) {
        row_in_wave = a.rows - 1 - first_row;   // reads the last row again, stores nothing
    }
    const char * weights = static_cast<const char *>(a.weights) + static_cast<uint64_t>(first_row) * a.stride1;
    const char * activations = static_cast<const char *>(a.activations);
    if (Columns == 1 && a.experts.ids) {
        const expert_pair pair = find_pair(a.experts, z);
        weights += uniform(expert_of(a.experts, pair)) * a.batches.stride2;
        activations += pair.source * a.activation_stride2 + pair.token * a.activation_stride3;
    } else {
        weights += weight_matrix_offset(a.batches, z);
        activations += activation_matrix_offset(a, z) + static_cast<uint64_t>(block_y() * Columns) * a.column_stride;
    }

    float sums[Columns] = {};
    multiply_row<Weight, Activation, Columns, Lanes>(weights, wave_rows > 1 ? row_in_wave * a.stride1 : 0, activations, a.column_stride, a.k,
                                                     lane, sums);
#pragma unroll
    for (uint32_t c = 0; c < Columns; ++c) {
        sums[c] = wave_sum<Lanes>(sums[c]);
    }
    const uint32_t row = first_row + lane_id() / Lanes;
    if (lane == 0 && row < a.rows) {
        float * dst = a.dst + (static_cast<uint64_t>(z) * (Columns == 1 && a.experts.ids ? 1 : a.columns) + block_y() * Columns) * a.rows;
#pragma unroll
        for (uint32_t c = 0; c < Columns; ++c) {
            dst[static_cast<uint64_t>(c) * a.rows + row] = sums[c];
        }
    }
}

}  // namespace strata

// Kernels mul_mat_vec_<weights>_<activations>_c<columns>_l<lanes a row>.
#define KERNEL(weight, activation, columns, lanes)                                                                       \
    STRATA_KERNEL(128) void mul_mat_vec_##weight##_##activation##_c##columns##_l##lanes(strata::mul_mat_f_args a) {      \
        strata::mul_mat_vec_f<strata::weight, strata::activation, columns, lanes>(a);                                    \
    }
#define KERNELS(weight, activation, lanes)  \
    KERNEL(weight, activation, 1, lanes)    \
    KERNEL(weight, activation, 2, lanes)    \
    KERNEL(weight, activation, 3, lanes)    \
    KERNEL(weight, activation, 4, lanes)    \
    KERNEL(weight, activation, 5, lanes)    \
    KERNEL(weight, activation, 6, lanes)    \
    KERNEL(weight, activation, 7, lanes)    \
    KERNEL(weight, activation, 8, lanes)

KERNELS(f32, f32, 8)
KERNELS(f32, f32, 32)
KERNELS(f16, f32, 8)
KERNELS(f16, f32, 32)
KERNELS(f16, f16, 8)
KERNELS(f16, f16, 32)
KERNELS(bf16, f32, 8)
KERNELS(bf16, f32, 32)
