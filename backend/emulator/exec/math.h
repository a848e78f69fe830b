// Floating-point functions over 32 lanes. All of them give the same bits in every build: no contraction, no libm in
// vector code, fused multiply-add only where it is asked for.
#pragma once

#include "operands.h"

#include <cmath>

namespace strata::emulator::STRATA_ISA {

template <class V> static STRATA_INLINE V fma_(V a, V b, V c) { return __builtin_elementwise_fma(a, b, c); }
template <class V> static STRATA_INLINE V floor_(V x) { return __builtin_elementwise_floor(x); }
template <class V> static STRATA_INLINE V ceil_(V x) { return __builtin_elementwise_ceil(x); }
template <class V> static STRATA_INLINE V trunc_(V x) { return __builtin_elementwise_trunc(x); }
template <class V> static STRATA_INLINE V rint_(V x) { return __builtin_elementwise_roundeven(x); }
template <class V> static STRATA_INLINE V sqrt_(V x) { return __builtin_elementwise_sqrt(x); }

template <class V> struct float_bits;
template <> struct float_bits<f32v> {
    using u = u32v;
    using i = i32v;
    static constexpr uint32_t sign = 1u << 31, quiet = 1u << 22, inf = 0x7f800000u;
};
template <> struct float_bits<f64v> {
    using u = u64v;
    using i = i64v;
    static constexpr uint64_t sign = 1ull << 63, quiet = 1ull << 51, inf = 0x7ff0000000000000ull;
};

template <class V> static STRATA_INLINE V abs_(V x) { return as<V>(as<typename float_bits<V>::u>(x) & ~float_bits<V>::sign); }
template <class V> static STRATA_INLINE auto is_nan(V x) { return x != x; }
template <class V> static STRATA_INLINE V quieted(V x) { return as<V>(as<typename float_bits<V>::u>(x) | float_bits<V>::quiet); }
template <class V> static STRATA_INLINE auto is_snan(V x) {
    using u = typename float_bits<V>::u;
    return is_nan(x) & ((as<u>(x) & float_bits<V>::quiet) == 0);
}

/// v_min / v_max in IEEE mode: a signalling NaN wins (made quiet), a quiet NaN loses, -0 < +0.
template <bool maximum, class V> static STRATA_INLINE V min_max(V a, V b) {
    using i = typename float_bits<V>::i;
    i take_a;
    if constexpr (maximum) take_a = (a > b) | ((a == b) & (as<i>(b) < 0));
    else take_a = (a < b) | ((a == b) & (as<i>(a) < 0));
    V r = select(take_a | is_nan(b), a, b);
    const i nan_a = is_nan(a), nan_b = is_nan(b);
    if (__builtin_expect(lane_bits(nan_a | nan_b) != 0, 0)) {
        r = select(is_snan(b), quieted(b), r);
        r = select(is_snan(a), quieted(a), r);
    }
    return r;
}
template <class V> static STRATA_INLINE V min_(V a, V b) { return min_max<false>(a, b); }
template <class V> static STRATA_INLINE V max_(V a, V b) { return min_max<true>(a, b); }

template <class V> static STRATA_INLINE V med3(V a, V b, V c) {
    const V top = max_(max_(a, b), c);
    V r = select(top == a, max_(b, c), select(top == b, max_(a, c), max_(a, b)));
    const auto nan = is_nan(a) | is_nan(b) | is_nan(c);
    if (__builtin_expect(lane_bits(nan) != 0, 0)) r = select(nan, min_(min_(a, b), c), r);
    return r;
}

/// x - floor(x), below 1.
static STRATA_INLINE f32v fract(f32v x) {
    const f32v r = x - floor_(x);
    return select(r >= 1.0f, splatf(0x1.fffffep-1f), r);
}
static STRATA_INLINE f64v fract(f64v x) {
    const f64v r = x - floor_(x);
    return select(r >= 1.0, splatd(0x1.fffffffffffffp-1), r);
}

/// Denormals to zero: exp, log, sqrt and rsq in f32 do not know them, as sources or as results (AMD's manual; rcp does).
static STRATA_INLINE f32v flush(f32v x) {
    const u32v bits = as<u32v>(x);
    return as<f32v>(select(i32v((bits & 0x7f800000u) == 0u), bits & 0x80000000u, bits));
}

/// Saturating conversions, toward zero; NaN gives 0.
static STRATA_INLINE i32v to_i32(f32v x) {
    const i32v fits = (x >= -0x1p31f) & (x < 0x1p31f);
    i32v r = convert<i32v>(select(fits, x, splatf(0)));
    r = select(i32v(x >= 0x1p31f), i32v{} + 0x7fffffff, r);
    return select(i32v(x < -0x1p31f), i32v{} + int32_t(0x80000000), r);
}
static STRATA_INLINE u32v to_u32(f32v x) {
    const i32v fits = (x > 0.0f) & (x < 0x1p32f);
    u32v r = convert<u32v>(convert<i64v>(select(fits, x, splatf(0))));
    return select(i32v(x >= 0x1p32f), splat(0xffffffffu), r);
}
static STRATA_INLINE i32v to_i32(f64v x) {
    const i64v fits = (x > -0x1p31 - 1.0) & (x < 0x1p31);
    const i32v r = convert<i32v>(convert<i64v>(select(fits, x, splatd(0))));
    const i32v high = convert<i32v>(i64v(x >= 0x1p31)), low = convert<i32v>(i64v(x <= -0x1p31 - 1.0));
    return select(low, i32v{} + int32_t(0x80000000), select(high, i32v{} + 0x7fffffff, r));
}
static STRATA_INLINE u32v to_u32(f64v x) {
    const i64v fits = (x > 0.0) & (x < 0x1p32);
    const u32v r = convert<u32v>(convert<i64v>(select(fits, x, splatd(0))));
    return select(convert<i32v>(i64v(x >= 0x1p32)), splat(0xffffffffu), r);
}
/// Saturating to 16 bits (in 32-bit lanes).
static STRATA_INLINE i32v clamp_i32(i32v x, int32_t low, int32_t high) {
    x = select(i32v(x < low), i32v{} + low, x);
    return select(i32v(x > high), i32v{} + high, x);
}
static STRATA_INLINE u32v min_u32(u32v x, uint32_t high) { return select(i32v(x > high), splat(high), x); }
static STRATA_INLINE i32v to_i16(f32v x) { return clamp_i32(to_i32(x), -32768, 32767); }
static STRATA_INLINE u32v to_u16(f32v x) { return min_u32(to_u32(x), 65535); }
/// Normalised: the clamped value times the maximum (exact in f64), rounded to nearest even.
static STRATA_INLINE u32v to_snorm16(f32v x) {
    x = select(is_nan(x), splatf(0), x);
    x = select(x < -1.0f, splatf(-1), select(x > 1.0f, splatf(1), x));
    return as<u32v>(convert<i32v>(rint_(convert<f64v>(x) * 32767.0))) & 0xffffu;
}
static STRATA_INLINE u32v to_unorm16(f32v x) {
    x = select(x > 0.0f, x, splatf(0));
    x = select(x > 1.0f, splatf(1), x);
    return as<u32v>(convert<i32v>(rint_(convert<f64v>(x) * 65535.0)));
}

static STRATA_INLINE f64v power_of_two(i32v n) { return as<f64v>((convert<i64v>(n) + 1023) << 52); }

/// x * 2^n, rounded once.
static STRATA_INLINE f32v ldexp_(f32v x, i32v n) {
    return convert<f32v>(convert<f64v>(x) * power_of_two(clamp_i32(n, -400, 400)));
}

/// Exponent and mantissa in [0.5, 1). Zero, infinity and NaN: exponent 0, mantissa the value.
static STRATA_INLINE i32v frexp_exp(f32v x) {
    const i32v bits = as<i32v>(as<u32v>(x) & 0x7fffffffu);
    const i32v denormal = (bits < 0x00800000) & (bits != 0);
    const i32v scaled = as<i32v>(as<f32v>(bits) * 0x1p24f);
    i32v e = select(denormal, (scaled >> 23) - 126 - 24, (bits >> 23) - 126);
    return select(i32v((bits == 0) | (bits >= 0x7f800000)), i32v{}, e);
}
static STRATA_INLINE f32v frexp_mant(f32v x) {
    const u32v bits = as<u32v>(x) & 0x7fffffffu;
    const u32v scaled = as<u32v>(select(i32v(bits < 0x00800000u), as<f32v>(bits) * 0x1p24f, as<f32v>(bits)));
    const u32v m = (scaled & 0x007fffffu) | 0x3f000000u | (as<u32v>(x) & 0x80000000u);
    const f32v r = as<f32v>(select(i32v((bits == 0u) | (bits >= 0x7f800000u)), as<u32v>(x), m));
    return select(is_nan(x), quieted(x), r);
}

/// 2^x in double, for |x| up to some hundreds: relative error of an ulp or two.
static STRATA_INLINE f64v exp2_poly(f64v x) {
    x = select(x < -600.0, splatd(-600), select(x > 600.0, splatd(600), x));
    const f64v k = rint_(x);
    const f64v t = (x - k) * 0x1.62e42fefa39efp-1;
    constexpr double c[] = {1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0,
                            1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0};
    f64v p = splatd(c[0]);
    for (int n = 1; n < 14; n++) p = p * t + c[n];
    return p * power_of_two(convert<i32v>(k));
}

/// log2 of positive normal doubles.
static STRATA_INLINE f64v log2_poly(f64v x) {
    const i64v bits = as<i64v>(x);
    // m in [sqrt(1/2), sqrt(2))
    const i64v shifted = bits - 0x3fe6a09e667f3bcdll;
    const i64v e = shifted >> 52;
    const f64v m = as<f64v>(bits - (e << 52));
    const f64v s = (m - 1.0) / (m + 1.0);
    const f64v z = s * s;
    f64v p = splatd(1.0 / 27.0);
    for (int n = 25; n >= 3; n -= 2) p = p * z + 1.0 / n;
    const f64v lg = s + s * z * p;
    return convert<f64v>(convert<i32v>(e)) + lg * 0x1.71547652b82fep+1;
}

static STRATA_INLINE f32v exp2_(f32v x) {
    const f32v r = flush(convert<f32v>(exp2_poly(convert<f64v>(select(is_nan(x), splatf(0), x)))));
    return select(is_nan(x), quieted(x), r);
}
static STRATA_INLINE f32v log2_(f32v x) {
    x = flush(x);
    const i32v usable = (x > 0.0f) & (x < __builtin_inff());
    f32v r = convert<f32v>(log2_poly(convert<f64v>(select(usable, x, splatf(1)))));
    r = select(i32v(x == 0.0f), splatf(-__builtin_inff()), r);
    r = select(i32v(x == __builtin_inff()), x, r);
    r = select(i32v(x < 0.0f), splatf(__builtin_nanf("")), r);
    return select(is_nan(x), quieted(x), r);
}
/// The square root of a negative number is NaN with the sign bit clear here; its sign on the chip is not known.
static STRATA_INLINE f32v sqrt_flushed(f32v x) {
    x = flush(x);
    f32v r = sqrt_(select(i32v(x < 0.0f), splatf(0), x));
    return select(i32v(x < 0.0f), splatf(__builtin_nanf("")), r);
}
static STRATA_INLINE f64v rsq_double(f64v x) {
    const f64v r = 1.0 / sqrt_(select(i64v(x < 0.0), splatd(1), x));
    return select(i64v(x < 0.0), splatd(__builtin_nan("")), r);
}
static STRATA_INLINE f32v rsq_(f32v x) { return convert<f32v>(rsq_double(convert<f64v>(flush(x)))); }

/// sin(2 pi x) and cos(2 pi x) in double; x in revolutions, finite.
static STRATA_INLINE f64v sin_turns(f64v x, int quarter) {
    const f64v f = x - rint_(x);
    const f64v q = rint_(f * 4.0);
    const f64v a = (f - q * 0.25) * 0x1.921fb54442d18p+2;
    const f64v z = a * a;
    f64v s = splatd(-1.0 / 121645100408832000.0);
    constexpr double cs[] = {1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0,
                             -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0};
    for (double c : cs) s = s * z + c;
    s = a + a * z * s;
    f64v k = splatd(-1.0 / 6402373705728000.0);
    constexpr double cc[] = {1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0, 1.0 / 40320.0,
                             -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0};
    for (double c : cc) k = k * z + c;
    const i64v quadrant = convert<i64v>(convert<i32v>(q)) + quarter;
    const f64v r = select(i64v((quadrant & 1) != 0), k, s);
    const f64v value = as<f64v>(as<u64v>(r) ^ (as<u64v>(quadrant & 2) << 62));
    return quarter == 0 ? select(i64v(x == 0.0), x, value) : value;  // sin(-0) is -0
}
static STRATA_INLINE f32v sin_(f32v x, int quarter) {
    const i32v finite = abs_(x) < __builtin_inff();
    const f32v r = convert<f32v>(sin_turns(convert<f64v>(select(finite, x, splatf(0))), quarter));
    return select(finite, r, select(is_nan(x), quieted(x), splatf(__builtin_nanf(""))));
}

/// v_cmp_class: the class bit of every lane is tested against its mask.
static STRATA_INLINE i32v class_test(f32v x, u32v mask) {
    const u32v bits = as<u32v>(x);
    const u32v magnitude = bits & 0x7fffffffu;
    const i32v negative = as<i32v>(bits) < 0;
    // bit number: snan 0, qnan 1, -inf 2, -normal 3, -denormal 4, -0 5, +0 6, +denormal 7, +normal 8, +inf 9
    u32v n = select(i32v(magnitude == 0u), splat(6), splat(7));
    n = select(i32v(magnitude >= 0x00800000u), splat(8), n);
    n = select(i32v(magnitude >= 0x7f800000u), splat(9), n);
    n = select(negative, 11u - n, n);
    n = select(i32v(magnitude > 0x7f800000u), splat(0), n);
    n = select(i32v(magnitude >= 0x7fc00000u), splat(1), n);
    return (as<i32v>(mask >> n) & 1) != 0;
}

}  // namespace strata::emulator::STRATA_ISA
