// Elementary functions in f32 without device libraries. Error bounds are against the exact result, with correctly rounded
// v_exp_f32, v_log_f32 and v_rcp_f32; the chip's own last-place error of those three comes on top.
#pragma once

#include "strata/device.h"

namespace strata {

STRATA_DEVICE float infinity() { return __builtin_inff(); }

/// a * b + c, rounded once.
STRATA_DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

STRATA_DEVICE float abs(float x) { return __builtin_fabsf(x); }
STRATA_DEVICE float copysign(float magnitude, float sign) { return __builtin_copysignf(magnitude, sign); }
/// The larger (smaller) argument; a NaN loses against a number.
STRATA_DEVICE float max(float a, float b) { return __builtin_fmaxf(a, b); }
STRATA_DEVICE float min(float a, float b) { return __builtin_fminf(a, b); }
STRATA_DEVICE float floor(float x) { return __builtin_floorf(x); }
STRATA_DEVICE float ceil(float x) { return __builtin_ceilf(x); }
STRATA_DEVICE float trunc(float x) { return __builtin_truncf(x); }
/// To the nearest integer, ties to even.
STRATA_DEVICE float round_even(float x) { return __builtin_rintf(x); }
/// To the nearest integer, ties away from zero, as C's roundf.
STRATA_DEVICE float round(float x) { return __builtin_roundf(x); }
/// x * 2^n, rounded once if the result is subnormal.
STRATA_DEVICE float ldexp(float x, int32_t n) { return __builtin_amdgcn_ldexpf(x, n); }
/// Correctly rounded.
STRATA_DEVICE float sqrt(float x) { return __builtin_sqrtf(x); }
/// a / b, correctly rounded (the compiler's div_scale, div_fmas, div_fixup sequence).
STRATA_DEVICE float divide(float a, float b) { return a / b; }
/// 1 / x within 1 ulp, one instruction; subnormal x or results may be flushed.
STRATA_DEVICE float reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }
/// 2^x within 1 ulp, one instruction; results below 2^-126 are flushed to zero.
STRATA_DEVICE float exp2_fast(float x) { return __builtin_amdgcn_exp2f(x); }
/// The middle of three.
STRATA_DEVICE float median(float a, float b, float c) { return __builtin_amdgcn_fmed3f(a, b, c); }

namespace detail {

// ln 2 in two parts.
constexpr float ln2_high = 0x1.62e430p-1f;
constexpr float ln2_low = -0x1.05c610p-29f;
constexpr float log2_e = 0x1.715476p+0f;

// x = n ln 2 + r, |r| <= 0.35.
STRATA_DEVICE float exp_reduce(float x, float & n) {
    n = round_even(x * log2_e);
    return fma(-n, ln2_low, fma(-n, ln2_high, x));
}

}  // namespace detail

/// e^x; 1.1 ulp, subnormal results included.
STRATA_DEVICE float exp(float x) {
    float n;
    const float r = detail::exp_reduce(median(x, -105.0f, 90.0f), n);
    const float y = ldexp(exp2_fast(r * detail::log2_e), static_cast<int32_t>(n));
    return x == x ? y : x;
}

/// e^x - 1 without cancellation; 1.5 ulp.
STRATA_DEVICE float expm1(float x) {
    float n;
    const float r = detail::exp_reduce(median(x, -30.0f, 80.0f), n);
    float p = fma(r, 0x1.a19e2cp-13f, 0x1.6d749ap-10f);
    p = fma(p, r, 0x1.111092p-7f);
    p = fma(p, r, 0x1.5554aep-5f);
    p = fma(p, r, 0x1.555556p-3f);
    p = fma(p, r, 0.5f);
    p = fma(p * r, r, r);
    const float power = ldexp(1.0f, static_cast<int32_t>(n));
    const float y = fma(p, power, power - 1.0f);
    return x < 80.0f ? y : exp(x);
}

/// Natural logarithm; 1.5 ulp. log(0) = -inf, of a negative number NaN.
STRATA_DEVICE float log(float x) {
    const bool subnormal = x < 0x1p-126f;
    const float y = __builtin_amdgcn_logf(subnormal ? x * 0x1p32f : x);
    const float high = y * detail::ln2_high;
    const float low = fma(y, detail::ln2_low, fma(y, detail::ln2_high, -high));
    const float z = high + low;
    const float finite = subnormal ? z - 0x1.62e430p+4f : z;
    return abs(y) == infinity() ? y : finite;
}

namespace detail {

// x = n pi/2 + r with |r| <= pi/4 and an error of 2^-24 |r|, for |x| <= 1e6: the first fma is exact, the second and third
// bring pi/2 to 75 bits. Returns n modulo 2^32.
STRATA_DEVICE uint32_t reduce_half_pi(float x, float & r) {
    const float n = round_even(x * 0x1.45f306p-1f);
    r = fma(-n, 0x1.921fb6p+0f, x);
    r = fma(-n, -0x1.777a5cp-25f, r);
    r = fma(-n, -0x1.ee59dap-50f, r);
    return static_cast<uint32_t>(static_cast<int32_t>(n));
}

// |r| <= pi/4.
STRATA_DEVICE float sin_kernel(float r) {
    const float t = r * r;
    const float p = fma(fma(fma(t, 0x1.6cd538p-19f, -0x1.a00f90p-13f), t, 0x1.111108p-7f), t, -0x1.555556p-3f);
    return fma(p * t, r, r);
}

STRATA_DEVICE float cos_kernel(float r) {
    const float t = r * r;
    const float p = fma(fma(t, 0x1.99fe66p-16f, -0x1.6c0c7ep-10f), t, 0x1.55554ap-5f);
    return fma(fma(p, t, -0.5f), t, 1.0f);
}

STRATA_DEVICE float flip_sign_if(float x, uint32_t bit1) { return bit_cast<float>(bit_cast<uint32_t>(x) ^ (bit1 << 30 & 0x80000000u)); }

}  // namespace detail

/// Sine and cosine; 1.7 ulp for |x| <= 1e6, losing accuracy beyond. NaN for infinities.
STRATA_DEVICE void sincos(float x, float & sine, float & cosine) {
    float r;
    const uint32_t n = detail::reduce_half_pi(x, r);
    const float s = detail::sin_kernel(r);
    const float c = detail::cos_kernel(r);
    const bool swap = n & 1;
    sine = detail::flip_sign_if(swap ? c : s, n & 2);
    cosine = detail::flip_sign_if(swap ? s : c, (n + 1) & 2);
}

STRATA_DEVICE float sin(float x) {
    float s, c;
    sincos(x, s, c);
    return s;
}

STRATA_DEVICE float cos(float x) {
    float s, c;
    sincos(x, s, c);
    return c;
}

/// Hyperbolic tangent; 1.5 ulp.
STRATA_DEVICE float tanh(float x) {
    const float a = abs(x);
    const float t = x * x;
    float p = fma(t, -0x1.76abf6p-8f, 0x1.5256cep-6f);
    p = fma(p, t, -0x1.b84448p-5f);
    p = fma(p, t, 0x1.110768p-3f);
    p = fma(p, t, -0x1.555534p-2f);
    const float small = fma(p * t, x, x);
    const float large = copysign(fma(-2.0f, reciprocal(exp(2.0f * a) + 1.0f), 1.0f), x);
    return a < 0.625f ? small : large;
}

/// 1 / (1 + e^-x); 2.5 ulp, results below 2^-126 may be 0.
STRATA_DEVICE float sigmoid(float x) { return reciprocal(1.0f + exp(-x)); }

/// x * sigmoid(x); 3 ulp; NaN for -inf, as the formula.
STRATA_DEVICE float silu(float x) { return x * sigmoid(x); }

/// Error function; 1.5 ulp.
STRATA_DEVICE float erf(float x) {
    const float a = abs(x);
    const float t = x * x;
    float p = fma(t, 0x1.5ac320p-14f, -0x1.a99ef0p-11f);
    p = fma(p, t, 0x1.54b5e4p-8f);
    p = fma(p, t, -0x1.b80cb4p-6f);
    p = fma(p, t, 0x1.ce2df4p-4f);
    p = fma(p, t, -0x1.812742p-2f);
    p = fma(p, t, 0x1.06eba8p-3f);
    const float small = fma(p, x, x);
    // -log(erfc(a)) / a; erf rounds to 1 from 4 on.
    const float b = min(a, 4.0f);
    float q = fma(b, 0x1.8efb40p-17f, -0x1.596cc4p-12f);
    q = fma(q, b, 0x1.e0f6b0p-9f);
    q = fma(q, b, -0x1.8641b6p-6f);
    q = fma(q, b, 0x1.b36b7cp-4f);
    q = fma(q, b, 0x1.452d3cp-1f);
    q = fma(q, b, 0x1.20efc4p+0f);
    const float large = copysign(1.0f - exp(-q * b), x);
    // A NaN takes the first branch, where it stays one.
    return a >= 0.9375f ? large : small;
}

/// GELU in its tanh form: x/2 (1 + tanh(sqrt(2/pi) x (1 + 0.044715 x^2))), computed as x * sigmoid of twice the
/// argument. The rounding of the exponent is magnified by it: 20 ulp around -3, where the value is small.
STRATA_DEVICE float gelu(float x) {
    constexpr float scale = 2.0f * 0.79788456080286535587989211986876f;
    return x * sigmoid(scale * x * fma(0.044715f * x, x, 1.0f));
}

/// GELU with the error function: x/2 (1 + erf(x / sqrt 2)).
STRATA_DEVICE float gelu_erf(float x) { return 0.5f * x * (1.0f + erf(x * 0.70710678118654752440f)); }

/// x * sigmoid(1.702 x).
STRATA_DEVICE float gelu_quick(float x) { return x * sigmoid(1.702f * x); }

/// log(1 + e^x), the identity above 20.
STRATA_DEVICE float softplus(float x) { return x > 20.0f ? x : log(1.0f + exp(x)); }

}  // namespace strata
