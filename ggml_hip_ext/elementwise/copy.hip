// Copies between tensors of the same shape: bits moved, or numbers converted.
#include "pointwise.h"

namespace strata {

template <class T>
STRATA_DEVICE typename T::storage moved(const pointwise_args &, typename T::storage x, uint32_t) {
    return x;
}

template <class D, class S>
STRATA_DEVICE typename D::storage converted(const pointwise_args &, typename S::storage x, uint32_t) {
    return D::from_float(S::to_float(x));
}

}  // namespace strata

using namespace strata;

STRATA_POINTWISE(copy_bits16, bits16, bits16, no_operand, moved<bits16>)
STRATA_POINTWISE(copy_bits32, bits32, bits32, no_operand, moved<bits32>)

#define CONVERT(source, destination) \
    STRATA_POINTWISE(copy_##source##_##destination, destination, source, no_operand, (converted<destination, source>))

CONVERT(f32, f16)
CONVERT(f32, bf16)
CONVERT(f32, i32)
CONVERT(f16, f32)
CONVERT(f16, bf16)
CONVERT(bf16, f32)
CONVERT(bf16, f16)
CONVERT(i32, f32)
