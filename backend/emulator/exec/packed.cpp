// Packed operations on both halves of registers, mixed-precision fma, and dot products of two halves.
#include "math.h"
#include "tables.h"
#include "valu.h"

namespace strata::emulator::STRATA_ISA {

/// Half `high` of the result takes, from every source, the half that op_sel (low) or op_sel_hi (high) names.
template <class T> static STRATA_INLINE typename T::v half_source(u32v word, const inst * i, int k, bool high) {
    const uint32_t select_bits = high ? i->opsel_hi : i->opsel;
    u32v r = (select_bits >> k & 1) ? word >> 16 : word & 0xffffu;
    if constexpr (T::sign != 0) {
        if ((high ? i->abs : i->neg) >> k & 1) r ^= uint32_t(T::sign);
    }
    return from_bits<T>(r);
}
template <class T> static STRATA_INLINE u32v half_bits(typename T::v x) {
    if constexpr (__is_same(T, F16) || __is_same(T, S16)) return float_to_half(x);
    else return as<u32v>(x) & 0xffffu;
}

template <class T, int sources, auto F, auto K> static STRATA_HANDLER(packed) {
    const uint32_t lanes = active(w, i);
    const u32v a = fetch(w, i, 0), b = fetch(w, i, 1);
    u32v c = splat(0);
    if constexpr (sources == 3) c = fetch(w, i, 2);
    u32v halves[2];
    for (int h = 0; h < 2; h++) {
        const auto x = half_source<T>(a, i, 0, h), y = half_source<T>(b, i, 1, h), z = half_source<T>(c, i, 2, h);
        typename T::v d;
        if constexpr (__is_same(decltype(K), decltype(nullptr))) {
            d = F(x, y, z);
            if constexpr (is_float<T>) {
                if (i->clamp) d = output_modifiers(i, d);
            }
        } else {
            d = i->clamp ? K(x, y, z) : F(x, y, z);
        }
        halves[h] = half_bits<T>(d);
    }
    put_row(w, i->dst, halves[0] | (halves[1] << 16), lanes);
    STRATA_NEXT;
}

template <class T, int sources, auto F, auto K = nullptr> constexpr operation make_packed(const char * name, form how = form::valu) {
    constexpr bool floating = is_float<T>;
    constexpr type t = floating ? type::pf16 : type::p16;
    constexpr bool clamps = floating || !__is_same(decltype(K), decltype(nullptr));
    return {name, how, t, t, t, sources == 3 ? t : type::none, nullptr, packed<T, sources, F, K>,
            uint8_t((clamps ? op_int_clamp : 0) | (floating ? op_neg_is_sign : 0))};
}
#define STRATA_HALF_FN(T, X) \
    []([[maybe_unused]] T::v a, [[maybe_unused]] T::v b, [[maybe_unused]] T::v c) STRATA_LAMBDA -> T::v { return X; }
#define PK(NAME, T, N, X) make_packed<T, N, STRATA_HALF_FN(T, X)>(#NAME)
#define PKC(NAME, T, N, X, K) make_packed<T, N, STRATA_HALF_FN(T, X), STRATA_HALF_FN(T, K)>(#NAME)

static STRATA_INLINE f32v fma_half(f32v a, f32v b, f32v c) {
    return half_to_float_raw(double_to_half(convert<f64v>(a) * convert<f64v>(b) + convert<f64v>(c)));
}
static STRATA_INLINE i32v sat_i16(i32v x) { return clamp_i32(x, -32768, 32767); }
template <class V> static STRATA_INLINE V smaller(V a, V b) { return select(i32v(a < b), a, b); }
template <class V> static STRATA_INLINE V larger(V a, V b) { return select(i32v(a > b), a, b); }

/// v_pk_fmac_f16 (VOP2): no selection, the accumulator is the destination.
static STRATA_HANDLER(v_pk_fmac_f16) {
    const uint32_t lanes = active(w, i);
    const u32v a = fetch(w, i, 0), b = fetch(w, i, 1), c = fetch(w, i, 2);
    const u32v low = float_to_half(fma_half(half_to_float(a & 0xffffu), half_to_float(b & 0xffffu), half_to_float(c & 0xffffu)));
    const u32v high = float_to_half(fma_half(half_to_float(a >> 16), half_to_float(b >> 16), half_to_float(c >> 16)));
    put_row(w, i->dst, low | (high << 16), lanes);
    STRATA_NEXT;
}

/// fma_mix: op_sel_hi makes a source f16 (its half by op_sel), else it is f32; neg_hi means abs.
static STRATA_INLINE f32v mix_source(const wave * w, const inst * i, int k) {
    u32v r = fetch(w, i, k);
    if (i->opsel_hi >> k & 1) r = as<u32v>(half_to_float((i->opsel >> k & 1) ? r >> 16 : r & 0xffffu));
    if (i->abs >> k & 1) r &= 0x7fffffffu;
    if (i->neg >> k & 1) r ^= 0x80000000u;
    return as<f32v>(r);
}
enum class mix_result { f32, low, high };
template <mix_result R> static STRATA_HANDLER(fma_mix) {
    const uint32_t lanes = active(w, i);
    f32v d = fma_(mix_source(w, i, 0), mix_source(w, i, 1), mix_source(w, i, 2));
    if (R == mix_result::f32) {
        if (i->clamp) d = output_modifiers(i, d);
        put<F32>(w, i->dst, d, lanes);
    } else {
        if (i->clamp) d = output_modifiers(i, d);
        put_half(w, i->dst, float_to_half(d), lanes, R == mix_result::high);
    }
    STRATA_NEXT;
}

template <bool bf16> static STRATA_INLINE f32v dot_element(u32v word, const inst * i, int k, bool high) {
    const uint32_t select_bits = high ? i->opsel_hi : i->opsel;
    u32v r = (select_bits >> k & 1) ? word >> 16 : word & 0xffffu;
    if ((high ? i->abs : i->neg) >> k & 1) r ^= 0x8000u;
    return bf16 ? bfloat_to_float(r) : half_to_float(r);
}
/// Two products, exact in f32 for f16, added to c one after the other.
template <bool bf16> static STRATA_HANDLER(dot2_f32) {
    const uint32_t lanes = active(w, i);
    const u32v a = fetch(w, i, 0), b = fetch(w, i, 1);
    u32v cw = fetch(w, i, 2);
    if (i->abs >> 2 & 1) cw &= 0x7fffffffu;
    if (i->neg >> 2 & 1) cw ^= 0x80000000u;
    f32v d = as<f32v>(cw);
    d = d + dot_element<bf16>(a, i, 0, false) * dot_element<bf16>(b, i, 1, false);
    d = d + dot_element<bf16>(a, i, 0, true) * dot_element<bf16>(b, i, 1, true);
    if (i->clamp) d = output_modifiers(i, d);
    put<F32>(w, i->dst, d, lanes);
    STRATA_NEXT;
}

#define MIX(NAME, R, D) {#NAME, form::valu, D, type::mix, type::mix, type::mix, nullptr, fma_mix<R>, op_neg_is_sign | op_int_clamp}

static const operation entries[] = {
    PKC(v_pk_mad_i16, I16, 3, a * b + c, sat_i16(a * b + c)),
    PKC(v_pk_mad_u16, U16, 3, a * b + c, select(i32v(a * b > 0xffff0000u), splat(65535), min_u32(a * b + c, 65535))),
    PK(v_pk_mul_lo_u16, U16, 2, a * b),
    PKC(v_pk_add_i16, I16, 2, a + b, sat_i16(a + b)),
    PKC(v_pk_sub_i16, I16, 2, a - b, sat_i16(a - b)),
    PKC(v_pk_add_u16, U16, 2, a + b, min_u32(a + b, 65535)),
    PKC(v_pk_sub_u16, U16, 2, a - b, select(i32v(a < b), splat(0), a - b)),
    PK(v_pk_lshlrev_b16, U16, 2, b << (a & 15u)),
    PK(v_pk_lshrrev_b16, U16, 2, b >> (a & 15u)),
    PK(v_pk_ashrrev_i16, I16, 2, b >> (a & 15)),
    PK(v_pk_max_i16, I16, 2, larger(a, b)),
    PK(v_pk_min_i16, I16, 2, smaller(a, b)),
    PK(v_pk_max_u16, U16, 2, larger(a, b)),
    PK(v_pk_min_u16, U16, 2, smaller(a, b)),
    PK(v_pk_fma_f16, F16, 3, fma_half(a, b, c)),
    PK(v_pk_add_f16, F16, 2, a + b),
    PK(v_pk_mul_f16, F16, 2, a * b),
    PK(v_pk_min_f16, S16, 2, min_(a, b)),
    PK(v_pk_max_f16, S16, 2, max_(a, b)),
    {"v_pk_fmac_f16", form::valu_acc, type::pf16, type::pf16, type::pf16, type::pf16, nullptr, v_pk_fmac_f16, 0},
    MIX(v_fma_mix_f32, mix_result::f32, type::f32),
    MIX(v_fma_mixlo_f16, mix_result::low, type::b32),
    MIX(v_fma_mixhi_f16, mix_result::high, type::b32),
    {"v_dot2_f32_f16", form::valu, type::f32, type::pf16, type::pf16, type::f32, nullptr, dot2_f32<false>, op_neg_is_sign},
    {"v_dot2_f32_bf16", form::valu, type::f32, type::p16, type::p16, type::f32, nullptr, dot2_f32<true>, op_neg_is_sign},
};
STRATA_TABLE(packed, entries)

}  // namespace strata::emulator::STRATA_ISA
