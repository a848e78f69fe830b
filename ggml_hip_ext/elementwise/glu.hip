// Gated linear units: an activation of the first operand times the second. Computed in f32.
#include "pointwise.h"

namespace strata {

template <class T, float (*Function)(const pointwise_args &, float, float)>
STRATA_DEVICE typename T::storage of_stored(const pointwise_args & args, typename T::storage x, typename T::storage gate) {
    return T::from_float(Function(args, T::to_float(x), T::to_float(gate)));
}

#define FUNCTION(name) STRATA_DEVICE float name(const pointwise_args & args [[maybe_unused]], float x, float gate)

namespace glu {

FUNCTION(reglu) { return x > 0.0f ? x * gate : 0.0f; }
FUNCTION(geglu) { return gelu(x) * gate; }
FUNCTION(swiglu) { return silu(x) * gate; }
FUNCTION(geglu_erf) { return gelu_erf(x) * gate; }
FUNCTION(geglu_quick) { return gelu_quick(x) * gate; }
// Parameters: alpha, limit.
FUNCTION(swiglu_oai) {
    const float limit = args.params[1];
    const float bounded = x > limit ? limit : x;
    const float bounded_gate = gate > limit ? limit : gate < -limit ? -limit : gate;
    return bounded * sigmoid(args.params[0] * bounded) * (bounded_gate + 1.0f);
}
// Parameters: unused, limit.
FUNCTION(swiglu_clamp) {
    const float limit = args.params[1];
    const float bounded = x > limit ? limit : x;
    const float bounded_gate = gate > limit ? limit : gate < -limit ? -limit : gate;
    return silu(bounded) * bounded_gate;
}

}  // namespace glu
}  // namespace strata

using namespace strata;

#define GLU_OF(name, type) STRATA_POINTWISE(name##_##type, type, type, type, (of_stored<type, glu::name>))
#define GLU(name) GLU_OF(name, f32) GLU_OF(name, f16) GLU_OF(name, bf16)

GLU(reglu)
GLU(geglu)
GLU(swiglu)
GLU(geglu_erf)
GLU(geglu_quick)
GLU(swiglu_oai)
GLU(swiglu_clamp)
