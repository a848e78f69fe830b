// Gated linear units: an activation of the first operand times the second. Computed in f32.
#include "pointwise.h"
#include "strata/glu.h"

namespace strata {

// Parameters: alpha, limit.
template <class T, glu_kind Kind>
STRATA_DEVICE typename T::storage of_stored(const pointwise_args & args, typename T::storage x, typename T::storage gate) {
    return T::from_float(glu<Kind>(T::to_float(x), T::to_float(gate), args.params[0], args.params[1]));
}

}  // namespace strata

using namespace strata;

#define GLU_OF(name, type) STRATA_POINTWISE(name##_##type, type, type, type, (of_stored<type, glu_kind::name>))
#define GLU(name) GLU_OF(name, f32) GLU_OF(name, f16) GLU_OF(name, bf16)

GLU(reglu)
GLU(geglu)
GLU(swiglu)
GLU(geglu_erf)
GLU(geglu_quick)
GLU(swiglu_oai)
GLU(swiglu_clamp)
