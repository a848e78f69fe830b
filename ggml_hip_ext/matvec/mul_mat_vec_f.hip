// f32, f16 and bf16 weights times groups of one to eight columns: 8 or 32 lanes a row, eight values a lane at a time. With experts, a "matrix" is
// a pair of token and slot, which has one column and the weights of its expert.
#include "mul_mat_vec_f.h"
#include "results.h"
#include "strata/args/mul_mat.h"

namespace strata {

/// Groups of `Lanes` lanes take `Rows` rows each. Grid: groups of 4 * 32 / Lanes * Rows rows, groups of Columns columns, matrices;
/// with experts as find_workgroup() reads it.
template <class Weight, class Activation, uint32_t Columns, uint32_t Lanes, uint32_t Rows>
STRATA_DEVICE void mul_mat_vec_f(const mul_mat_f_args & a) {
    constexpr uint32_t groups = wave_size / Lanes, wave_rows = groups * Rows;
    static_assert(groups == 1 || Rows == 1);
    constexpr uint32_t results = next_power_of_two(Columns * Rows), lanes_per_result = Lanes / results;
    const uint32_t lane = lane_id() % Lanes;
    const workgroup_place place = Columns == 1 ? find_workgroup(a.experts) : workgroup_place{block_x(), block_z()};
    const uint32_t z = place.layer, first_row = uniform((place.group * 4 + (thread_x() >> 5)) * wave_rows);
    if (first_row >= a.rows) {
        return;
    }
    const uint32_t last_row = a.rows - 1 - first_row;   // rows beyond it read it again and store nothing
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
    const char * rows[Rows];
#pragma unroll
    for (uint32_t r = 0; r < Rows; ++r) {
        rows[r] = weights + smaller(r, last_row) * a.stride1;
    }

    float sums[results] = {};
    multiply_rows<Weight, Activation, Lanes, Rows, Columns>(rows, groups > 1 ? smaller(lane_id() / Lanes, last_row) * a.stride1 : 0, activations,
                                                            a.column_stride, a.k, lane, sums);
    const float sum = wave_sums<results, Lanes / 2>(sums);   // of each group of lanes by itself
    const uint32_t result = lane / lanes_per_result, c = result / Rows, row = lane_id() / Lanes + result % Rows;
    if (lane % lanes_per_result == 0 && c < Columns && row <= last_row) {
        float * dst = a.dst + (static_cast<uint64_t>(z) * (Columns == 1 && a.experts.ids ? 1 : a.columns) + block_y() * Columns) * a.rows;
        dst[static_cast<uint64_t>(c) * a.rows + first_row + row] = sum;
    }
}

}  // namespace strata

// Kernels mul_mat_vec_<weights>_<activations>_c<columns>_l<lanes a row>_r<rows that these lanes take>.
#define KERNEL(weight, activation, columns, lanes, rows)                                                                           \
    STRATA_KERNEL(128) void mul_mat_vec_##weight##_##activation##_c##columns##_l##lanes##_r##rows(strata::mul_mat_f_args a) {      \
        strata::mul_mat_vec_f<strata::weight, strata::activation, columns, lanes, rows>(a);                                        \
    }
#define UP_TO_SIX_COLUMNS(weight, activation, lanes, rows)  \
    KERNEL(weight, activation, 2, lanes, rows)              \
    KERNEL(weight, activation, 3, lanes, rows)              \
    KERNEL(weight, activation, 4, lanes, rows)              \
    KERNEL(weight, activation, 5, lanes, rows)              \
    KERNEL(weight, activation, 6, lanes, rows)
#define ONE_ROW(weight, activation, lanes)            \
    KERNEL(weight, activation, 1, lanes, 1)           \
    UP_TO_SIX_COLUMNS(weight, activation, lanes, 1)   \
    KERNEL(weight, activation, 7, lanes, 1)           \
    KERNEL(weight, activation, 8, lanes, 1)
// Two rows are a whole wave's, so there are none of them with waves of 64.
#if __AMDGCN_WAVEFRONT_SIZE == 32
#define TWO_ROWS(weight, activation) UP_TO_SIX_COLUMNS(weight, activation, 32, 2)
#else
#define TWO_ROWS(weight, activation)
#endif
#define KERNELS(weight, activation)   \
    ONE_ROW(weight, activation, 8)    \
    ONE_ROW(weight, activation, 32)   \
    TWO_ROWS(weight, activation)

KERNELS(f32, f32)
KERNELS(f16, f32)
KERNELS(f16, f16)
KERNELS(bf16, f32)
