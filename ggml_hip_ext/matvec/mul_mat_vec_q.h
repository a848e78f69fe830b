// Quantized weights times groups of one to eight columns of quantized activations: dot4, a wave for each group of rows. Every row is summed in the
// same order whatever the number of columns and of rows a wave has: lane l adds pieces l, l + 32, ... and the lanes are added as a
// butterfly. With experts, a "matrix" is a pair of token and slot, which has one column and the weights of its expert.
#pragma once

#include "../delta_net/gates.h"
#include "grid.h"
#include "mul_mat_vec_quantize.h"
#include "results.h"
#include "strata/args/expert_output.h"
#include "strata/args/mul_mat_group.h"
#include "strata/blocks.h"
#include "strata/glu.h"
#include "strata/memory.h"
#include "strata/q8_1.h"

namespace strata {

constexpr uint32_t mul_mat_vec_waves = 4;
constexpr uint32_t few_steps = 2;   // at a time of a product with f32 weights next to one with quantized ones, whose registers it should not exceed

/// One matrix of the product: weights, the first of its columns of activations, and where its result goes.
struct matrix_place {
    uint64_t weights;   ///< bytes from the first matrix
    const char * values;
    const char * meta;
    float * dst;
    uint32_t expert;    ///< 0 without experts
};

template <uint32_t Columns>
STRATA_DEVICE matrix_place find_matrix(const mul_mat_q_args & a, uint32_t z) {
    const uint32_t meta_pitch = a.k / 32 * sizeof(q8_1_meta);
    matrix_place at = {0, static_cast<const char *>(a.values), static_cast<const char *>(a.meta), a.dst, 0};
    if (Columns == 1 && a.experts.ids) {
        const expert_pair pair = find_pair(a.experts, z);
        const uint64_t column = static_cast<uint64_t>(pair.token) * a.experts.sources.divisor + pair.source;
        at.expert = uniform(expert_of(a.experts, pair));
        at.weights = at.expert * a.batches.stride2;
        at.values += column * a.k;
        at.meta += column * meta_pitch;
        at.dst += static_cast<uint64_t>(z) * a.rows;
    } else if ((z | block_y()) != 0) {
        const uint64_t column = static_cast<uint64_t>(z) * a.columns + block_y() * Columns;
        at.weights = weight_matrix_offset(a.batches, z);
        at.values += column * a.k;
        at.meta += column * meta_pitch;
        at.dst += column * a.rows;
    }
    return at;
}

/// sums[c * Rows + r] becomes this lane's part of row r times column c; a row's address is the same in all lanes. `meanwhile` is called before
/// the first use of weights: of types with a grid, when the first ones have been asked for.
template <class Type, uint32_t Columns, uint32_t Rows, uint32_t Results, class Meanwhile>
STRATA_DEVICE void multiply(const char * const (&weights)[Rows], const matrix_place & at, uint32_t k, float (&sums)[Results],
                            const Meanwhile & meanwhile) {
    using block = typename Type::block;
    using weights_of_rows = typename Type::weights[Rows];
    constexpr uint32_t piece_length = block::elements / Type::pieces;
    constexpr uint32_t values_step = wave_size * piece_length, meta_step = values_step / 32 * sizeof(q8_1_meta);
    constexpr uint32_t block_step = wave_size / Type::pieces * sizeof(block);
    constexpr bool prefetched = has_grid<Type> && Columns == 1;   // with more, registers are short
    const uint32_t lane = lane_id(), meta_pitch = k / 32 * sizeof(q8_1_meta);

    uint32_t weight_at = Type::block_offset(lane), values_at = Type::value_offset(lane), meta_at = Type::meta_offset(lane);
    uint32_t pieces = k / piece_length;
    const auto fetch = [&](weights_of_rows & w) {
        if (lane < pieces) {
#pragma unroll
            for (uint32_t r = 0; r < Rows; ++r) {
                w[r] = Type::load(weights[r], weight_at, lane);
            }
        }
        weight_at += block_step;
    };
    const auto use = [&](const weights_of_rows & w) {
#pragma unroll
        for (uint32_t c = 0; c < Columns; ++c) {
            const auto x = Type::load_activation(at.values + static_cast<uint64_t>(c) * k, values_at,
                                                 at.meta + static_cast<uint64_t>(c) * meta_pitch, meta_at);
#pragma unroll
            for (uint32_t r = 0; r < Rows; ++r) {
                sums[c * Rows + r] = dot_of<Type>(w[r], x, sums[c * Rows + r], lane);
                if constexpr (prefetched) {
                    keep_order();   // else the entries of all rows lie in registers at a time
                }
            }
        }
        values_at += values_step;
        meta_at += meta_step;
    };
    weights_of_rows w;
    if constexpr (prefetched) {
        fetch(w);
        meanwhile();
        while (true) {
            if (lane < pieces) {
                use(w);
            }
            if (pieces <= wave_size) {
                return;
            }
            pieces -= wave_size;
            fetch(w);
        }
    }
    meanwhile();
    for (; pieces >= wave_size; pieces -= wave_size) {
        fetch(w);
        use(w);
    }
    if (lane < pieces) {
        fetch(w);
        use(w);
    }
}

/// Grid: groups of 4 Rows rows, groups of Columns columns, matrices; with experts as find_workgroup() reads it.
template <class Type, uint32_t Columns, uint32_t Rows>
STRATA_DEVICE void mul_mat_vec_q(const mul_mat_q_args & a) {
    constexpr uint32_t results = next_power_of_two(Columns * Rows), lanes_per_result = wave_size / results;

    const auto grid = grid_copy<Type, mul_mat_vec_waves * wave_size>::ask();
    const workgroup_place place = Columns == 1 ? find_workgroup(a.experts) : workgroup_place{block_x(), block_z()};
    const uint32_t row = uniform((place.group * mul_mat_vec_waves + (thread_x() >> 5)) * Rows);
    if (!has_grid<Type> && row >= a.rows) {
        return;
    }
    const matrix_place at = find_matrix<Columns>(a, place.layer);
    const char * weights[Rows];
#pragma unroll
    for (uint32_t r = 0; r < Rows; ++r) {
        const uint32_t existing = row + r < a.rows ? row + r : a.rows - 1;
        weights[r] = static_cast<const char *>(a.weights) + (at.weights + static_cast<uint64_t>(existing) * a.stride1);
    }
    float sums[results] = {};
    multiply<Type, Columns>(weights, at, a.k, sums, [&] { grid.put(); });

    const float sum = wave_sums(sums);
    const uint32_t lane = lane_id(), result = lane / lanes_per_result, r = result % Rows, c = result / Rows;
    if (lane % lanes_per_result == 0 && c < Columns && row + r < a.rows) {
        at.dst[static_cast<uint64_t>(c) * a.rows + row + r] = sum;
    }
}

/// The matrices of a gated unit, and where its result goes.
struct glu_place {
    const char * weights, * up;
    matrix_place at;    ///< weights is the offset in both
    char * values, * meta;
    uint32_t rows;
    workgroup_place workgroup;
    bool of_shared;
};

STRATA_DEVICE glu_place find_glu(const mul_mat_glu_args & args) {
    const mul_mat_q_args & a = args.product;
    const workgroup_place workgroup = find_workgroup(a.experts);
    if (workgroup.layer == args.shared.layer && args.shared.weights) {
        return {static_cast<const char *>(args.shared.weights), static_cast<const char *>(args.shared.up),
                {0, static_cast<const char *>(a.values), static_cast<const char *>(a.meta), args.shared.dst, 0},
                static_cast<char *>(args.shared.values), static_cast<char *>(args.shared.meta), args.shared.rows, workgroup, true};
    }
    const uint64_t flat = static_cast<uint64_t>(workgroup.layer) * a.rows;
    return {static_cast<const char *>(a.weights), static_cast<const char *>(args.up), find_matrix<1>(a, workgroup.layer),
            static_cast<char *>(args.values) + flat, static_cast<char *>(args.meta) + flat / 32 * sizeof(q8_1_meta), a.rows, workgroup, false};
}

/// A gated unit of two products: `Rows` rows from `row` on, which the matrix has. Its results are in the first of each group of lanes that
/// shares one, which gets result_row() of it. product(weights, sums) does what multiply() does.
template <uint32_t Rows, class Product>
STRATA_DEVICE float glu_of_rows(const mul_mat_glu_args & args, const glu_place & place, uint32_t row, const Product & product) {
    const mul_mat_q_args & a = args.product;
    const char * weights[2 * Rows];
#pragma unroll
    for (uint32_t r = 0; r < Rows; ++r) {
        const uint32_t existing = row + r < place.rows ? row + r : place.rows - 1;
        const uint64_t offset = place.at.weights + static_cast<uint64_t>(existing) * a.stride1;
        weights[r] = place.weights + offset;
        weights[Rows + r] = place.up + offset;
    }
    float sums[2 * Rows] = {};
    product(weights, sums);

    const float mine = wave_sums(sums), other = lane_xor<16>(mine);   // lanes 0 to 15 have the rows of `weights`, 16 to 31 those of `up`
    const uint32_t r = lane_id() / (wave_size / (2 * Rows));
    float x = mine, gate = other;
    const auto add_bias = [&](float & to, const expert_bias & bias) {
        if (bias.rows && r < Rows && row + r < place.rows) {
            to += load<float>(static_cast<const char *>(bias.rows) + place.at.expert * bias.stride, (row + r) * sizeof(float));
        }
    };
    add_bias(x, args.bias);
    add_bias(gate, args.up_bias);
    return glu(args.kind, x, gate, args.alpha, args.limit);
}

/// The row, counted from the first one, whose result this lane has to write; Rows if none.
template <uint32_t Rows>
STRATA_DEVICE uint32_t result_row() {
    constexpr uint32_t lanes = wave_size / (2 * Rows);
    return lane_id() % lanes == 0 ? smaller(lane_id() / lanes, Rows) : Rows;
}

/// Grid: groups of 4 Rows rows, 1, matrices, and one more of the shared expert; with experts as find_workgroup() reads it.
template <class Type, uint32_t Rows>
STRATA_DEVICE void mul_mat_vec_glu_q(const mul_mat_glu_args & args) {
    const auto grid = grid_copy<Type, mul_mat_vec_waves * wave_size>::ask();
    const glu_place place = find_glu(args);
    const uint32_t row = uniform((place.workgroup.group * mul_mat_vec_waves + (thread_x() >> 5)) * Rows);
    if (!has_grid<Type> && row >= place.rows) {
        return;
    }
    const float result = glu_of_rows<Rows>(args, place, row, [&](const auto & weights, auto & sums) {
        multiply<Type, 1>(weights, place.at, args.product.k, sums, [&] { grid.put(); });
    });
    const uint32_t r = result_row<Rows>();
    if (r < Rows && row + r < place.rows) {
        place.at.dst[row + r] = result;
    }
}

/// Quantizes 32 results of a gated unit, rows `first` and on, of which a lane with `mine` has the one at `at`.
STRATA_DEVICE void quantize_32_results(const glu_place & place, uint32_t first, uint32_t at, bool mine, float result) {
    __shared__ float results[32];
    if (mine) {
        results[at] = result;
    }
    barrier();
    if (thread_x() < 8) {
        const float * const four = results + 4 * thread_x();
        store_q8_1(place.values, place.meta, first + 4 * thread_x(), float4v{four[0], four[1], four[2], four[3]});
    }
}

/// The same, and the result quantized too: rows are a multiple of 32, of which a workgroup of 16 waves does 32. Grid: the same, with groups of 32 rows.
template <class Type>
STRATA_DEVICE void mul_mat_vec_glu_q8_1(const mul_mat_glu_args & args) {
    constexpr uint32_t wave_rows = 2;
    const glu_place place = find_glu(args);
    const uint32_t first = place.workgroup.group * 32, in_block = uniform((thread_x() >> 5) * wave_rows);
    if (first >= place.rows) {
        return;
    }
    const auto grid = grid_copy<Type, 16 * wave_size>::ask();
    const float result = glu_of_rows<wave_rows>(args, place, first + in_block, [&](const auto & weights, auto & sums) {
        multiply<Type, 1>(weights, place.at, args.product.k, sums, [&] { grid.put(); });
    });
    const uint32_t r = result_row<wave_rows>();
    if (r < wave_rows) {
        place.at.dst[first + in_block + r] = result;
    }
    quantize_32_results(place, first, in_block + r, r < wave_rows, result);
}

/// Where a pair's column of f32 activations begins: of the only one without experts, and of the shared expert.
STRATA_DEVICE const char * find_column(const expert_choice & experts, const pair_activations & x, uint32_t pair, bool of_shared) {
    uint64_t offset = 0;
    if (experts.ids && !of_shared) {
        const expert_pair p = find_pair(experts, pair);
        offset = p.token * x.token_stride + p.source * x.source_stride;
    }
    return static_cast<const char *>(x.data) + offset;
}

/// Pairs of token and slot whose columns each workgroup quantizes for itself. Grid: groups of mul_mat_quantize_waves rows and pairs as
/// find_workgroup() reads it.
template <class Type>
STRATA_DEVICE void mul_mat_vec_pairs_quantize(const mul_mat_pairs_quantize_args & args) {
    const mul_mat_q_args & a = args.product;
    copy_grid<Type>(mul_mat_quantize_waves * wave_size);
    const workgroup_place place = find_workgroup(a.experts);
    const uint32_t row = uniform(place.group * mul_mat_quantize_waves + (thread_x() >> 5));
    const matrix_place at = find_matrix<1>(a, place.layer);
    const char * const weights[1] = {static_cast<const char *>(a.weights) + (at.weights + static_cast<uint64_t>(smaller(row, a.rows - 1)) * a.stride1)};
    float sums[1] = {};
    quantize_and_multiply<Type, 1>(weights, find_column(a.experts, args.x, place.layer, false), 0, a.k, sums);
    const float sum = wave_sums(sums);
    if (lane_id() == 0 && row < a.rows) {
        at.dst[row] = sum;
    }
}

/// Their gated units, and that of the shared expert. Grid: the same, with groups of 32 rows.
template <class Type>
STRATA_DEVICE void mul_mat_vec_glu_quantize(const mul_mat_glu_quantize_args & args) {
    constexpr uint32_t wave_rows = 2;
    static_assert(mul_mat_quantize_waves * wave_rows == 32);
    const glu_place place = find_glu(args.glu);
    const uint32_t first = place.workgroup.group * 32, in_block = uniform((thread_x() >> 5) * wave_rows);
    if (first >= place.rows) {
        return;
    }
    copy_grid<Type>(mul_mat_quantize_waves * wave_size);
    const mul_mat_q_args & a = args.glu.product;
    const char * const column = find_column(a.experts, args.x, place.workgroup.layer, place.of_shared);
    const float result = glu_of_rows<wave_rows>(args.glu, place, first + in_block, [&](const auto & weights, auto & sums) {
        quantize_and_multiply<Type, 1>(weights, column, 0, a.k, sums);
    });
    const uint32_t r = result_row<wave_rows>();
    const bool mine = r < wave_rows && first + in_block + r < place.rows;
    if (mine) {
        place.at.dst[first + in_block + r] = result;
    }
    if (args.glu.values) {
        quantize_32_results(place, first, in_block + r, mine, result);
    }
}

/// A gated unit of two to eight columns: a wave has a row of both matrices. Grid: groups of 4 rows.
template <class Type, uint32_t Columns>
STRATA_DEVICE void mul_mat_vec_glu_columns(const mul_mat_glu_args & args) {
    constexpr uint32_t results = next_power_of_two(2 * Columns), lanes_per_result = wave_size / results;
    const auto grid = grid_copy<Type, mul_mat_vec_waves * wave_size>::ask();
    const mul_mat_q_args & a = args.product;
    const uint32_t row = uniform(block_x() * mul_mat_vec_waves + thread_x() / wave_size);
    if (!has_grid<Type> && row >= a.rows) {
        return;
    }
    const uint64_t offset = static_cast<uint64_t>(smaller(row, a.rows - 1)) * a.stride1;
    const char * const weights[2] = {static_cast<const char *>(a.weights) + offset, static_cast<const char *>(args.up) + offset};
    const matrix_place at = {0, static_cast<const char *>(a.values), static_cast<const char *>(a.meta), a.dst, 0};
    float sums[results] = {};
    multiply<Type, Columns>(weights, at, a.k, sums, [&] { grid.put(); });

    const float mine = wave_sums(sums), other = lane_xor<lanes_per_result>(mine);   // a column's result of `weights` lies before that of `up`
    const float value = glu(args.kind, mine, other, args.alpha, args.limit);
    const uint32_t c = lane_id() / (2 * lanes_per_result);
    if (lane_id() % (2 * lanes_per_result) == 0 && c < Columns && row < a.rows) {
        a.dst[static_cast<uint64_t>(c) * a.rows + row] = value;
    }
}

/// The end of a mixture of experts, a token's: a wave a product of the workgroup's rows, and one for the gate; then each row is added up.
/// Grid: groups of expert_output_rows rows; workgroups of used + 2 waves.
template <class Type>
STRATA_DEVICE void mul_mat_vec_experts_q(const expert_output_args & args) {
    constexpr uint32_t rows = expert_output_rows, lanes_per_result = wave_size / rows;
    __shared__ float results[expert_output_used + 1][rows];
    __shared__ float factor;
    const mul_mat_q_args & a = args.experts;
    const uint32_t first = block_x() * rows, used = a.experts.used.divisor;

    copy_grid<Type>((used + 2) * wave_size);
    const uint32_t wave = uniform(thread_x() >> 5);
    if (wave > used) {
        const float value = sigmoid(wave_sum(multiply_row<f32, f32, few_steps>(static_cast<const char *>(args.gate),
                                                                               static_cast<const char *>(args.x), args.length)));
        if (lane_id() == 0) {
            factor = value;
        }
    } else {
        const bool of_shared = wave == used;
        matrix_place at = {0, static_cast<const char *>(args.shared_values), static_cast<const char *>(args.shared_meta), nullptr, 0};
        if (!of_shared) {
            at = find_matrix<1>(a, wave);
        }
        const char * const matrix = static_cast<const char *>(of_shared ? args.shared : a.weights) + at.weights;
        const uint32_t stride = of_shared ? args.shared_stride : a.stride1, k = of_shared ? args.shared_k : a.k;
        const char * weights[rows];
#pragma unroll
        for (uint32_t r = 0; r < rows; ++r) {
            const uint32_t existing = first + r < a.rows ? first + r : a.rows - 1;
            weights[r] = matrix + static_cast<uint64_t>(existing) * stride;
        }
        float sums[rows] = {};
        multiply<Type, 1>(weights, at, k, sums, [] {});
        const float sum = wave_sums(sums);
        if (lane_id() % lanes_per_result == 0) {
            results[wave][lane_id() / lanes_per_result] = sum;
        }
    }
    barrier();
    const uint32_t r = thread_x();
    if (r < rows && first + r < a.rows) {
        const char * weights = static_cast<const char *>(args.weights);
        float sum = results[0][r] * load<float>(weights);
        for (uint32_t slot = 1; slot < used; ++slot) {
            weights += args.weight_stride;
            sum += results[slot][r] * load<float>(weights);
        }
        a.dst[first + r] = results[used][r] * factor + sum;
    }
}

/// Several products of one column. Grid: for each member its groups of 4 Rows rows; then groups of 4 gates of a delta net.
template <class Type, uint32_t Rows>
STRATA_DEVICE void mul_mat_vec_group_q(const mul_mat_group_args & a) {
    constexpr uint32_t lanes_per_result = wave_size / Rows;
    if (block_x() >= a.end) {
        delta_net_gate<few_steps>(a.gates, uniform((block_x() - a.end) * mul_mat_vec_waves + (thread_x() >> 5)), 0);
        return;
    }
    const auto grid = grid_copy<Type, mul_mat_vec_waves * wave_size>::ask();
    uint32_t which = 0, before = 0;
    while (which + 1 < most_in_group && block_x() >= a.members[which].end) {
        before = a.members[which++].end;
    }
    const auto & member = a.members[which];
    const uint32_t row = uniform(((block_x() - before) * mul_mat_vec_waves + (thread_x() >> 5)) * Rows);
    if (!has_grid<Type> && row >= member.rows) {
        return;
    }
    const matrix_place at = {0, static_cast<const char *>(a.values), static_cast<const char *>(a.meta), member.dst, 0};
    const char * weights[Rows];
#pragma unroll
    for (uint32_t r = 0; r < Rows; ++r) {
        const uint32_t existing = row + r < member.rows ? row + r : member.rows - 1;
        weights[r] = static_cast<const char *>(member.weights) + static_cast<uint64_t>(existing) * member.stride1;
    }
    float sums[Rows] = {};
    multiply<Type, 1>(weights, at, a.k, sums, [&] { grid.put(); });
    const float sum = wave_sums(sums);
    const uint32_t r = lane_id() / lanes_per_result;
    if (lane_id() % lanes_per_result == 0 && row + r < member.rows) {
        at.dst[row + r] = sum;
    }
}

}  // namespace strata

// Kernels mul_mat_vec_<type>_c<columns>_r<rows a wave>, mul_mat_vec_glu_<type>_r<rows of each matrix a wave>,
// mul_mat_vec_glu_<type>_q8_1, mul_mat_vec_glu_<type>_c<columns>, mul_mat_vec_group_<type>_r<rows a wave>, mul_mat_vec_quantize_<type>_c<columns>,
// mul_mat_vec_pairs_quantize_<type>, mul_mat_vec_glu_quantize_<type>, mul_mat_vec_experts_<type>.
#define STRATA_MUL_MAT_VEC_Q(type, columns, rows)                                             \
    STRATA_KERNEL(128) void mul_mat_vec_##type##_c##columns##_r##rows(strata::mul_mat_q_args a) { \
        strata::mul_mat_vec_q<strata::type, columns, rows>(a);                                \
    }
#define STRATA_MUL_MAT_VEC_GLU_Q(type, rows)                                                  \
    STRATA_KERNEL(128) void mul_mat_vec_glu_##type##_r##rows(strata::mul_mat_glu_args a) {    \
        strata::mul_mat_vec_glu_q<strata::type, rows>(a);                                     \
    }
#define STRATA_MUL_MAT_VEC_GLU_Q8_1(type)                                                     \
    STRATA_KERNEL(512) void mul_mat_vec_glu_##type##_q8_1(strata::mul_mat_glu_args a) {       \
        strata::mul_mat_vec_glu_q8_1<strata::type>(a);                                        \
    }
#define STRATA_MUL_MAT_VEC_GLU_COLUMNS(type, columns)                                         \
    STRATA_KERNEL(128) void mul_mat_vec_glu_##type##_c##columns(strata::mul_mat_glu_args a) { \
        strata::mul_mat_vec_glu_columns<strata::type, columns>(a);                            \
    }
#define STRATA_MUL_MAT_VEC_GROUP_Q(type, rows)                                                \
    STRATA_KERNEL(128) void mul_mat_vec_group_##type##_r##rows(strata::mul_mat_group_args a) { \
        strata::mul_mat_vec_group_q<strata::type, rows>(a);                                   \
    }
#define STRATA_MUL_MAT_VEC_QUANTIZE(type, columns, rows)                                                     \
    STRATA_KERNEL(512) void mul_mat_vec_quantize_##type##_c##columns(strata::mul_mat_quantize_args a) {      \
        strata::mul_mat_vec_quantize<strata::type, columns, rows>(a);                                        \
    }
#define STRATA_MUL_MAT_VEC_PAIRS_QUANTIZE(type)                                                           \
    STRATA_KERNEL(512) void mul_mat_vec_pairs_quantize_##type(strata::mul_mat_pairs_quantize_args a) {    \
        strata::mul_mat_vec_pairs_quantize<strata::type>(a);                                              \
    }
#define STRATA_MUL_MAT_VEC_GLU_QUANTIZE(type)                                                                \
    STRATA_KERNEL(512) void mul_mat_vec_glu_quantize_##type(strata::mul_mat_glu_quantize_args a) {           \
        strata::mul_mat_vec_glu_quantize<strata::type>(a);                                                   \
    }
#define STRATA_MUL_MAT_VEC_EXPERTS_Q(type)                                                    \
    STRATA_KERNEL(1024) void mul_mat_vec_experts_##type(strata::expert_output_args a) {       \
        strata::mul_mat_vec_experts_q<strata::type>(a);                                       \
    }
#define STRATA_MUL_MAT_VEC_Q_KERNELS(type) \
    STRATA_MUL_MAT_VEC_QUANTIZE(type, 1, 1) \
    STRATA_MUL_MAT_VEC_QUANTIZE(type, 2, 2) \
    STRATA_MUL_MAT_VEC_QUANTIZE(type, 3, 2) \
    STRATA_MUL_MAT_VEC_QUANTIZE(type, 4, 2) \
    STRATA_MUL_MAT_VEC_QUANTIZE(type, 5, 2) \
    STRATA_MUL_MAT_VEC_QUANTIZE(type, 6, 2) \
    STRATA_MUL_MAT_VEC_QUANTIZE(type, 7, 2) \
    STRATA_MUL_MAT_VEC_QUANTIZE(type, 8, 2) \
    STRATA_MUL_MAT_VEC_PAIRS_QUANTIZE(type) \
    STRATA_MUL_MAT_VEC_GLU_QUANTIZE(type)  \
    STRATA_MUL_MAT_VEC_EXPERTS_Q(type)     \
    STRATA_MUL_MAT_VEC_GROUP_Q(type, 1)    \
    STRATA_MUL_MAT_VEC_GROUP_Q(type, 4)    \
    STRATA_MUL_MAT_VEC_GLU_Q8_1(type)      \
    STRATA_MUL_MAT_VEC_GLU_COLUMNS(type, 2) \
    STRATA_MUL_MAT_VEC_GLU_COLUMNS(type, 3) \
    STRATA_MUL_MAT_VEC_GLU_COLUMNS(type, 4) \
    STRATA_MUL_MAT_VEC_GLU_COLUMNS(type, 5) \
    STRATA_MUL_MAT_VEC_GLU_COLUMNS(type, 6) \
    STRATA_MUL_MAT_VEC_GLU_COLUMNS(type, 7) \
    STRATA_MUL_MAT_VEC_GLU_COLUMNS(type, 8) \
    STRATA_MUL_MAT_VEC_GLU_Q(type, 1)      \
    STRATA_MUL_MAT_VEC_GLU_Q(type, 2)      \
    STRATA_MUL_MAT_VEC_Q(type, 1, 1)       \
    STRATA_MUL_MAT_VEC_Q(type, 1, 4)       \
    STRATA_MUL_MAT_VEC_Q(type, 2, 2)       \
    STRATA_MUL_MAT_VEC_Q(type, 3, 2)       \
    STRATA_MUL_MAT_VEC_Q(type, 4, 2)       \
    STRATA_MUL_MAT_VEC_Q(type, 5, 2)       \
    STRATA_MUL_MAT_VEC_Q(type, 6, 2)       \
    STRATA_MUL_MAT_VEC_Q(type, 7, 2)       \
    STRATA_MUL_MAT_VEC_Q(type, 8, 2)
