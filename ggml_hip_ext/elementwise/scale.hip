// SCALE: x * scale + bias, rounded once.
#include "pointwise.h"

namespace strata {

// Parameters: scale, bias.
template <class T>
STRATA_DEVICE typename T::storage scaled(const pointwise_args & args, typename T::storage x, uint32_t) {
    return T::from_float(fma(T::to_float(x), args.params[0], args.params[1]));
}

}  // namespace strata

using namespace strata;

STRATA_POINTWISE(scale_f32, f32, f32, no_operand, scaled<f32>)
STRATA_POINTWISE(scale_f16, f16, f16, no_operand, scaled<f16>)
STRATA_POINTWISE(scale_bf16, bf16, bf16, no_operand, scaled<bf16>)
