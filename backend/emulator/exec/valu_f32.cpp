// Vector operations on f32.
#include "math.h"
#include "tables.h"
#include "valu.h"

namespace strata::emulator::STRATA_ISA {

static STRATA_INLINE f32v mul_zero(f32v a, f32v b) { return select(i32v((a == 0.0f) | (b == 0.0f)), splatf(0), a * b); }

static STRATA_INLINE f32v fma_zero(f32v a, f32v b, f32v c) { return select(i32v((a == 0.0f) | (b == 0.0f)), c, fma_(a, b, c)); }

static STRATA_INLINE f32v div_fixup(f32v s0, f32v s1, f32v s2) {
    const u32v sign = (as<u32v>(s1) ^ as<u32v>(s2)) & 0x80000000u;
    const auto signed_ = [&](f32v x) STRATA_LAMBDA { return as<f32v>((as<u32v>(x) & 0x7fffffffu) | sign); };
    const i32v e1 = as<i32v>(as<u32v>(s1) >> 23 & 0xffu), e2 = as<i32v>(as<u32v>(s2) >> 23 & 0xffu);
    const f32v inf = splatf(__builtin_inff());
    // A quotient that overflows reaches this instruction as NaN, of infinity times zero in the steps before.
    f32v r = select(is_nan(s0), signed_(inf), signed_(s0));
    r = select(i32v(e1 == 255), signed_(inf), r);
    r = select(i32v(e2 - e1 < -150), signed_(splatf(0)), r);
    const i32v inf1 = abs_(s1) == inf, inf2 = abs_(s2) == inf, zero1 = s1 == 0.0f, zero2 = s2 == 0.0f;
    r = select(inf1 | zero2, signed_(splatf(0)), r);
    r = select(zero1 | inf2, signed_(inf), r);
    r = select((zero1 & zero2) | (inf1 & inf2), as<f32v>(splat(0xffc00000u)), r);
    r = select(is_nan(s1), quieted(s1), r);
    return select(is_nan(s2), quieted(s2), r);
}

/// s0 scaled so that s2 / s1 can be computed without overflow or loss; the mask says where div_fmas must scale back. AMD's text
/// is contradictory (1 / s1 is never denormal in f64); this reading makes the whole division sequence exact.
static STRATA_INLINE f32v div_scale(f32v s0, f32v s1, f32v s2, uint32_t & bits) {
    const i32v e1 = as<i32v>(as<u32v>(s1) >> 23 & 0xffu), e2 = as<i32v>(as<u32v>(s2) >> 23 & 0xffu);
    const auto denormal = [](f32v x) STRATA_LAMBDA { return i32v((x != 0.0f) & (abs_(x) < 0x1p-126f)); };
    const i32v bad = (s1 == 0.0f) | (s2 == 0.0f);
    const i32v large = e2 - e1 >= 96;
    const i32v den1 = denormal(s1);
    const i32v tiny_rcp = denormal(1.0f / s1);
    const i32v tiny_quotient = denormal(s2 / s1);
    const i32v small = e2 <= 23;
    const f32v up = ldexp_(s0, i32v{} + 64), down = ldexp_(s0, i32v{} - 64);
    const i32v is1 = s0 == s1, is2 = s0 == s2;
    f32v r = select(small, up, s0);
    i32v vcc = i32v{};
    r = select(tiny_quotient, select(is2, up, s0), r);
    vcc = vcc | tiny_quotient;
    r = select(tiny_rcp, select(tiny_quotient, select(is1, down, s0), down), r);
    vcc = select(tiny_rcp, tiny_quotient, vcc);
    r = select(den1, up, r);
    vcc = select(den1, i32v{}, vcc);
    r = select(large, select(is1, up, s0), r);
    vcc = select(large, i32v{} - 1, vcc);
    r = select(bad, splatf(__builtin_nanf("")), r);
    vcc = select(bad, i32v{}, vcc);
    bits = lane_bits(vcc);
    return r;
}

/// a + b rounded to odd: the last bit says that something was lost, so that rounding once more, to f32, is right.
static STRATA_INLINE f64v add_to_odd(f64v a, f64v b) {
    const f64v sum = a + b, part = sum - a;
    const f64v error = (a - (sum - part)) + (b - part);
    const i64v bits = as<i64v>(sum);
    const i64v even_and_inexact = (i64v(error < 0.0) | i64v(error > 0.0)) & i64v((bits & 1) == 0);
    const i64v beyond = i64v((as<i64v>(error) ^ bits) < 0);  // -1: the sum's magnitude was rounded up
    return as<f64v>(bits + (even_and_inexact & (1 + 2 * beyond)));
}
static STRATA_INLINE f32v div_fmas(f32v a, f32v b, f32v c, uint32_t vcc) {
    // The quotient's size says which way div_scale scaled. Scaled or not, the result is rounded once.
    const i32v large = as<i32v>(as<u32v>(c) >> 23 & 0xffu) > 127;
    const f64v sum = add_to_odd(convert<f64v>(a) * convert<f64v>(b), convert<f64v>(c));
    const f32v scaled = select(large, convert<f32v>(sum * 0x1p64), convert<f32v>(sum * 0x1p-64));
    return select(mask_lanes(vcc), scaled, fma_(a, b, c));
}
static STRATA_HANDLER(v_div_fmas_f32) {
    const uint32_t lanes = active(w, i);
    f32v d = div_fmas(get<F32>(w, i, 0), get<F32>(w, i, 1), get<F32>(w, i, 2), w->s[slot_vcc]);
    if (i->clamp | i->omod) d = output_modifiers(i, d);
    put<F32>(w, i->dst, d, lanes);
    STRATA_NEXT;
}

static STRATA_INLINE f32v cube(int what, f32v x, f32v y, f32v z) {
    const i32v on_z = (abs_(z) >= abs_(x)) & (abs_(z) >= abs_(y));
    const i32v on_y = abs_(y) >= abs_(x);
    const auto pick = [&](f32v a, f32v b, f32v c) STRATA_LAMBDA { return select(on_z, a, select(on_y, b, c)); };
    switch (what) {
    case 0:
        return pick(select(i32v(z < 0.0f), splatf(5), splatf(4)), select(i32v(y < 0.0f), splatf(3), splatf(2)),
                    select(i32v(x < 0.0f), splatf(1), splatf(0)));
    case 1: return pick(select(i32v(z < 0.0f), -x, x), x, select(i32v(x < 0.0f), z, -z));
    case 2: return pick(-y, select(i32v(y < 0.0f), -z, z), -y);
    default: return pick(z, y, x) * 2.0f;
    }
}

static STRATA_INLINE f32v mullit(f32v a, f32v b, f32v c) {
    const f32v low = splatf(-0x1.fffffep127f);
    return select(i32v((b <= low) | is_nan(b) | (c <= 0.0f) | is_nan(c)), low, a * b);
}

static STRATA_INLINE u32v cvt_pk_u8(f32v a, u32v position, u32v c) {
    const u32v shift = (position & 3u) << 3;
    const u32v value = min_u32(to_u32(a), 255);
    return (c & ~(splat(0xff) << shift)) | (value << shift);
}

/// Byte N of an integer.
template <int n> static STRATA_INLINE f32v ubyte(u32v x) { return convert<f32v>(as<i32v>(x >> (8 * n) & 0xffu)); }

/// u32 to f32, rounded once on every host.
static STRATA_INLINE f32v from_u32(u32v x) { return convert<f32v>(convert<f64v>(convert<i64v>(x))); }

/// Products of halves are exact in f32; the two additions round one after the other.
static STRATA_INLINE f32v dot2(f32v a0, f32v a1, f32v b0, f32v b1, f32v c) { return (c + a0 * b0) + a1 * b1; }
static STRATA_INLINE f32v dot2_half(u32v a, u32v b, f32v c) {
    return dot2(half_to_float(a & 0xffffu), half_to_float(a >> 16), half_to_float(b & 0xffffu), half_to_float(b >> 16), c);
}
static STRATA_INLINE f32v dot2_bfloat(u32v a, u32v b, f32v c) {
    return dot2(bfloat_to_float(a), bfloat_to_float(a >> 16 & 0xffffu), bfloat_to_float(b), bfloat_to_float(b >> 16 & 0xffffu), c);
}

static const operation entries[] = {
    OP2(v_add_f32, F32, F32, F32, a + b),
    OP2(v_sub_f32, F32, F32, F32, a - b),
    OP2(v_subrev_f32, F32, F32, F32, b - a),
    OP2(v_mul_f32, F32, F32, F32, a * b),
    OP2(v_mul_dx9_zero_f32, F32, F32, F32, mul_zero(a, b)),
    OP2(v_min_f32, F32, F32, F32, min_(a, b)),
    OP2(v_max_f32, F32, F32, F32, max_(a, b)),
    OP3(v_fma_f32, F32, F32, F32, F32, fma_(a, b, c)),
    OP3(v_fma_dx9_zero_f32, F32, F32, F32, F32, fma_zero(a, b, c)),
    ACC(v_fmac_f32, F32, F32, F32, fma_(a, b, c)),
    ACC(v_fmac_dx9_zero_f32, F32, F32, F32, fma_zero(a, b, c)),
    OP3_AS(v_fmaak_f32, form::valu_fmaak, F32, F32, F32, F32, fma_(a, b, c)),
    OP3_AS(v_fmamk_f32, form::valu_fmamk, F32, F32, F32, F32, fma_(a, b, c)),
    OP3(v_min3_f32, F32, F32, F32, F32, min_(min_(a, b), c)),
    OP3(v_max3_f32, F32, F32, F32, F32, max_(max_(a, b), c)),
    OP3(v_med3_f32, F32, F32, F32, F32, med3(a, b, c)),
    OP3(v_minmax_f32, F32, F32, F32, F32, max_(min_(a, b), c)),
    OP3(v_maxmin_f32, F32, F32, F32, F32, min_(max_(a, b), c)),
    OP3(v_mullit_f32, F32, F32, F32, F32, mullit(a, b, c)),
    OP3(v_cubeid_f32, F32, F32, F32, F32, cube(0, a, b, c)),
    OP3(v_cubesc_f32, F32, F32, F32, F32, cube(1, a, b, c)),
    OP3(v_cubetc_f32, F32, F32, F32, F32, cube(2, a, b, c)),
    OP3(v_cubema_f32, F32, F32, F32, F32, cube(3, a, b, c)),
    OP3(v_div_fixup_f32, F32, F32, F32, F32, div_fixup(a, b, c)),
    {"v_div_fmas_f32", form::valu, type::f32, type::f32, type::f32, type::f32, nullptr, v_div_fmas_f32, 0},
    CARRY3(v_div_scale_f32, F32, F32, F32, F32, div_scale(a, b, c, out), nullptr),
    OP2(v_ldexp_f32, F32, F32, I32, ldexp_(a, b)),
    OP1(v_fract_f32, F32, F32, fract(a)),
    OP1(v_trunc_f32, F32, F32, trunc_(a)),
    OP1(v_ceil_f32, F32, F32, ceil_(a)),
    OP1(v_rndne_f32, F32, F32, rint_(a)),
    OP1(v_floor_f32, F32, F32, floor_(a)),
    OP1(v_exp_f32, F32, F32, exp2_(a)),
    OP1(v_log_f32, F32, F32, log2_(a)),
    OP1(v_rcp_f32, F32, F32, 1.0f / a),
    OP1(v_rcp_iflag_f32, F32, F32, 1.0f / a),
    OP1(v_rsq_f32, F32, F32, rsq_(a)),
    OP1(v_sqrt_f32, F32, F32, sqrt_flushed(a)),
    OP1(v_sin_f32, F32, F32, sin_(a, 0)),
    OP1(v_cos_f32, F32, F32, sin_(a, 1)),
    OP1(v_frexp_exp_i32_f32, I32, F32, frexp_exp(a)),
    OP1(v_frexp_mant_f32, F32, F32, frexp_mant(a)),
    OP1(v_cvt_f32_i32, F32, I32, convert<f32v>(a)),
    OP1(v_cvt_f32_u32, F32, U32, from_u32(a)),
    OP1(v_cvt_i32_f32, I32, F32, to_i32(a)),
    OP1(v_cvt_u32_f32, U32, F32, to_u32(a)),
    OP1(v_cvt_nearest_i32_f32, I32, F32, to_i32(floor_(a + 0.5f))),
    OP1(v_cvt_floor_i32_f32, I32, F32, to_i32(floor_(a))),
    OP1(v_cvt_off_f32_i4, F32, U32, convert<f32v>(as<i32v>(a << 28) >> 28) * 0.0625f),
    OP1(v_cvt_f32_ubyte0, F32, U32, ubyte<0>(a)),
    OP1(v_cvt_f32_ubyte1, F32, U32, ubyte<1>(a)),
    OP1(v_cvt_f32_ubyte2, F32, U32, ubyte<2>(a)),
    OP1(v_cvt_f32_ubyte3, F32, U32, ubyte<3>(a)),
    OP1(v_cvt_f16_f32, F16, F32, a),
    OP1(v_cvt_f32_f16, F32, F16, a),
    OP2(v_cvt_pk_rtz_f16_f32, U32, F32, F32, float_to_half_rtz(a) | (float_to_half_rtz(b) << 16)),
    OP2(v_cvt_pk_i16_f32, U32, F32, F32, (as<u32v>(to_i16(a)) & 0xffffu) | (as<u32v>(to_i16(b)) << 16)),
    OP2(v_cvt_pk_u16_f32, U32, F32, F32, to_u16(a) | (to_u16(b) << 16)),
    OP2(v_cvt_pk_norm_i16_f32, U32, F32, F32, to_snorm16(a) | (to_snorm16(b) << 16)),
    OP2(v_cvt_pk_norm_u16_f32, U32, F32, F32, to_unorm16(a) | (to_unorm16(b) << 16)),
    OP3(v_cvt_pk_u8_f32, U32, F32, U32, U32, cvt_pk_u8(a, b, c)),
    OP3_AS(v_dot2acc_f32_f16, form::valu_acc, F32, U32, U32, F32, dot2_half(a, b, c)),
    OP3_AS(v_dot2acc_f32_bf16, form::valu_acc, F32, U32, U32, F32, dot2_bfloat(a, b, c)),

    CMP(f_f32, F32, F32, (a != a) & (a == a) & (b == b)),
    CMP(lt_f32, F32, F32, a < b),
    CMP(eq_f32, F32, F32, a == b),
    CMP(le_f32, F32, F32, a <= b),
    CMP(gt_f32, F32, F32, a > b),
    CMP(lg_f32, F32, F32, (a < b) | (a > b)),
    CMP(ge_f32, F32, F32, a >= b),
    CMP(o_f32, F32, F32, (a == a) & (b == b)),
    CMP(u_f32, F32, F32, (a != a) | (b != b)),
    CMP(nge_f32, F32, F32, ~(a >= b)),
    CMP(nlg_f32, F32, F32, ~((a < b) | (a > b))),
    CMP(ngt_f32, F32, F32, ~(a > b)),
    CMP(nle_f32, F32, F32, ~(a <= b)),
    CMP(neq_f32, F32, F32, a != b),
    CMP(nlt_f32, F32, F32, ~(a < b)),
    CMP(t_f32, F32, F32, (a == a) | (a != a) | (b == b)),
    CMP(class_f32, F32, U32, class_test(a, b)),
};
STRATA_TABLE(valu_f32, entries)

}  // namespace strata::emulator::STRATA_ISA
