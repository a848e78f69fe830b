// Vector operations on one 16-bit half of a register: f16, i16, u16. The other half of the destination stays.
#include "math.h"
#include "tables.h"
#include "valu.h"

namespace strata::emulator::STRATA_ISA {

/// The f16 nearest to d, as f32.
static STRATA_INLINE f32v round_half(f64v d) { return half_to_float_raw(double_to_half(d)); }
static STRATA_INLINE f32v round_half(f32v x) { return half_to_float_raw(float_to_half(x)); }

/// Exact in f64, but for addends too small to decide a rounding.
static STRATA_INLINE f32v fma_half(f32v a, f32v b, f32v c) { return round_half(convert<f64v>(a) * convert<f64v>(b) + convert<f64v>(c)); }

static STRATA_INLINE f32v ldexp_half(f32v a, i32v n) {
    return round_half(convert<f64v>(a) * power_of_two(clamp_i32(n, -200, 200)));
}
static STRATA_INLINE f32v exp2_half(f32v x) {
    const f32v r = round_half(exp2_poly(convert<f64v>(select(is_nan(x), splatf(0), x))));
    return select(is_nan(x), quieted(x), r);
}
static STRATA_INLINE f32v log2_half(f32v x) {
    const i32v usable = (x > 0.0f) & (x < __builtin_inff());
    return select(usable, round_half(log2_poly(convert<f64v>(select(usable, x, splatf(1))))), log2_(x));
}
static STRATA_INLINE f32v sin_half(f32v x, int quarter) {
    const i32v finite = abs_(x) < __builtin_inff();
    return select(finite, round_half(sin_turns(convert<f64v>(select(finite, x, splatf(0))), quarter)), sin_(x, quarter));
}
static STRATA_INLINE f32v sqrt_half(f32v x) {
    const i32v negative = x < 0.0f;
    return select(negative, splatf(__builtin_nanf("")), sqrt_(select(negative, splatf(1), x)));
}
static STRATA_INLINE f32v fract_half(f32v x) {
    const f32v r = round_half(x - floor_(x));
    return select(r >= 1.0f, splatf(0x1.ffcp-1f), r);
}
static STRATA_INLINE u32v class_bits(u32v h) {
    const u32v magnitude = h & 0x7fffu;
    u32v n = select(i32v(magnitude == 0u), splat(6), splat(7));
    n = select(i32v(magnitude >= 0x0400u), splat(8), n);
    n = select(i32v(magnitude >= 0x7c00u), splat(9), n);
    n = select(i32v((h & 0x8000u) != 0u), 11u - n, n);
    n = select(i32v(magnitude > 0x7c00u), splat(0), n);
    return select(i32v(magnitude >= 0x7e00u), splat(1), n);
}
static STRATA_INLINE f32v div_fixup_half(f32v s0, f32v s1, f32v s2) {
    const u32v sign = (as<u32v>(s1) ^ as<u32v>(s2)) & 0x80000000u;
    const auto signed_ = [&](f32v x) STRATA_LAMBDA { return as<f32v>((as<u32v>(x) & 0x7fffffffu) | sign); };
    const f32v inf = splatf(__builtin_inff());
    f32v r = signed_(s0);
    const i32v inf1 = abs_(s1) == inf, inf2 = abs_(s2) == inf, zero1 = s1 == 0.0f, zero2 = s2 == 0.0f;
    r = select(inf1 | zero2, signed_(splatf(0)), r);
    r = select(zero1 | inf2, signed_(inf), r);
    r = select((zero1 & zero2) | (inf1 & inf2), as<f32v>(splat(0xffc00000u)), r);
    r = select(is_nan(s1), quieted(s1), r);
    return select(is_nan(s2), quieted(s2), r);
}
template <class V> static STRATA_INLINE V smaller(V a, V b) { return select(i32v(a < b), a, b); }
template <class V> static STRATA_INLINE V larger(V a, V b) { return select(i32v(a > b), a, b); }
static STRATA_INLINE u32v sat_pk_u8(u32v x) {
    const i32v low = clamp_i32(as<i32v>(x << 16) >> 16, 0, 255), high = clamp_i32(as<i32v>(x) >> 16, 0, 255);
    return as<u32v>(low) | (as<u32v>(high) << 8);
}
static STRATA_INLINE i32v sat_i16(i32v x) { return clamp_i32(x, -32768, 32767); }
static STRATA_INLINE u32v sat_sub(u32v a, u32v b) { return select(i32v(a < b), splat(0), a - b); }

// The two products are added one after the other, every product and sum rounded to the result's type.
static STRATA_INLINE f32v dot2_half(u32v a, u32v b, f32v c) {
    const f32v first = round_half(c + round_half(half_to_float(a & 0xffffu) * half_to_float(b & 0xffffu)));
    return first + round_half(half_to_float(a >> 16) * half_to_float(b >> 16));
}
static STRATA_INLINE u32v dot2_bfloat(u32v a, u32v b, u32v c) {
    const auto rounded = [](f32v x) STRATA_LAMBDA { return bfloat_to_float(float_to_bfloat(x)); };
    const f32v first = rounded(bfloat_to_float(c) + rounded(bfloat_to_float(a) * bfloat_to_float(b)));
    return float_to_bfloat(first + rounded(bfloat_to_float(a >> 16) * bfloat_to_float(b >> 16)));
}

#define COMPARES(T, S) \
    CMP(lt_##T, S, S, a < b), CMP(eq_##T, S, S, a == b), CMP(le_##T, S, S, a <= b), CMP(gt_##T, S, S, a > b), CMP(ne_##T, S, S, a != b), \
        CMP(ge_##T, S, S, a >= b), CMP(f_##T, S, S, i32v((a != a) & (b != b))), CMP(t_##T, S, S, i32v((a == a) | (b == b)))

static const operation entries[] = {
    OP2(v_add_f16, F16, F16, F16, a + b),
    OP2(v_sub_f16, F16, F16, F16, a - b),
    OP2(v_subrev_f16, F16, F16, F16, b - a),
    OP2(v_mul_f16, F16, F16, F16, a * b),
    OP3(v_fma_f16, F16, F16, F16, F16, fma_half(a, b, c)),
    ACC(v_fmac_f16, F16, F16, F16, fma_half(a, b, c)),
    OP3_AS(v_fmaak_f16, form::valu_fmaak, F16, F16, F16, F16, fma_half(a, b, c)),
    OP3_AS(v_fmamk_f16, form::valu_fmamk, F16, F16, F16, F16, fma_half(a, b, c)),
    OP2(v_min_f16, S16, S16, S16, min_(a, b)),
    OP2(v_max_f16, S16, S16, S16, max_(a, b)),
    OP3(v_min3_f16, S16, S16, S16, S16, min_(min_(a, b), c)),
    OP3(v_max3_f16, S16, S16, S16, S16, max_(max_(a, b), c)),
    OP3(v_med3_f16, S16, S16, S16, S16, med3(a, b, c)),
    OP3(v_minmax_f16, S16, S16, S16, S16, max_(min_(a, b), c)),
    OP3(v_maxmin_f16, S16, S16, S16, S16, min_(max_(a, b), c)),
    OP3(v_div_fixup_f16, F16, F16, F16, F16, div_fixup_half(a, b, c)),
    OP2(v_ldexp_f16, F16, F16, I16, ldexp_half(a, b)),
    OP1(v_rcp_f16, F16, F16, 1.0f / a),
    OP1(v_sqrt_f16, F16, F16, sqrt_half(a)),
    OP1(v_rsq_f16, F16, F16, round_half(rsq_double(convert<f64v>(a)))),
    OP1(v_log_f16, F16, F16, log2_half(a)),
    OP1(v_exp_f16, F16, F16, exp2_half(a)),
    OP1(v_sin_f16, F16, F16, sin_half(a, 0)),
    OP1(v_cos_f16, F16, F16, sin_half(a, 1)),
    OP1(v_frexp_mant_f16, F16, F16, frexp_mant(a)),
    OP1(v_frexp_exp_i16_f16, I16, F16, frexp_exp(a)),
    OP1(v_floor_f16, F16, F16, floor_(a)),
    OP1(v_ceil_f16, F16, F16, ceil_(a)),
    OP1(v_trunc_f16, F16, F16, trunc_(a)),
    OP1(v_rndne_f16, F16, F16, rint_(a)),
    OP1(v_fract_f16, F16, F16, fract_half(a)),
    OP1(v_cvt_f16_u16, F16, U16, convert<f32v>(as<i32v>(a))),
    OP1(v_cvt_f16_i16, F16, I16, convert<f32v>(a)),
    OP1(v_cvt_u16_f16, U16, F16, to_u16(a)),
    OP1(v_cvt_i16_f16, I16, F16, to_i16(a)),
    OP1(v_cvt_norm_i16_f16, U16, F16, to_snorm16(a)),
    OP1(v_cvt_norm_u16_f16, U16, F16, to_unorm16(a)),
    OP2(v_cvt_pk_norm_i16_f16, U32, F16, F16, to_snorm16(a) | (to_snorm16(b) << 16)),
    OP2(v_cvt_pk_norm_u16_f16, U32, F16, F16, to_unorm16(a) | (to_unorm16(b) << 16)),
    OP2(v_pack_b32_f16, U32, R16, R16, a | (b << 16)),
    OP1(v_sat_pk_u8_i16, U16, U32, sat_pk_u8(a)),
    OP1(v_mov_b16, U16, U16, a),
    OP1(v_not_b16, U16, U16, ~a),
    OP2(v_and_b16, U16, U16, U16, a & b),
    OP2(v_or_b16, U16, U16, U16, a | b),
    OP2(v_xor_b16, U16, U16, U16, a ^ b),
    OP3_AS(v_cndmask_b16, form::valu_mask, R16, R16, R16, M, select(mask_lanes(c), b, a)),
    OP2C(v_add_nc_u16, U16, U16, U16, a + b, min_u32(a + b, 65535)),
    OP2C(v_sub_nc_u16, U16, U16, U16, a - b, sat_sub(a, b)),
    OP2C(v_add_nc_i16, I16, I16, I16, a + b, sat_i16(a + b)),
    OP2C(v_sub_nc_i16, I16, I16, I16, a - b, sat_i16(a - b)),
    OP2(v_mul_lo_u16, U16, U16, U16, a * b),
    OP3C(v_mad_u16, U16, U16, U16, U16, a * b + c, select(i32v(a * b > 0xffff0000u), splat(65535), min_u32(a * b + c, 65535))),
    OP3C(v_mad_i16, I16, I16, I16, I16, a * b + c, sat_i16(a * b + c)),
    OP2(v_max_u16, U16, U16, U16, larger(a, b)),
    OP2(v_min_u16, U16, U16, U16, smaller(a, b)),
    OP2(v_max_i16, I16, I16, I16, larger(a, b)),
    OP2(v_min_i16, I16, I16, I16, smaller(a, b)),
    OP3(v_min3_u16, U16, U16, U16, U16, smaller(smaller(a, b), c)),
    OP3(v_max3_u16, U16, U16, U16, U16, larger(larger(a, b), c)),
    OP3(v_med3_u16, U16, U16, U16, U16, larger(smaller(a, b), smaller(larger(a, b), c))),
    OP3(v_min3_i16, I16, I16, I16, I16, smaller(smaller(a, b), c)),
    OP3(v_max3_i16, I16, I16, I16, I16, larger(larger(a, b), c)),
    OP3(v_med3_i16, I16, I16, I16, I16, larger(smaller(a, b), smaller(larger(a, b), c))),
    OP2(v_lshlrev_b16, U16, U16, U16, b << (a & 15u)),
    OP2(v_lshrrev_b16, U16, U16, U16, b >> (a & 15u)),
    OP2(v_ashrrev_i16, I16, U16, I16, b >> as<i32v>(a & 15u)),
    OP3_AS(v_dot2_f16_f16, form::valu, F16, U32, U32, F16, dot2_half(a, b, c)),
    OP3_AS(v_dot2_bf16_bf16, form::valu, U16, U32, U32, U16, dot2_bfloat(a, b, c)),

    CMP(f_f16, F16, F16, (a != a) & (a == a) & (b == b)),
    CMP(lt_f16, F16, F16, a < b),
    CMP(eq_f16, F16, F16, a == b),
    CMP(le_f16, F16, F16, a <= b),
    CMP(gt_f16, F16, F16, a > b),
    CMP(lg_f16, F16, F16, (a < b) | (a > b)),
    CMP(ge_f16, F16, F16, a >= b),
    CMP(o_f16, F16, F16, (a == a) & (b == b)),
    CMP(u_f16, F16, F16, (a != a) | (b != b)),
    CMP(nge_f16, F16, F16, ~(a >= b)),
    CMP(nlg_f16, F16, F16, ~((a < b) | (a > b))),
    CMP(ngt_f16, F16, F16, ~(a > b)),
    CMP(nle_f16, F16, F16, ~(a <= b)),
    CMP(neq_f16, F16, F16, a != b),
    CMP(nlt_f16, F16, F16, ~(a < b)),
    CMP(t_f16, F16, F16, (a == a) | (a != a) | (b == b)),
    CMP(class_f16, R16, U32, i32v(((b >> class_bits(a)) & 1u) != 0u)),
    COMPARES(i16, I16),
    COMPARES(u16, U16),
};
STRATA_TABLE(valu_16, entries)

}  // namespace strata::emulator::STRATA_ISA
