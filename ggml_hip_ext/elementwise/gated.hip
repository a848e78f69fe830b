// An activation of the first operand times the second, where that is not a gated unit of ggml's (see glu.hip).
#include "pointwise.h"

namespace strata {

STRATA_DEVICE float sigmoid_times(const pointwise_args &, float gate, float x) { return x * sigmoid(gate); }
STRATA_DEVICE float softplus_times(const pointwise_args &, float gate, float x) { return x * softplus(gate); }
STRATA_DEVICE float silu_times(const pointwise_args &, float gate, float x) { return x * silu(gate); }

}  // namespace strata

using namespace strata;

STRATA_POINTWISE(sigmoid_mul, f32, f32, f32, sigmoid_times)
STRATA_POINTWISE(softplus_mul, f32, f32, f32, softplus_times)
STRATA_POINTWISE(silu_mul, f32, f32, f32, silu_times)
