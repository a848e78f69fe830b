// RMS norms of f32 rows together with the pointwise ops around them. Sums are added in the order of norm.hip, and each op rounds as its own
// kernel does: the same bits as one launch an op.
#include "row_norm.h"
#include "strata/args/norm_chain.h"
#include "strata/q8_1.h"
#include "strata/read_together.h"

namespace strata {

/// Of a row that a workgroup keeps in registers.
constexpr uint32_t block_steps = 4;

enum class chain {
    mul,        // norm(src) * weight
    scale,      // norm(src) * scale + bias; with a grid of two in y also sum = norm(other) * scale + bias
    mul_add,    // norm(src) * weight + other
    mul_silu,   // norm(src) * weight * silu(other)
    mul_sigmoid,  // norm(src) * weight * sigmoid(other)
    of_sum,     // sum = src + other, norm(sum) * weight
    twice,      // sum = norm(src) * weight + other, norm(sum) * weight2
};

// The rows of the operands that belong together.
struct chain_row {
    float * dst, * sum;
    const float * src, * weight, * other, * weight2;
    char * values, * meta;
};

STRATA_DEVICE chain_row find_row(const norm_chain_args & a, uint32_t row) {
    const uint32_t rest = quotient(row, a.ne1), i1 = remainder(row, rest, a.ne1);
    const uint32_t i3 = quotient(rest, a.ne2), i2 = remainder(rest, i3, a.ne2);
    const auto at = [&](const row_operand & o) {
        return reinterpret_cast<float *>(static_cast<char *>(o.data) + (i1 * o.stride[0] + i2 * o.stride[1] + i3 * o.stride[2]));
    };
    const uint64_t first = static_cast<uint64_t>(row) * a.row;
    return {at(a.dst), at(a.sum), at(a.src), at(a.weight), at(a.other), at(a.weight2), static_cast<char *>(a.values) + first,
            static_cast<char *>(a.meta) + first / 32 * sizeof(q8_1_meta)};
}

// Two of a kind in one launch: the second one's rows are `other` and `sum`.
STRATA_DEVICE void choose_of_pair(chain_row & at) {
    if (block_y() != 0) {
        at.src = at.other;
        at.dst = at.sum;
    }
}

// The result, elements e .. e+3.
template <bool Fours>
STRATA_DEVICE void finish(const norm_chain_args & a, const chain_row & at, uint32_t e, float4v v) {
    store_part<Fours>(at.dst, e, a.row, v);
    if constexpr (Fours) {
        if (a.values && e < a.row) {
            store_q8_1(at.values, at.meta, e, v);
        }
    }
}

// Elements e .. e+3 of what the first norm is taken of.
template <chain Chain, bool Fours>
STRATA_DEVICE float4v input(const norm_chain_args & a, const chain_row & at, uint32_t e) {
    float4v v = load_part<Fours>(at.src, e, a.row);
    if constexpr (Chain == chain::of_sum) {
        v += load_part<Fours>(at.other, e, a.row);
        store_part<Fours>(at.sum, e, a.row, v);
    }
    return v;
}

template <chain Chain>
constexpr bool has_weight = Chain != chain::scale;
/// Whether `other` is read behind the norm.
template <chain Chain>
constexpr bool has_other = Chain == chain::mul_add || Chain == chain::twice || Chain == chain::mul_silu || Chain == chain::mul_sigmoid;

// What becomes of normalized elements e .. e+3.
template <chain Chain>
STRATA_DEVICE float4v output(const norm_chain_args & a, float4v v, float4v weight, float4v other) {
    if constexpr (Chain == chain::scale) {
        for (uint32_t i = 0; i < 4; i++) {
            v[i] = fma(v[i], a.scale, a.bias);
        }
        return v;
    }
    v *= weight;
    if constexpr (Chain == chain::mul_add || Chain == chain::twice) {
        v += other;
    } else if constexpr (Chain == chain::mul_silu) {
        for (uint32_t i = 0; i < 4; i++) {
            v[i] *= silu(other[i]);
        }
    } else if constexpr (Chain == chain::mul_sigmoid) {
        for (uint32_t i = 0; i < 4; i++) {
            v[i] *= sigmoid(other[i]);
        }
    }
    return v;
}

// Has the arguments read that are needed until the row is stored.
template <chain Chain>
STRATA_DEVICE void read_arguments(const norm_chain_args & a) {
    const auto read = [](const row_operand & o) { read_together(o.data, o.stride[0], o.stride[1], o.stride[2]); };
    read_together(a.row, a.rows, a.ne1.divisor, a.ne1.magic, a.ne1.shift, a.ne2.divisor, a.ne2.magic, a.ne2.shift, a.eps, a.values);
    read(a.src);
    read(a.dst);
    if constexpr (Chain == chain::scale) {
        read_together(a.scale, a.bias);
    } else {
        read(a.weight);
    }
    if constexpr (Chain != chain::mul) {
        read(a.other);
    }
    if constexpr (Chain == chain::scale || Chain == chain::of_sum || Chain == chain::twice) {
        read(a.sum);
    }
}

// A row of at most Steps * Step elements, of which a lane has `first` .. + 3 and so on every Step. Kept in registers, and whatever else is read
// is asked for before the sum is known. total(squares, which): the sum of all lanes' for the first norm or the second.
template <chain Chain, bool Fours, uint32_t Steps, uint32_t Step, class Total>
STRATA_DEVICE void chain_in_registers(const norm_chain_args & a, const chain_row & at, uint32_t first, Total total) {
    float4v values[Steps], weights[Steps], others[Steps];
    float4v sums = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (uint32_t k = 0; k < Steps; k++) {
        if (k * Step >= a.row) {
            break;
        }
        const uint32_t e = first + k * Step;
        values[k] = load_part<Fours>(at.src, e, a.row);
        if constexpr (has_other<Chain> || Chain == chain::of_sum) {
            others[k] = load_part<Fours>(at.other, e, a.row);
        }
        if constexpr (has_weight<Chain>) {
            weights[k] = load_part<Fours>(at.weight, e, a.row);
        }
    }
#pragma unroll
    for (uint32_t k = 0; k < Steps; k++) {
        if (k * Step >= a.row) {
            break;
        }
        if constexpr (Chain == chain::of_sum) {
            values[k] += others[k];
            store_part<Fours>(at.sum, first + k * Step, a.row, values[k]);
        }
        add_squares(sums, values[k]);
    }
    const float scale = rms_scale(total(lane_total(sums), 0), a.row, a.eps);
    sums = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (uint32_t k = 0; k < Steps; k++) {
        if (k * Step >= a.row) {
            break;
        }
        const uint32_t e = first + k * Step;
        const float4v v = output<Chain>(a, values[k] * scale, weights[k], others[k]);
        if constexpr (Chain == chain::twice) {
            weights[k] = load_part<Fours>(at.weight2, e, a.row);
            store_part<Fours>(at.sum, e, a.row, v);
            values[k] = v;
            add_squares(sums, v);
        } else {
            finish<Fours>(a, at, e, v);
        }
    }
    if constexpr (Chain == chain::twice) {
        const float scale2 = rms_scale(total(lane_total(sums), 1), a.row, a.eps2);
#pragma unroll
        for (uint32_t k = 0; k < Steps; k++) {
            if (k * Step >= a.row) {
                break;
            }
            finish<Fours>(a, at, first + k * Step, values[k] * scale2 * weights[k]);
        }
    }
}

// A wave a row: at most norm_wave_row elements.
template <chain Chain, bool Fours>
STRATA_DEVICE void chain_in_wave(const norm_chain_args & a) {
    const uint32_t row = uniform(block_x() * norm_waves + thread_x() / wave_size);
    read_arguments<Chain>(a);
    if (row >= a.rows) {
        return;
    }
    chain_row at = find_row(a, row);
    if constexpr (Chain == chain::scale) {
        choose_of_pair(at);
    }
    chain_in_registers<Chain, Fours, norm_wave_steps, wave_step>(a, at, 4 * lane_id(), [](float squares, uint32_t) { return wave_sum(squares); });
}

// A workgroup a row: any length. A long row is read once for each norm and once more; what a work-item has written it reads again itself.
template <chain Chain, bool Fours>
STRATA_DEVICE void chain_in_block(const norm_chain_args & a, float * parts) {
    read_arguments<Chain>(a);
    chain_row at = find_row(a, block_x());
    if constexpr (Chain == chain::scale) {
        choose_of_pair(at);
    }
    const uint32_t first = 4 * thread_x();
    if (a.row <= block_steps * block_step) {
        chain_in_registers<Chain, Fours, block_steps, block_step>(
            a, at, first, [&](float squares, uint32_t which) { return block_sum<norm_waves>(squares, parts + which * norm_waves); });
        return;
    }
    float4v sums = {0.0f, 0.0f, 0.0f, 0.0f};
    for (uint32_t e = first; e < a.row; e += block_step) {
        add_squares(sums, input<Chain, Fours>(a, at, e));
    }
    const float scale = rms_scale(block_sum<norm_waves>(lane_total(sums), parts), a.row, a.eps);
    const float * const source = Chain == chain::of_sum ? at.sum : at.src;
    sums = {0.0f, 0.0f, 0.0f, 0.0f};
    for (uint32_t e = first; e < a.row; e += block_step) {
        float4v weight = {}, other = {};
        if constexpr (has_weight<Chain>) {
            weight = load_part<Fours>(at.weight, e, a.row);
        }
        if constexpr (has_other<Chain>) {
            other = load_part<Fours>(at.other, e, a.row);
        }
        const float4v v = output<Chain>(a, load_part<Fours>(source, e, a.row) * scale, weight, other);
        if constexpr (Chain == chain::twice) {
            store_part<Fours>(at.sum, e, a.row, v);
            add_squares(sums, v);
        } else {
            finish<Fours>(a, at, e, v);
        }
    }
    if constexpr (Chain == chain::twice) {
        const float scale2 = rms_scale(block_sum<norm_waves>(lane_total(sums), parts + norm_waves), a.row, a.eps2);
        for (uint32_t e = first; e < a.row; e += block_step) {
            const float4v v = load_part<Fours>(at.sum, e, a.row) * scale2;
            finish<Fours>(a, at, e, v * load_part<Fours>(at.weight2, e, a.row));
        }
    }
}

}  // namespace strata

using namespace strata;

// The kernels with 4 at the end of their names take rows of a multiple of four elements.
#define NORM_CHAIN(name)                                                                                               \
    STRATA_KERNEL(norm_block) void norm_##name##_wave(norm_chain_args a) { chain_in_wave<chain::name, false>(a); }     \
    STRATA_KERNEL(norm_block) void norm_##name##_wave4(norm_chain_args a) { chain_in_wave<chain::name, true>(a); }     \
    STRATA_KERNEL(norm_block) void norm_##name##_row(norm_chain_args a) {                                              \
        __shared__ float parts[2 * norm_waves];                                                                        \
        chain_in_block<chain::name, false>(a, parts);                                                                  \
    }                                                                                                                  \
    STRATA_KERNEL(norm_block) void norm_##name##_row4(norm_chain_args a) {                                             \
        __shared__ float parts[2 * norm_waves];                                                                        \
        chain_in_block<chain::name, true>(a, parts);                                                                   \
    }

NORM_CHAIN(mul)
NORM_CHAIN(scale)
NORM_CHAIN(mul_add)
NORM_CHAIN(mul_silu)
NORM_CHAIN(mul_sigmoid)
NORM_CHAIN(of_sum)
NORM_CHAIN(twice)
