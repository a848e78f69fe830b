// Conversions between f16, bf16 and f32 lanes. Halves live in the low 16 bits of 32-bit lanes.
#pragma once

#include "lanes.h"

#include <immintrin.h>

namespace strata::emulator::STRATA_ISA {

using f16v = vec<_Float16, 32>;

/// Exact; signalling NaNs stay signalling.
static STRATA_INLINE f32v half_to_float_raw(u32v h) {
    const u32v magnitude = (h & 0x7fffu) << 13;
    u32v bits = as<u32v>(as<f32v>(magnitude) * 0x1p112f);
    const i32v special = (h & 0x7c00u) == 0x7c00u;
    bits = select(special, magnitude | 0x7f800000u, bits);
    return as<f32v>(bits | ((h & 0x8000u) << 16));
}

/// Exact; NaNs become quiet.
static STRATA_INLINE f32v half_to_float(u32v h) {
#ifdef __F16C__
    return convert<f32v>(as<f16v>(convert<u16v>(h)));
#else
    const u32v r = as<u32v>(half_to_float_raw(h));
    return as<f32v>(select(i32v((r & 0x7fffffffu) > 0x7f800000u), r | 0x00400000u, r));
#endif
}

/// Round to nearest even.
static STRATA_INLINE u32v float_to_half(f32v x) {
#ifdef __F16C__
    return convert<u32v>(as<u16v>(convert<f16v>(x)));
#else
    const u32v a = as<u32v>(x) & 0x7fffffffu;
    const u32v normal = (a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13;
    const u32v denormal = as<u32v>(as<f32v>(a) + 0.5f) - 0x3f000000u;
    u32v r = select(i32v(a < 0x38800000u), denormal, normal);
    r = select(i32v(a >= 0x477ff000u), splat(0x7c00), r);
    r = select(i32v(a > 0x7f800000u), ((a >> 13) & 0x3ffu) | 0x7e00u, r);
    return r | ((as<u32v>(x) >> 16) & 0x8000u);
#endif
}

/// Round toward zero: finite values never become infinite.
static STRATA_INLINE u32v float_to_half_rtz(f32v x) {
    const u32v a = as<u32v>(x) & 0x7fffffffu;
    const i32v small = a < 0x38800000u;
    const u32v denormal = convert<u32v>(as<f32v>(select(small, a, splat(0))) * 0x1p24f);
    u32v r = select(small, denormal, (a - 0x38000000u) >> 13);
    r = select(i32v(a >= 0x47800000u), splat(0x7bff), r);
    r = select(i32v(a >= 0x7f800000u), splat(0x7c00), r);
    r = select(i32v(a > 0x7f800000u), ((a >> 13) & 0x3ffu) | 0x7e00u, r);
    return r | ((as<u32v>(x) >> 16) & 0x8000u);
}

#if defined(__F16C__) && defined(__AVX2__)
/// Both halves of 8 * Blocks lanes: eight halves convert at a time, low and high alternating; two shuffles sort them.
template <int Blocks> static STRATA_INLINE void half_to_float_pairs(const void * x, float * low, float * high) {
    for (int n = 0; n < Blocks; n++) {
        __m256i block;
        std::memcpy(&block, static_cast<const char *>(x) + 32 * n, 32);
        const __m256 a = _mm256_cvtph_ps(_mm256_castsi256_si128(block)), b = _mm256_cvtph_ps(_mm256_extracti128_si256(block, 1));
        const __m256d l = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)), h = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));
        _mm256_storeu_ps(low + 8 * n, _mm256_castpd_ps(_mm256_permute4x64_pd(l, 0xd8)));
        _mm256_storeu_ps(high + 8 * n, _mm256_castpd_ps(_mm256_permute4x64_pd(h, 0xd8)));
    }
}
#endif

/// Both halves of every lane at once.
struct half_pair {
    f32v low, high;
};
static STRATA_INLINE half_pair halves_to_float(u32v x) {
#if defined(__F16C__) && defined(__AVX2__)
    half_pair r;
    half_to_float_pairs<4>(&x, reinterpret_cast<float *>(&r.low), reinterpret_cast<float *>(&r.high));
    return r;
#else
    return {half_to_float(x & 0xffffu), half_to_float(x >> 16)};
#endif
}

/// Rounds f64 lanes to f16 once (not through f32: the value is first rounded to odd).
static STRATA_INLINE u32v double_to_half(f64v d) {
    const f32v nearest = convert<f32v>(d);
    const f64v back = convert<f64v>(nearest);
    // Round to odd: where the f32 is inexact and even, step toward the true value.
    const u32v bits = as<u32v>(nearest);
    const i32v inexact = convert<i32v>(i64v(back != d) & i64v(d == d));
    const auto magnitude = [](f64v x) STRATA_LAMBDA { return as<f64v>(as<u64v>(x) & 0x7fffffffffffffffull); };
    const i32v too_big = convert<i32v>(i64v(magnitude(back) > magnitude(d)));
    const i32v even = (bits & 1u) == 0u;
    const u32v stepped = select(too_big, bits - 1u, bits + 1u);
    const i32v finite = (bits & 0x7fffffffu) < 0x7f800000u;
    return float_to_half(as<f32v>(select(inexact & even & finite, stepped, bits)));
}

/// The bf16 in the low half.
static STRATA_INLINE f32v bfloat_to_float(u32v b) { return as<f32v>(b << 16); }

/// Round to nearest even; NaNs become quiet.
static STRATA_INLINE u32v float_to_bfloat(f32v x) {
    const u32v u = as<u32v>(x);
    const u32v r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return select(i32v((u & 0x7fffffffu) > 0x7f800000u), (u >> 16) | 0x40u, r) & 0xffffu;
}

}  // namespace strata::emulator::STRATA_ISA
