// What the shared expert adds to a token: its output times the sigmoid of one product, and the sums behind it. The product is summed as
// mul_mat_vec_f does it, by one wave; products and sums round apart.
#include "../matvec/mul_mat_vec_f.h"
#include "expert_sum.h"
#include "strata/math.h"

namespace strata {

/// A workgroup a token, which reads all it needs before it writes: the result may lie where any operand of the same token does.
template <bool Fours>
STRATA_DEVICE void gate_shared_expert(const shared_gate_args & a, float & gate) {
    constexpr uint32_t step = 4 * shared_gate_block, steps = shared_gate_columns / step;
    const uint32_t token = block_x(), first = 4 * thread_x();
    const auto row = [&](const void * rows, uint64_t stride) {
        return reinterpret_cast<const float *>(static_cast<const char *>(rows) + token * stride);
    };
    if (thread_x() < wave_size) {
        const float value = sigmoid(wave_sum(multiply_row<f32, f32>(static_cast<const char *>(a.gate),
                                                                    reinterpret_cast<const char *>(row(a.x, a.x_stride)), a.length)));
        if (lane_id() == 0) {
            gate = value;
        }
    }
    float4v shared[steps], routed[steps], residual[steps];
#pragma unroll
    for (uint32_t i = 0; i < steps; ++i) {
        if (i * step < a.columns) {
            const uint32_t e = first + i * step;
            shared[i] = load_part<Fours>(row(a.shared, a.shared_stride), e, a.columns);
            routed[i] = a.experts.experts ? sum_of_experts<Fours>(a.experts, token, e, a.columns)
                                          : load_part<Fours>(row(a.routed, a.routed_stride), e, a.columns);
            if (a.residual) {
                residual[i] = load_part<Fours>(row(a.residual, a.residual_stride), e, a.columns);
            }
        }
    }
    barrier();
    const float factor = gate;
#pragma unroll
    for (uint32_t i = 0; i < steps; ++i) {
        if (i * step < a.columns) {
            float4v sum = shared[i] * factor + routed[i];
            if (a.residual) {
                sum += residual[i];
            }
            store_part<Fours>(a.dst + static_cast<uint64_t>(token) * a.columns, first + i * step, a.columns, sum);
        }
    }
}

}  // namespace strata

using namespace strata;

// The one with 4 at the end of its name takes rows of a multiple of four columns.
STRATA_KERNEL(shared_gate_block) void shared_gate(shared_gate_args a) {
    __shared__ float gate;
    gate_shared_expert<false>(a, gate);
}
STRATA_KERNEL(shared_gate_block) void shared_gate4(shared_gate_args a) {
    __shared__ float gate;
    gate_shared_expert<true>(a, gate);
}
