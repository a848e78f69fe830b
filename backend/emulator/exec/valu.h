// Handlers of vector operations, made from a lambda over 32 lanes; and the table rows that name them.
#pragma once

#include "operands.h"

namespace strata::emulator::STRATA_ISA {

template <class T> constexpr bool is_float = __is_same(T, F32) || __is_same(T, F64) || __is_same(T, F16) || __is_same(T, S16);

template <class A, class B, class C, bool general>
struct sources {
    template <class T> static STRATA_INLINE auto one(const wave * w, const inst * i, int k) {
        if constexpr (general) return get<T>(w, i, k);
        else return get_row<T>(w, i, k);
    }
    template <class F> static STRATA_INLINE auto call(F f, const wave * w, const inst * i) {
        if constexpr (__is_same(A, None)) return f();
        else if constexpr (__is_same(B, None)) return f(one<A>(w, i, 0));
        else if constexpr (__is_same(C, None)) return f(one<A>(w, i, 0), one<B>(w, i, 1));
        else return f(one<A>(w, i, 0), one<B>(w, i, 1), one<C>(w, i, 2));
    }
};

/// All sources are rows, nothing is modified.
template <class D, class A, class B, class C, auto F> static STRATA_HANDLER(valu_fast) {
    const auto d = sources<A, B, C, false>::call(F, w, i);
    put<D>(w, i->dst, d, w->s[slot_exec]);
    STRATA_NEXT;
}

/// Any source kind, input and output modifiers, DPP. K is the saturating form, used with clamp (integers).
template <class D, class A, class B, class C, auto F, auto K> static STRATA_HANDLER(valu_general) {
    const uint32_t lanes = active(w, i);
    auto d = sources<A, B, C, true>::call(F, w, i);
    if constexpr (!__is_same(decltype(K), decltype(nullptr))) {
        if (i->clamp) d = sources<A, B, C, true>::call(K, w, i);
    }
    if constexpr (is_float<D>) {
        if (i->clamp | i->omod) d = output_modifiers(i, d);
    }
    put<D>(w, i->dst, d, lanes, i->opsel & 8);
    STRATA_NEXT;
}

template <class D, class A, class B, class C, auto F, auto K = nullptr>
constexpr operation make_valu(const char * name, form how, uint8_t flags = 0) {
    if (!__is_same(decltype(K), decltype(nullptr))) flags |= op_int_clamp;
    return {name, how, D::code, A::code, B::code, C::code, valu_fast<D, A, B, C, F>, valu_general<D, A, B, C, F, K>, flags};
}

/// Compares: the result is a lane mask; lanes that are off give 0.
template <class A, class B, auto F, bool general> static STRATA_HANDLER(compare_handler) {
    const uint32_t lanes = active(w, i, general);
    const uint32_t bits = lane_bits(sources<A, B, None, general>::call(F, w, i)) & lanes;
    w->s[i->dst] = bits;
    STRATA_NEXT;
}

template <class A, class B, auto F> constexpr operation make_compare(const char * name, form how) {
    return {name, how, type::mask, A::code, B::code, type::none, compare_handler<A, B, F, false>, compare_handler<A, B, F, true>, 0};
}

/// A result and a lane mask (carry). F(a, b, c, bits&) returns the value and sets the mask of all lanes.
template <class D, class A, class B, class C, auto F, auto K> static STRATA_HANDLER(carry_handler) {
    const uint32_t lanes = active(w, i);
    uint32_t bits = 0;
    const auto a = get<A>(w, i, 0);
    const auto b = get<B>(w, i, 1);
    typename D::v d;
    if constexpr (__is_same(C, None)) d = F(a, b, bits);
    else d = F(a, b, get<C>(w, i, 2), bits);
    if constexpr (!__is_same(decltype(K), decltype(nullptr))) {
        if (i->clamp) d = K(d, bits);
    }
    put<D>(w, i->dst, d, lanes);
    w->s[i->sdst] = bits & lanes;
    STRATA_NEXT;
}

template <class D, class A, class B, class C, auto F, auto K = nullptr> constexpr operation make_carry(const char * name) {
    constexpr uint8_t flags = __is_same(decltype(K), decltype(nullptr)) ? 0 : op_int_clamp;
    return {name, form::valu_vcc, D::code, A::code, B::code, C::code, nullptr, carry_handler<D, A, B, C, F, K>, flags};
}

#define STRATA_FN1(D, A, X) [](A::v a) STRATA_LAMBDA -> D::v { return X; }
#define STRATA_FN2(D, A, B, X) [](A::v a, B::v b) STRATA_LAMBDA -> D::v { return X; }
#define STRATA_FN3(D, A, B, C, X) [](A::v a, B::v b, C::v c) STRATA_LAMBDA -> D::v { return X; }
#define OP1(NAME, D, A, X) make_valu<D, A, None, None, STRATA_FN1(D, A, X)>(#NAME, form::valu)
#define OP2(NAME, D, A, B, X) make_valu<D, A, B, None, STRATA_FN2(D, A, B, X)>(#NAME, form::valu)
#define OP3(NAME, D, A, B, C, X) OP3_AS(NAME, form::valu, D, A, B, C, X)
#define OP3_AS(NAME, HOW, D, A, B, C, X) make_valu<D, A, B, C, STRATA_FN3(D, A, B, C, X)>(#NAME, HOW)
/// The same with a saturating form for clamp.
#define OP2C(NAME, D, A, B, X, K) make_valu<D, A, B, None, STRATA_FN2(D, A, B, X), STRATA_FN2(D, A, B, K)>(#NAME, form::valu)
#define OP3C(NAME, D, A, B, C, X, K) make_valu<D, A, B, C, STRATA_FN3(D, A, B, C, X), STRATA_FN3(D, A, B, C, K)>(#NAME, form::valu)
/// c is the destination.
#define ACC(NAME, D, A, B, X) OP3_AS(NAME, form::valu_acc, D, A, B, D, X)
/// With a lane mask `out` as second result; K(d, bits) saturates.
#define CARRY2(NAME, D, A, B, X, K) make_carry<D, A, B, None, [](A::v a, B::v b, uint32_t & out) STRATA_LAMBDA { return X; }, K>(#NAME)
#define CARRY3(NAME, D, A, B, C, X, K) \
    make_carry<D, A, B, C, [](A::v a, B::v b, C::v c, uint32_t & out) STRATA_LAMBDA { return X; }, K>(#NAME)
#define CMP(NAME, A, B, ...) make_compare<A, B, [](A::v a, B::v b) STRATA_LAMBDA { return __VA_ARGS__; }>("v_cmp_" #NAME, form::compare), \
    make_compare<A, B, [](A::v a, B::v b) STRATA_LAMBDA { return __VA_ARGS__; }>("v_cmpx_" #NAME, form::comparex)

}  // namespace strata::emulator::STRATA_ISA
