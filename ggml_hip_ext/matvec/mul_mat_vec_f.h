// A row of f32, f16 or bf16 weights times columns, accumulated in f32. The order of the additions depends on k alone: a lane adds groups of
// eight in ascending order, then the lanes are added as a butterfly (by the caller).
#pragma once

#include "strata/floats.h"
#include "strata/reduce.h"

namespace strata {

/// sums[c] becomes the part of lane `lane` of `Lanes` that share a row. The row begins `row_at` bytes after `weights`, column c lies
/// c * column_stride bytes after `activations`; both pointers are the same in all lanes.
template <class Weight, class Activation, uint32_t Columns, uint32_t Lanes>
STRATA_DEVICE void multiply_row(const char * weights, uint32_t row_at, const char * activations, uint32_t column_stride, uint32_t length,
                                uint32_t lane, float (&sums)[Columns]) {
    uint32_t weight_at = row_at + lane * 8 * element_size<Weight>, activation_at = lane * 8 * element_size<Activation>;
    const auto step = [&] {
        const auto w = load_eight<Weight>(weights, weight_at);
#pragma unroll
        for (uint32_t c = 0; c < Columns; ++c) {
            const auto x = load_eight<Activation>(activations + static_cast<uint64_t>(c) * column_stride, activation_at);
#pragma unroll
            for (uint32_t i = 0; i < 8; ++i) {
                sums[c] = __builtin_fmaf(Weight::to_float(w[i]), Activation::to_float(x[i]), sums[c]);
            }
        }
        weight_at += Lanes * 8 * element_size<Weight>;
        activation_at += Lanes * 8 * element_size<Activation>;
    };
    uint32_t eights = length / 8;
    for (; eights >= Lanes; eights -= Lanes) {
        step();
    }
    if (lane < eights) {
        step();
    }
    const uint32_t k = length / 8 * 8 + lane;   // one value a lane for the rest
    if (length % 8 != 0 && k < length) {
        const float w = load_float<Weight>(weights, row_at + k * element_size<Weight>);
#pragma unroll
        for (uint32_t c = 0; c < Columns; ++c) {
            const char * column = activations + static_cast<uint64_t>(c) * column_stride;
            sums[c] = __builtin_fmaf(w, load_float<Activation>(column, k * element_size<Activation>), sums[c]);
        }
    }
}

}  // namespace strata
