// Functions of one argument: ggml's unary ops, SQR, SQRT, SIN, COS, LOG, CLAMP, LEAKY_RELU. Computed in f32.
#include "pointwise.h"

namespace strata {

/// Wraps a float function with parameters as a function of stored elements.
template <class T, float (*Function)(const pointwise_args &, float)>
STRATA_DEVICE typename T::storage of_stored(const pointwise_args & args, typename T::storage x, uint32_t) {
    return T::from_float(Function(args, T::to_float(x)));
}

#define FUNCTION(name) STRATA_DEVICE float name(const pointwise_args & args [[maybe_unused]], float x)

namespace unary {

FUNCTION(abs) { return strata::abs(x); }
FUNCTION(sgn) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f; }
FUNCTION(neg) { return -x; }
FUNCTION(step) { return x > 0.0f ? 1.0f : 0.0f; }
FUNCTION(tanh) { return strata::tanh(x); }
FUNCTION(elu) { return x > 0.0f ? x : expm1(x); }
FUNCTION(relu) { return x > 0.0f ? x : 0.0f; }
FUNCTION(sigmoid) { return strata::sigmoid(x); }
FUNCTION(gelu) { return strata::gelu(x); }
FUNCTION(gelu_quick) { return strata::gelu_quick(x); }
FUNCTION(gelu_erf) { return strata::gelu_erf(x); }
FUNCTION(silu) { return strata::silu(x); }
FUNCTION(hardsigmoid) { return min(1.0f, max(0.0f, (x + 3.0f) / 6.0f)); }
FUNCTION(hardswish) { return x * min(1.0f, max(0.0f, (x + 3.0f) / 6.0f)); }
FUNCTION(exp) { return strata::exp(x); }
FUNCTION(expm1) { return strata::expm1(x); }
FUNCTION(softplus) { return strata::softplus(x); }
FUNCTION(floor) { return strata::floor(x); }
FUNCTION(ceil) { return strata::ceil(x); }
FUNCTION(round) { return strata::round(x); }
FUNCTION(trunc) { return strata::trunc(x); }
FUNCTION(sqr) { return x * x; }
FUNCTION(sqrt) { return strata::sqrt(x); }
FUNCTION(sin) { return strata::sin(x); }
FUNCTION(cos) { return strata::cos(x); }
FUNCTION(log) { return strata::log(x); }
// Parameters: lower and upper bound.
FUNCTION(clamp) { return min(max(x, args.params[0]), args.params[1]); }
// Parameters: alpha_n, alpha_p, beta, eps.
FUNCTION(xielu) {
    const float positive = args.params[1] * x * x + args.params[2] * x;
    const float negative = (strata::expm1(min(x, args.params[3])) - x) * args.params[0] + args.params[2] * x;
    return x > 0.0f ? positive : negative;
}
// Parameter: slope of the negative side.
FUNCTION(leaky_relu) { return x > 0.0f ? x : x < 0.0f ? args.params[0] * x : 0.0f; }

}  // namespace unary
}  // namespace strata

using namespace strata;

#define UNARY_OF(name, type) STRATA_POINTWISE(name##_##type, type, type, no_operand, (of_stored<type, unary::name>))
#define UNARY(name) UNARY_OF(name, f32) UNARY_OF(name, f16) UNARY_OF(name, bf16)

UNARY(abs)
UNARY(sgn)
UNARY(neg)
UNARY(step)
UNARY(tanh)
UNARY(elu)
UNARY(relu)
UNARY(sigmoid)
UNARY(gelu)
UNARY(gelu_quick)
UNARY(gelu_erf)
UNARY(silu)
UNARY(hardsigmoid)
UNARY(hardswish)
UNARY(exp)
UNARY(expm1)
UNARY(softplus)
UNARY(floor)
UNARY(ceil)
UNARY(round)
UNARY(trunc)
UNARY(sqr)
UNARY(sqrt)
UNARY(sin)
UNARY(cos)
UNARY(log)
UNARY(clamp)
UNARY(leaky_relu)
UNARY(xielu)
