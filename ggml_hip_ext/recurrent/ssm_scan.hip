// SSM_SCAN: s = decay s + dt x B, y = C s, with dt = softplus of the given one and decay = e^(dt A). A column is one element of a head; the
// groups of heads that share B and C are the heads of the recurrence, and a scalar belongs to the columns of one head.
#include "strata/recurrence.h"

namespace strata {

/// Each: A and with it the decay is another for each element of a column (Mamba-1), not one number a head (Mamba-2).
template <bool Each>
struct scan_rule {
    static constexpr uint32_t rows = 2;  // B, C
    static constexpr uint32_t numbers = 2;
    static constexpr bool scattered = false;
    static constexpr bool has_constants = Each;

    STRATA_DEVICE float4v prepare(uint32_t, float4v x) { return x; }

    STRATA_DEVICE uint32_t constants_offset(const recurrence_args & a, uint32_t column) { return quotient(column, a.columns_a_scalar) * a.length * 4; }

    template <class Scalar>
    STRATA_DEVICE float4v read(const recurrence_args & a, uint32_t column, float x, Scalar scalar, const char * decays) {
        const uint32_t head = quotient(column, a.columns_a_scalar);
        return {x, scalar(0, head), Each ? 0.0f : load<float>(decays, head * 4), 0.0f};
    }

    STRATA_DEVICE void stage(float4v given, float (&staged)[numbers]) {
        const float dt = softplus(given[1]);
        staged[0] = given[0] * dt;
        staged[1] = Each ? dt : exp(dt * given[2]);
    }

    template <uint32_t Lanes, class Part, class Row, class Number>
    STRATA_DEVICE float step(Part & state, Row row, Number number, const Part & decays) {
        if constexpr (Each) {
            state = state * exp(decays * number(1));
        } else {
            state = state * number(1);
        }
        state = fma(row(0), number(0), state);
        return dot<Lanes>(state, row(1));
    }
};

}  // namespace strata

using namespace strata;

// The number in a name is the longest column.
STRATA_KERNEL(recurrence_block) void ssm_scan_32(recurrence_args a) { recurrence<scan_rule<false>, 8, 1>(a); }
STRATA_KERNEL(recurrence_block) void ssm_scan_64(recurrence_args a) { recurrence<scan_rule<false>, 8, 2>(a); }
STRATA_KERNEL(recurrence_block) void ssm_scan_128(recurrence_args a) { recurrence<scan_rule<false>, 8, 4>(a); }
STRATA_KERNEL(recurrence_block) void ssm_scan_256(recurrence_args a) { recurrence<scan_rule<false>, 8, 8>(a); }
STRATA_KERNEL(recurrence_block) void ssm_scan_each_16(recurrence_args a) { recurrence<scan_rule<true>, 4, 1>(a); }
STRATA_KERNEL(recurrence_block) void ssm_scan_each_128(recurrence_args a) { recurrence<scan_rule<true>, 8, 4>(a); }
STRATA_KERNEL(recurrence_block) void ssm_scan_each_256(recurrence_args a) { recurrence<scan_rule<true>, 8, 8>(a); }
