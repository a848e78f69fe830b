// Vector operations on f64 and 64-bit integers.
#include "math.h"
#include "tables.h"
#include "valu.h"

#include "two_over_pi.h"

namespace strata::emulator::STRATA_ISA {

static STRATA_INLINE i32v exponent(f64v x) { return convert<i32v>(as<i64v>(as<u64v>(x) >> 52 & 0x7ffull)); }
static STRATA_INLINE i64v wide_mask(i32v m) { return convert<i64v>(m); }

/// x * 2^n, rounded once: by libm, lane by lane (rare).
static STRATA_INLINE f64v ldexp_(f64v x, i32v n) {
    f64v r;
    for (int lane = 0; lane < 32; lane++) r[lane] = std::ldexp(x[lane], n[lane]);
    return r;
}
static STRATA_INLINE i32v frexp_exp(f64v x) {
    const u64v bits = as<u64v>(x) & 0x7fffffffffffffffull;
    const i64v denormal = i64v(bits < 0x0010000000000000ull) & i64v(bits != 0ull);
    const u64v scaled = as<u64v>(as<f64v>(bits) * 0x1p60);
    const i64v e = select(denormal, as<i64v>(scaled >> 52) - 1022 - 60, as<i64v>(bits >> 52) - 1022);
    return convert<i32v>(select(i64v(bits == 0ull) | i64v(bits >= 0x7ff0000000000000ull), i64v{}, e));
}
static STRATA_INLINE f64v frexp_mant(f64v x) {
    const u64v bits = as<u64v>(x) & 0x7fffffffffffffffull;
    const u64v scaled = select(i64v(bits < 0x0010000000000000ull), as<u64v>(as<f64v>(bits) * 0x1p60), bits);
    const u64v m = (scaled & 0x000fffffffffffffull) | 0x3fe0000000000000ull | (as<u64v>(x) & (1ull << 63));
    const f64v r = as<f64v>(select(i64v(bits == 0ull) | i64v(bits >= 0x7ff0000000000000ull), as<u64v>(x), m));
    return select(is_nan(x), quieted(x), r);
}
static STRATA_INLINE i32v class_test(f64v x, u32v mask) {
    const u64v bits = as<u64v>(x);
    const u64v magnitude = bits & 0x7fffffffffffffffull;
    u64v n = select(i64v(magnitude == 0ull), splat64(6), splat64(7));
    n = select(i64v(magnitude >= 0x0010000000000000ull), splat64(8), n);
    n = select(i64v(magnitude >= 0x7ff0000000000000ull), splat64(9), n);
    n = select(i64v(as<i64v>(bits) < 0), 11ull - n, n);
    n = select(i64v(magnitude > 0x7ff0000000000000ull), splat64(0), n);
    n = select(i64v(magnitude >= 0x7ff8000000000000ull), splat64(1), n);
    return (as<i32v>(mask >> convert<u32v>(n)) & 1) != 0;
}

static STRATA_INLINE f64v div_fixup(f64v s0, f64v s1, f64v s2) {
    const u64v sign = (as<u64v>(s1) ^ as<u64v>(s2)) & (1ull << 63);
    const auto signed_ = [&](f64v x) STRATA_LAMBDA { return as<f64v>((as<u64v>(x) & 0x7fffffffffffffffull) | sign); };
    const i32v e1 = exponent(s1), e2 = exponent(s2);
    const f64v inf = splatd(__builtin_inf());
    // A quotient that overflows reaches this instruction as NaN, of infinity times zero in the steps before.
    f64v r = select(is_nan(s0), signed_(inf), signed_(s0));
    r = select(wide_mask(e1 == 2047), signed_(inf), r);
    r = select(wide_mask(e2 - e1 < -1075), signed_(splatd(0)), r);
    const i64v inf1 = abs_(s1) == inf, inf2 = abs_(s2) == inf, zero1 = s1 == 0.0, zero2 = s2 == 0.0;
    r = select(inf1 | zero2, signed_(splatd(0)), r);
    r = select(zero1 | inf2, signed_(inf), r);
    r = select((zero1 & zero2) | (inf1 & inf2), as<f64v>(splat64(0xfff8000000000000ull)), r);
    r = select(is_nan(s1), quieted(s1), r);
    return select(is_nan(s2), quieted(s2), r);
}
static STRATA_INLINE f64v div_scale(f64v s0, f64v s1, f64v s2, uint32_t & bits) {
    const i32v e1 = exponent(s1), e2 = exponent(s2);
    const auto denormal = [](f64v x) STRATA_LAMBDA { return i64v((x != 0.0) & (abs_(x) < 0x1p-1022)); };
    const i64v bad = (s1 == 0.0) | (s2 == 0.0);
    const i64v large = wide_mask(e2 - e1 >= 768);
    const i64v den1 = denormal(s1);
    const i64v tiny_rcp = denormal(1.0 / s1);
    const i64v tiny_quotient = denormal(s2 / s1);
    const i64v small = wide_mask(e2 <= 53);
    const f64v up = ldexp_(s0, i32v{} + 128), down = ldexp_(s0, i32v{} - 128);
    const i64v is1 = s0 == s1, is2 = s0 == s2;
    f64v r = select(small, up, s0);
    i64v vcc = tiny_quotient;
    r = select(tiny_quotient, select(is2, up, s0), r);
    r = select(tiny_rcp, select(tiny_quotient, select(is1, down, s0), down), r);
    vcc = select(tiny_rcp, tiny_quotient, vcc);
    r = select(den1, up, r);
    vcc = select(den1, i64v{}, vcc);
    r = select(large, select(is1, up, s0), r);
    vcc = select(large, i64v{} - 1, vcc);
    r = select(bad, splatd(__builtin_nan("")), r);
    bits = lane_bits(select(bad, i64v{}, vcc));
    return r;
}
/// (a * b + c) * 2^-128, rounded once. The sum is taken to 113 bits, the last of them odd where it is not exact.
static __attribute__((noinline)) double fma_scaled_down(double a, double b, double c) {
    using wide = __float128;
    if (!__builtin_isfinite(a) || !__builtin_isfinite(b) || !__builtin_isfinite(c)) return std::fma(a, b, c);
    const wide product = wide(a) * wide(b), addend = c;
    wide sum = product + addend;
    const wide other = sum - product;
    const wide error = (product - (sum - other)) + (addend - other);
    if (error != 0) {
        unsigned __int128 bits;
        std::memcpy(&bits, &sum, sizeof bits);
        if ((error < 0) != (sum < 0)) bits--;
        bits |= 1;
        std::memcpy(&sum, &bits, sizeof bits);
    }
    return double(sum * wide(0x1p-128));
}
static STRATA_HANDLER(v_div_fmas_f64) {
    const uint32_t lanes = active(w, i);
    const f64v a = get<F64>(w, i, 0), b = get<F64>(w, i, 1), c = get<F64>(w, i, 2);
    const f64v r = fma_(a, b, c);
    // The quotient's size says which way div_scale scaled.
    const i64v large = wide_mask(exponent(c) > 1023);
    const i64v scaled = mask_lanes64(w->s[slot_vcc]);
    f64v d = select(scaled & large, r * 0x1p128, r);
    for (uint32_t rest = lane_bits(i64v(scaled & ~large)); rest; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        d[lane] = fma_scaled_down(a[lane], b[lane], c[lane]);
    }
    if (i->clamp | i->omod) d = output_modifiers(i, d);
    put<F64>(w, i->dst, d, lanes);
    STRATA_NEXT;
}
static STRATA_INLINE f64v trig_preop(f64v x, u32v segment) {
    f64v r;
    for (int lane = 0; lane < 32; lane++) {
        const int e = int(__builtin_bit_cast(uint64_t, double(x[lane])) >> 52 & 0x7ff);
        int shift = int(segment[lane] & 31) * 53;
        if (e > 1077) shift += e - 1077;
        int scale = -53 - shift;
        if (e >= 1968) scale += 128;
        r[lane] = std::ldexp(double(two_over_pi_bits(shift)), scale);
    }
    return r;
}

#define COMPARES(T, S) \
    CMP(lt_##T, S, S, a < b), CMP(eq_##T, S, S, a == b), CMP(le_##T, S, S, a <= b), CMP(gt_##T, S, S, a > b), CMP(ne_##T, S, S, a != b), \
        CMP(ge_##T, S, S, a >= b), CMP(f_##T, S, S, (a != a) & (b != b)), CMP(t_##T, S, S, (a == a) | (b == b))

static const operation entries[] = {
    OP2(v_add_f64, F64, F64, F64, a + b),
    OP2(v_mul_f64, F64, F64, F64, a * b),
    OP2(v_min_f64, F64, F64, F64, min_(a, b)),
    OP2(v_max_f64, F64, F64, F64, max_(a, b)),
    OP3(v_fma_f64, F64, F64, F64, F64, fma_(a, b, c)),
    OP2(v_ldexp_f64, F64, F64, I32, ldexp_(a, b)),
    OP3(v_div_fixup_f64, F64, F64, F64, F64, div_fixup(a, b, c)),
    {"v_div_fmas_f64", form::valu, type::f64, type::f64, type::f64, type::f64, nullptr, v_div_fmas_f64, 0},
    CARRY3(v_div_scale_f64, F64, F64, F64, F64, div_scale(a, b, c, out), nullptr),
    OP1(v_rcp_f64, F64, F64, 1.0 / a),
    OP1(v_rsq_f64, F64, F64, rsq_double(a)),
    OP1(v_sqrt_f64, F64, F64, select(i64v(a < 0.0), splatd(__builtin_nan("")), sqrt_(select(i64v(a < 0.0), splatd(1), a)))),
    OP1(v_trunc_f64, F64, F64, trunc_(a)),
    OP1(v_ceil_f64, F64, F64, ceil_(a)),
    OP1(v_rndne_f64, F64, F64, rint_(a)),
    OP1(v_floor_f64, F64, F64, floor_(a)),
    OP1(v_fract_f64, F64, F64, fract(a)),
    OP1(v_frexp_exp_i32_f64, I32, F64, frexp_exp(a)),
    OP1(v_frexp_mant_f64, F64, F64, frexp_mant(a)),
    OP2(v_trig_preop_f64, F64, F64, U32, trig_preop(a, b)),
    OP1(v_cvt_f64_i32, F64, I32, convert<f64v>(a)),
    OP1(v_cvt_f64_u32, F64, U32, convert<f64v>(convert<i64v>(a))),
    OP1(v_cvt_f64_f32, F64, F32, convert<f64v>(a)),
    OP1(v_cvt_f32_f64, F32, F64, convert<f32v>(a)),
    OP1(v_cvt_i32_f64, I32, F64, to_i32(a)),
    OP1(v_cvt_u32_f64, U32, F64, to_u32(a)),
    OP2(v_lshlrev_b64, U64, U32, U64, b << convert<u64v>(a & 63u)),
    OP2(v_lshrrev_b64, U64, U32, U64, b >> convert<u64v>(a & 63u)),
    OP2(v_ashrrev_i64, I64, U32, I64, b >> convert<i64v>(a & 63u)),

    COMPARES(i64, I64),
    COMPARES(u64, U64),
    CMP(f_f64, F64, F64, (a != a) & (a == a) & (b == b)),
    CMP(lt_f64, F64, F64, a < b),
    CMP(eq_f64, F64, F64, a == b),
    CMP(le_f64, F64, F64, a <= b),
    CMP(gt_f64, F64, F64, a > b),
    CMP(lg_f64, F64, F64, (a < b) | (a > b)),
    CMP(ge_f64, F64, F64, a >= b),
    CMP(o_f64, F64, F64, (a == a) & (b == b)),
    CMP(u_f64, F64, F64, (a != a) | (b != b)),
    CMP(nge_f64, F64, F64, ~(a >= b)),
    CMP(nlg_f64, F64, F64, ~((a < b) | (a > b))),
    CMP(ngt_f64, F64, F64, ~(a > b)),
    CMP(nle_f64, F64, F64, ~(a <= b)),
    CMP(neq_f64, F64, F64, a != b),
    CMP(nlt_f64, F64, F64, ~(a < b)),
    CMP(t_f64, F64, F64, (a == a) | (a != a) | (b == b)),
    CMP(class_f64, F64, U32, class_test(a, b)),
};
STRATA_TABLE(valu_64, entries)

}  // namespace strata::emulator::STRATA_ISA
