// An activation of the first operand times the second, where that is not a gated unit of ggml's (see glu.hip); SILU of a scaled operand.
#include "pointwise.h"
#include "strata/args/gate_rows.h"
#include "strata/q8_1.h"

namespace strata {

STRATA_DEVICE float sigmoid_times(const pointwise_args &, float gate, float x) { return x * sigmoid(gate); }
STRATA_DEVICE float softplus_times(const pointwise_args &, float gate, float x) { return x * softplus(gate); }
STRATA_DEVICE float silu_of_scaled(const pointwise_args & args, float x, uint32_t) { return silu(fma(x, args.params[0], args.params[1])); }
STRATA_DEVICE float silu_times(const pointwise_args &, float gate, float x) { return x * silu(gate); }

}  // namespace strata

using namespace strata;

STRATA_POINTWISE(sigmoid_mul, f32, f32, f32, sigmoid_times)
STRATA_POINTWISE(softplus_mul, f32, f32, f32, softplus_times)
STRATA_POINTWISE(silu_mul, f32, f32, f32, silu_times)
STRATA_POINTWISE(scale_silu, f32, f32, no_operand, silu_of_scaled)

/// Grid: groups of 4 * gate_rows_block numbers, tokens.
STRATA_KERNEL(gate_rows_block) void sigmoid_mul_q8_1(gate_rows_args a) {
    const uint32_t quad = block_x() * gate_rows_block + thread_x(), e = 4 * quad, token = block_y();
    if (e >= a.row) {   // whole 32-blocks: the row is a multiple of 32
        return;
    }
    const uint32_t head = quotient(quad, a.head_quads), within = remainder(quad, head, a.head_quads);
    const uint64_t first = static_cast<uint64_t>(token) * a.row;
    const char * const gates = static_cast<const char *>(a.gate) + (head * a.head_stride + token * a.token_stride);
    const float4v gate = load<float4v>(gates, within * 16);
    float4v v = load<float4v>(a.x + first, e * sizeof(float));
    for (uint32_t i = 0; i < 4; i++) {
        v[i] *= sigmoid(gate[i]);
    }
    store(a.dst + first, e * sizeof(float), v);
    store_q8_1(static_cast<char *>(a.values) + first, static_cast<char *>(a.meta) + first / 32 * sizeof(q8_1_meta), e, v);
}
