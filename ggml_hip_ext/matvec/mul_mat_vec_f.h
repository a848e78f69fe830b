// Rows of f32, f16 or bf16 weights times columns, accumulated in f32. The order of the additions depends on k alone: a lane adds groups of
// eight in ascending order, then the lanes are added as a butterfly (by the caller).
#pragma once

#include "strata/floats.h"
#include "strata/reduce.h"

namespace strata {

/// What multiply_rows does, `Steps` groups of eight a lane at a time.
template <class Weight, class Activation, uint32_t Lanes, uint32_t Rows, uint32_t Columns>
struct row_product {
    static constexpr uint32_t weight_step = Lanes * 8 * element_size<Weight>, activation_step = Lanes * 8 * element_size<Activation>;
    const char * weights[Rows];
    const char * activations[Columns];
    uint32_t weight_at, activation_at;

    template <uint32_t Steps>
    struct part {
        eight_t<Weight> w[Steps][Rows];
    };

    template <uint32_t Steps>
    __device__ __attribute__((always_inline)) part<Steps> load_weights() {
        part<Steps> p;
#pragma unroll
        for (uint32_t s = 0; s < Steps; ++s) {
#pragma unroll
            for (uint32_t r = 0; r < Rows; ++r) {
                p.w[s][r] = load_eight<Weight>(weights[r], weight_at, s * weight_step);
            }
        }
        weight_at += Steps * weight_step;
        return p;
    }

    /// `between` is called when the activations have been asked for.
    template <uint32_t Steps, uint32_t Results, class Between>
    __device__ __attribute__((always_inline)) void add(const part<Steps> & p, float (&sums)[Results], const Between & between) {
#pragma unroll
        for (uint32_t s = 0; s < Steps; ++s) {
            eight_t<Activation> x[Columns];
#pragma unroll
            for (uint32_t c = 0; c < Columns; ++c) {
                x[c] = load_eight<Activation>(activations[c], activation_at, s * activation_step);
            }
            if (s + 1 == Steps) {
                between();
            }
#pragma unroll
            for (uint32_t c = 0; c < Columns; ++c) {
#pragma unroll
                for (uint32_t r = 0; r < Rows; ++r) {
#pragma unroll
                    for (uint32_t i = 0; i < 8; ++i) {
                        float & sum = sums[c * Rows + r];
                        sum = __builtin_fmaf(Weight::to_float(p.w[s][r][i]), Activation::to_float(x[c][i]), sum);
                    }
                }
            }
        }
        activation_at += Steps * activation_step;
    }

    template <uint32_t Steps, uint32_t Results>
    __device__ __attribute__((always_inline)) void step(float (&sums)[Results]) {
        add<Steps>(load_weights<Steps>(), sums, [] {});
    }
};

/// sums[c * Rows + r] becomes the part of lane `lane`, of `Lanes` that share rows, of row r times column c. Row r begins `row_at` bytes after
/// weights[r], column c lies c * column_stride bytes after `activations`; the pointers are the same in all lanes. Steps: most groups of eight a
/// lane whose weights are asked for at once, a power of two; fewer take fewer registers, and give the same bits.
template <class Weight, class Activation, uint32_t Lanes, uint32_t Rows, uint32_t Columns, uint32_t Steps = 8, uint32_t Results>
STRATA_DEVICE void multiply_rows(const char * const (&weights)[Rows], uint32_t row_at, const char * activations, uint32_t column_stride,
                                 uint32_t length, uint32_t lane, float (&sums)[Results]) {
    row_product<Weight, Activation, Lanes, Rows, Columns> p;
#pragma unroll
    for (uint32_t r = 0; r < Rows; ++r) {
        p.weights[r] = weights[r];
    }
#pragma unroll
    for (uint32_t c = 0; c < Columns; ++c) {
        p.activations[c] = activations + static_cast<uint64_t>(c) * column_stride;
    }
    p.weight_at = row_at + lane * 8 * element_size<Weight>;
    p.activation_at = lane * 8 * element_size<Activation>;
    uint32_t eights = length / 8;
    // Weights come from far. Where the columns leave registers, those of many steps are asked for at once; else those of the next steps are
    // on their way while some are multiplied.
    constexpr uint32_t results = Rows * Columns, most = Columns == 1 ? 8 : results <= 2 ? 4 : results <= 4 ? 2 : 1;
    constexpr uint32_t steps = Steps < most ? Steps : most;
    if constexpr (results <= 2) {
        for (; eights >= steps * Lanes; eights -= steps * Lanes) {
            p.template step<steps>(sums);
        }
    } else if (eights >= steps * Lanes) {
        auto next = p.template load_weights<steps>();
        for (; eights >= 2 * steps * Lanes; eights -= steps * Lanes) {
            const auto now = next;
            p.template add<steps>(now, sums, [&] { next = p.template load_weights<steps>(); });
        }
        p.template add<steps>(next, sums, [] {});
        eights -= steps * Lanes;
    }
    if (steps > 4 && eights >= 4 * Lanes) {
        p.template step<4>(sums);
        eights -= 4 * Lanes;
    }
    if (steps > 2 && eights >= 2 * Lanes) {
        p.template step<2>(sums);
        eights -= 2 * Lanes;
    }
    if (steps > 1 && eights >= Lanes) {
        p.template step<1>(sums);
        eights -= Lanes;
    }
    if (lane < eights) {
        p.template step<1>(sums);
    }
    const uint32_t k = length / 8 * 8 + lane;   // one value a lane for the rest
    if (length % 8 != 0 && k < length) {
#pragma unroll
        for (uint32_t r = 0; r < Rows; ++r) {
            const float w = load_float<Weight>(weights[r], row_at + k * element_size<Weight>);
#pragma unroll
            for (uint32_t c = 0; c < Columns; ++c) {
                float & sum = sums[c * Rows + r];
                sum = __builtin_fmaf(w, load_float<Activation>(p.activations[c], k * element_size<Activation>), sum);
            }
        }
    }
}

/// One row times one column by a whole wave: this lane's part.
template <class Weight, class Activation, uint32_t Steps = 8>
STRATA_DEVICE float multiply_row(const char * weights, const char * activations, uint32_t length) {
    const char * const rows[1] = {weights};
    float sums[1] = {};
    multiply_rows<Weight, Activation, wave_size, 1, 1, Steps>(rows, 0, activations, 0, length, lane_id(), sums);
    return sums[0];
}

}  // namespace strata
