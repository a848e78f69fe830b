// The rule of a gated delta net: S = decay S + k (beta (v - k S))^T, result S^T q. Memory holds S transposed, a column after the other.
#pragma once

#include "strata/recurrence.h"

namespace strata {

/// Vectors q, k and, where each element has a decay of its own (KDA), the decay; otherwise the decay is a number.
template <bool Kda>
struct delta_rule {
    static constexpr uint32_t rows = Kda ? 3 : 2;
    static constexpr uint32_t numbers = Kda ? 2 : 3;
    static constexpr bool scattered = false;
    static constexpr bool has_constants = false;

    STRATA_DEVICE float4v prepare(uint32_t r, float4v x) { return r == 2 ? exp(x) : x; }

    template <class Scalar>
    STRATA_DEVICE float4v read(const recurrence_args &, uint32_t, float v, Scalar scalar, const char *) {
        return {v, scalar(1, 0), Kda ? 0.0f : scalar(0, 0), 0.0f};
    }

    STRATA_DEVICE void stage(float4v given, float (&staged)[numbers]) {
        staged[0] = given[0];
        staged[1] = given[1];
        if constexpr (!Kda) {
            staged[2] = exp(given[2]);
        }
    }

    template <uint32_t Lanes, class Part, class Row, class Number>
    STRATA_DEVICE float step(Part & state, Row row, Number number, const Part &) {
        if constexpr (Kda) {
            state = state * row(2);
        } else {
            state = state * number(2);
        }
        const Part k = row(1);
        const float delta = (number(0) - dot<Lanes>(state, k)) * number(1);
        state = fma(k, delta, state);
        return dot<Lanes>(state, row(0));
    }
};

}  // namespace strata
