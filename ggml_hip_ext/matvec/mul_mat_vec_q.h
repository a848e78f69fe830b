// Quantized weights times groups of one to eight columns of quantized activations: dot4, a wave for each group of rows. Every row is summed in the
// same order whatever the number of columns and of rows a wave has: lane l adds pieces l, l + 32, ... and the lanes are added as a
// butterfly. With experts, a "matrix" is a pair of token and slot, which has one column and the weights of its expert.
#pragma once

#include "strata/args/mul_mat.h"
#include "strata/blocks.h"
#include "strata/reduce.h"

namespace strata {

constexpr uint32_t mul_mat_vec_waves = 4;

constexpr uint32_t next_power_of_two(uint32_t n) {
    uint32_t p = 1;
    while (p < n) {
        p *= 2;
    }
    return p;
}

/// Grid: groups of 4 Rows rows, groups of Columns columns, matrices.
template <class Type, uint32_t Columns, uint32_t Rows>
STRATA_DEVICE void mul_mat_vec_q(const mul_mat_q_args & a) {
    using block = typename Type::block;
    constexpr uint32_t piece_length = block::elements / Type::pieces;
    constexpr uint32_t values_step = wave_size * piece_length, meta_step = values_step / 32 * sizeof(q8_1_meta);
    constexpr uint32_t block_step = wave_size / Type::pieces * sizeof(block);
    constexpr uint32_t results = next_power_of_two(Columns * Rows), lanes_per_result = wave_size / results;

    const uint32_t row = uniform((block_x() * mul_mat_vec_waves + (thread_x() >> 5)) * Rows);
    if (row >= a.rows) {
        return;
    }
    const uint32_t lane = lane_id(), z = block_z();
    const uint32_t meta_pitch = a.k / 32 * sizeof(q8_1_meta);

    const char * matrix = static_cast<const char *>(a.weights);
    const char * values = static_cast<const char *>(a.values);
    const char * meta = static_cast<const char *>(a.meta);
    float * dst = a.dst;
    if (Columns == 1 && a.experts.ids) {
        const expert_pair pair = find_pair(a.experts, z);
        const uint64_t column = static_cast<uint64_t>(pair.token) * a.experts.sources.divisor + pair.source;
        matrix += uniform(expert_of(a.experts, pair)) * a.batches.stride2;
        values += column * a.k;
        meta += column * meta_pitch;
        dst += static_cast<uint64_t>(z) * a.rows;
    } else if ((z | block_y()) != 0) {
        const uint64_t column = static_cast<uint64_t>(z) * a.columns + block_y() * Columns;
        matrix += weight_matrix_offset(a.batches, z);
        values += column * a.k;
        meta += column * meta_pitch;
        dst += column * a.rows;
    }
    const char * weights[Rows];
#pragma unroll
    for (uint32_t r = 0; r < Rows; ++r) {
        const uint32_t existing = row + r < a.rows ? row + r : a.rows - 1;
        weights[r] = matrix + static_cast<uint64_t>(existing) * a.stride1;
    }

    uint32_t weight_at = Type::block_offset(lane), values_at = Type::value_offset(lane), meta_at = Type::meta_offset(lane);
    float sums[results] = {};
    const auto step = [&] {
        typename Type::weights w[Rows];
#pragma unroll
        for (uint32_t r = 0; r < Rows; ++r) {
            w[r] = Type::load(weights[r], weight_at, lane);
        }
#pragma unroll
        for (uint32_t c = 0; c < Columns; ++c) {
            const auto x = Type::load_activation(values + static_cast<uint64_t>(c) * a.k, values_at,
                                                 meta + static_cast<uint64_t>(c) * meta_pitch, meta_at);
#pragma unroll
            for (uint32_t r = 0; r < Rows; ++r) {
                sums[c * Rows + r] = Type::dot(w[r], x, sums[c * Rows + r], lane);
            }
        }
        weight_at += block_step;
        values_at += values_step;
        meta_at += meta_step;
    };
    uint32_t pieces = a.k / piece_length;
    for (; pieces >= wave_size; pieces -= wave_size) {
        step();
    }
    if (lane < pieces) {
        step();
    }

    const float sum = wave_sums(sums);
    const uint32_t result = lane / lanes_per_result, r = result % Rows, c = result / Rows;
    if (lane % lanes_per_result == 0 && c < Columns && row + r < a.rows) {
        dst[static_cast<uint64_t>(c) * a.rows + row + r] = sum;
    }
}

}  // namespace strata

// Kernels mul_mat_vec_<type>_c<columns>_r<rows a wave>.
#define STRATA_MUL_MAT_VEC_Q(type, columns, rows)                                             \
    STRATA_KERNEL(128) void mul_mat_vec_##type##_c##columns##_r##rows(strata::mul_mat_q_args a) { \
        strata::mul_mat_vec_q<strata::type, columns, rows>(a);                                \
    }
#define STRATA_MUL_MAT_VEC_Q_KERNELS(type) \
    STRATA_MUL_MAT_VEC_Q(type, 1, 1)       \
    STRATA_MUL_MAT_VEC_Q(type, 1, 4)       \
    STRATA_MUL_MAT_VEC_Q(type, 2, 2)       \
    STRATA_MUL_MAT_VEC_Q(type, 3, 2)       \
    STRATA_MUL_MAT_VEC_Q(type, 4, 2)       \
    STRATA_MUL_MAT_VEC_Q(type, 5, 2)       \
    STRATA_MUL_MAT_VEC_Q(type, 6, 2)       \
    STRATA_MUL_MAT_VEC_Q(type, 7, 2)       \
    STRATA_MUL_MAT_VEC_Q(type, 8, 2)
