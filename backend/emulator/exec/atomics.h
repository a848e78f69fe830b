// What the atomic operations do with the old value and the data, for global memory and LDS alike.
#pragma once

#include "operands.h"

namespace strata::emulator::STRATA_ISA {

// F(old, data, other) is the new value. Compare-and-swap has its own type, because it reads a second data operand.
struct compare_swap {
    template <class T> STRATA_INLINE T operator()(T old, T data, T compare) const { return old == compare ? data : old; }
};

#define STRATA_ATOMIC_FN(NAME, ...) static constexpr auto NAME = [](auto old, auto data, auto) -> decltype(old) { return __VA_ARGS__; }
STRATA_ATOMIC_FN(fn_swap, ((void)old, data));
STRATA_ATOMIC_FN(fn_add, old + data);
STRATA_ATOMIC_FN(fn_sub, old - data);
STRATA_ATOMIC_FN(fn_rsub, data - old);
STRATA_ATOMIC_FN(fn_csub, old >= data ? old - data : 0);
STRATA_ATOMIC_FN(fn_min, old < data ? old : data);
STRATA_ATOMIC_FN(fn_max, old > data ? old : data);
STRATA_ATOMIC_FN(fn_and, old & data);
STRATA_ATOMIC_FN(fn_or, old | data);
STRATA_ATOMIC_FN(fn_xor, old ^ data);
STRATA_ATOMIC_FN(fn_inc, old >= data ? 0 : old + 1);
STRATA_ATOMIC_FN(fn_dec, old == 0 || old > data ? data : old - 1);
/// The number wins over NaN.
STRATA_ATOMIC_FN(fn_fmin, data != data ? old : old != old || data < old || (data == old && __builtin_signbit(data)) ? data : old);
STRATA_ATOMIC_FN(fn_fmax, data != data ? old : old != old || data > old || (data == old && __builtin_signbit(old)) ? data : old);

template <class T> static STRATA_INLINE void load_lanes(const uint8_t * row, int lane, T & value) {
    uint32_t d[sizeof(T) / 4];
    for (unsigned n = 0; n < sizeof(T) / 4; n++) std::memcpy(&d[n], row + n * row_bytes + lane * 4, 4);
    std::memcpy(&value, d, sizeof value);
}
template <class T> static STRATA_INLINE void store_lanes(uint8_t * row, int lane, T value) {
    uint32_t d[sizeof(T) / 4];
    std::memcpy(d, &value, sizeof value);
    for (unsigned n = 0; n < sizeof(T) / 4; n++) std::memcpy(row + n * row_bytes + lane * 4, &d[n], 4);
}

/// Returns the old value. For compare-and-swap, data is the new value and other the expected one.
template <class T, auto F> static STRATA_INLINE T atomic_update(T * p, T data, T other) {
    T old, now;
    __atomic_load(p, &old, __ATOMIC_RELAXED);
    do {
        now = F(old, data, other);
    } while (!__atomic_compare_exchange(p, &old, &now, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    return old;
}

/// X(name, type, function) for every atomic that global memory has.
#define STRATA_ATOMICS(X) \
    X("swap_b32", uint32_t, fn_swap), X("cmpswap_b32", uint32_t, compare_swap{}), X("add_u32", uint32_t, fn_add), \
    X("sub_u32", uint32_t, fn_sub), X("csub_u32", uint32_t, fn_csub), X("min_i32", int32_t, fn_min), X("min_u32", uint32_t, fn_min), \
    X("max_i32", int32_t, fn_max), X("max_u32", uint32_t, fn_max), X("and_b32", uint32_t, fn_and), X("or_b32", uint32_t, fn_or), \
    X("xor_b32", uint32_t, fn_xor), X("inc_u32", uint32_t, fn_inc), X("dec_u32", uint32_t, fn_dec), X("swap_b64", uint64_t, fn_swap), \
    X("cmpswap_b64", uint64_t, compare_swap{}), X("add_u64", uint64_t, fn_add), X("sub_u64", uint64_t, fn_sub), \
    X("min_i64", int64_t, fn_min), X("min_u64", uint64_t, fn_min), X("max_i64", int64_t, fn_max), X("max_u64", uint64_t, fn_max), \
    X("and_b64", uint64_t, fn_and), X("or_b64", uint64_t, fn_or), X("xor_b64", uint64_t, fn_xor), X("inc_u64", uint64_t, fn_inc), \
    X("dec_u64", uint64_t, fn_dec), X("add_f32", float, fn_add), X("min_f32", float, fn_fmin), X("max_f32", float, fn_fmax), \
    X("cmpswap_f32", float, compare_swap{}),

}  // namespace strata::emulator::STRATA_ISA
