// ADD, SUB, MUL, DIV: computed in f32, rounded to the type of the first operand.
#include "pointwise.h"

namespace strata {

template <class A, class B>
struct arithmetic {
    using a_type = typename A::storage;
    using b_type = typename B::storage;
    static __attribute__((device)) a_type add(const pointwise_args &, a_type a, b_type b) {
        return A::from_float(A::to_float(a) + B::to_float(b));
    }
    static __attribute__((device)) a_type sub(const pointwise_args &, a_type a, b_type b) {
        return A::from_float(A::to_float(a) - B::to_float(b));
    }
    static __attribute__((device)) a_type mul(const pointwise_args &, a_type a, b_type b) {
        return A::from_float(A::to_float(a) * B::to_float(b));
    }
    static __attribute__((device)) a_type div(const pointwise_args &, a_type a, b_type b) {
        return A::from_float(A::to_float(a) / B::to_float(b));
    }
};

}  // namespace strata

using namespace strata;

#define BINARY(suffix, A, B)                                              \
    STRATA_POINTWISE(add_##suffix, A, A, B, (arithmetic<A, B>::add))      \
    STRATA_POINTWISE(sub_##suffix, A, A, B, (arithmetic<A, B>::sub))      \
    STRATA_POINTWISE(mul_##suffix, A, A, B, (arithmetic<A, B>::mul))      \
    STRATA_POINTWISE(div_##suffix, A, A, B, (arithmetic<A, B>::div))

BINARY(f32_f32, f32, f32)
BINARY(f16_f16, f16, f16)
BINARY(f16_f32, f16, f32)
BINARY(bf16_bf16, bf16, bf16)
BINARY(bf16_f32, bf16, f32)
