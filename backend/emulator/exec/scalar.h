// Operands of scalar operations, and the macros that make their handlers.
#pragma once

#include "lanes.h"

namespace strata::emulator::STRATA_ISA {

/// Scalar source k (0 or 1): a slot XOR a constant; one of the two is zero.
template <class T> static STRATA_INLINE T read(const wave * w, const inst * i, int k) {
    const uint64_t constant = k == 0 ? i->imm : i->imm1;
    if constexpr (sizeof(T) == 8) {
        uint64_t x;
        std::memcpy(&x, &w->s[i->src[k]], 8);
        return __builtin_bit_cast(T, x ^ constant);
    } else {
        return __builtin_bit_cast(T, w->s[i->src[k]] ^ uint32_t(constant));
    }
}
template <class T> static STRATA_INLINE T read_slot(const wave * w, int slot) {
    T x;
    std::memcpy(&x, &w->s[slot], sizeof x);
    return x;
}
template <class T> static STRATA_INLINE void write_slot(wave * w, int slot, T x) { std::memcpy(&w->s[slot], &x, sizeof x); }

template <class T> constexpr type scalar_type = sizeof(T) == 8 ? (__is_same(T, int64_t) ? type::i64 : type::b64) : type::b32;

// The bodies see a, b, d (the destination, with its old value) and scc, and assign d and scc.
template <class D, class A, class B, auto F> static STRATA_HANDLER(scalar_handler) {
    A a = read<A>(w, i, 0);
    B b = read<B>(w, i, 1);
    D d = read_slot<D>(w, i->dst);
    uint32_t scc = w->s[slot_scc];
    F(d, a, b, scc);
    write_slot(w, i->dst, d);
    w->s[slot_scc] = scc;
    STRATA_NEXT;
}
template <class A, class B, auto F> static STRATA_HANDLER(scalar_compare) {
    w->s[slot_scc] = F(read<A>(w, i, 0), read<B>(w, i, 1));
    STRATA_NEXT;
}

#define STRATA_SCALAR(D, A, B, ...) scalar_handler<D, A, B, []([[maybe_unused]] D & d, [[maybe_unused]] A a, [[maybe_unused]] B b, \
    [[maybe_unused]] uint32_t & scc) __attribute__((always_inline)) { __VA_ARGS__; }>
#define S1(NAME, D, A, ...) {#NAME, form::salu, scalar_type<D>, scalar_type<A>, type::none, type::none, nullptr, \
    STRATA_SCALAR(D, A, uint32_t, __VA_ARGS__), 0}
#define S2(NAME, D, A, B, ...) {#NAME, form::salu, scalar_type<D>, scalar_type<A>, scalar_type<B>, type::none, nullptr, \
    STRATA_SCALAR(D, A, B, __VA_ARGS__), 0}
#define SK(NAME, D, ...) {#NAME, form::salu_k, scalar_type<D>, type::none, type::none, type::none, nullptr, \
    STRATA_SCALAR(D, D, D, __VA_ARGS__), 0}
#define SC(NAME, A, B, ...) {#NAME, form::salu_compare, type::none, scalar_type<A>, scalar_type<B>, type::none, nullptr, \
    scalar_compare<A, B, [](A a, B b) __attribute__((always_inline)) { return uint32_t(__VA_ARGS__); }>, 0}
#define SKC(NAME, A, ...) {#NAME, form::salu_k, type::none, type::none, type::none, type::none, nullptr, \
    scalar_compare<A, A, [](A a, A b) __attribute__((always_inline)) { return uint32_t(__VA_ARGS__); }>, 0}

}  // namespace strata::emulator::STRATA_ISA
