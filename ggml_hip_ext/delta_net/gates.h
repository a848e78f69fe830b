// The decay and the update rate of a delta net's heads: two small products of the same activations with what is made of them. Products are
// summed as mul_mat_vec_f does it.
#pragma once

#include "../matvec/mul_mat_vec_f.h"
#include "strata/args/gates.h"
#include "strata/math.h"

namespace strata {

/// A wave has row `row` of alpha and then of beta, which may be past the end. Steps: as of multiply_row.
template <uint32_t Steps>
STRATA_DEVICE void delta_net_gate(const gates_args & a, uint32_t row, uint32_t token) {
    if (row >= 2 * a.heads) {
        return;
    }
    const bool is_beta = row >= a.heads;
    const uint32_t head = is_beta ? row - a.heads : row;
    const char * const weights = is_beta ? static_cast<const char *>(a.beta_rows) + head * a.beta_stride
                                         : static_cast<const char *>(a.alpha_rows) + head * a.alpha_stride;
    const float product = wave_sum(multiply_row<f32, f32, Steps>(weights, static_cast<const char *>(a.x) + token * a.x_stride, a.length));
    if (lane_id() != 0) {
        return;
    }
    const uint64_t at = static_cast<uint64_t>(token) * a.heads + head;
    if (is_beta) {
        a.beta[at] = sigmoid(product);
    } else {
        a.decay[at] = softplus(product + load<float>(a.bias, head * sizeof(float))) * load<float>(a.factor, head * sizeof(float));
    }
}

}  // namespace strata
