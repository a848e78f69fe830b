// RWKV_WKV6, RWKV_WKV7 and GATED_LINEAR_ATTN: states that decay element by element and take in the product of a key and a value.
#include "strata/recurrence.h"

namespace strata {

/// What the three have in common: a value is a column's number, and vectors are taken as they are.
template <uint32_t Rows, bool Scattered, bool HasConstants>
struct value_rule {
    static constexpr uint32_t rows = Rows;
    static constexpr uint32_t numbers = 1;
    static constexpr bool scattered = Scattered;
    static constexpr bool has_constants = HasConstants;

    STRATA_DEVICE float4v prepare(uint32_t, float4v x) { return x; }

    STRATA_DEVICE uint32_t constants_offset(const recurrence_args &, uint32_t) { return 0; }

    template <class Scalar>
    STRATA_DEVICE float4v read(const recurrence_args &, uint32_t, float v, Scalar, const char *) {
        return {v, 0.0f, 0.0f, 0.0f};
    }

    STRATA_DEVICE void stage(float4v given, float (&staged)[1]) { staged[0] = given[0]; }
};

/// Vectors: key, receptance, decay. The token's own product goes into the result with a bonus instead of the decay.
struct rwkv6_rule : value_rule<3, true, true> {
    template <uint32_t Lanes, class Part, class Row, class Number>
    STRATA_DEVICE float step(Part & state, Row row, Number number, const Part & bonus) {
        const Part product = row(0) * number(0);
        const float result = dot<Lanes>(fma(product, bonus, state), row(1));
        state = fma(state, row(2), product);
        return result;
    }
};

/// Vectors: receptance, decay, key, a, b. The state also takes in b times its scalar product with a.
struct rwkv7_rule : value_rule<5, false, false> {
    template <uint32_t Lanes, class Part, class Row, class Number>
    STRATA_DEVICE float step(Part & state, Row row, Number number, const Part &) {
        const float along_a = dot<Lanes>(state, row(3));
        state = fma(row(4), along_a, fma(state, row(1), row(2) * number(0)));
        return dot<Lanes>(state, row(0));
    }
};

/// Vectors: key, query, gate.
struct gated_linear_rule : value_rule<3, true, false> {
    template <uint32_t Lanes, class Part, class Row, class Number>
    STRATA_DEVICE float step(Part & state, Row row, Number number, const Part &) {
        state = fma(state, row(2), row(0) * number(0));
        return dot<Lanes>(state, row(1));
    }
};

}  // namespace strata

using namespace strata;

// The number in a name is the longest column.
STRATA_KERNEL(recurrence_block) void rwkv6_64(recurrence_args a) { recurrence<rwkv6_rule, 8, 2>(a); }
STRATA_KERNEL(recurrence_block) void rwkv6_128(recurrence_args a) { recurrence<rwkv6_rule, 8, 4>(a); }
STRATA_KERNEL(recurrence_block) void rwkv7_64(recurrence_args a) { recurrence<rwkv7_rule, 8, 2>(a); }
STRATA_KERNEL(recurrence_block) void rwkv7_128(recurrence_args a) { recurrence<rwkv7_rule, 8, 4>(a); }
STRATA_KERNEL(recurrence_block) void gated_linear_64(recurrence_args a) { recurrence<gated_linear_rule, 8, 2>(a); }
STRATA_KERNEL(recurrence_block) void gated_linear_128(recurrence_args a) { recurrence<gated_linear_rule, 8, 4>(a); }
