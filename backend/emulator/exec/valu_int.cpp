// Vector operations on 32-bit integers and bit patterns; dot products of bytes and nibbles.
#include "math.h"
#include "tables.h"
#include "valu.h"

namespace strata::emulator::STRATA_ISA {

template <class V> static STRATA_INLINE V smallest(V a, V b) { return select(a < b, a, b); }
template <class V> static STRATA_INLINE V largest(V a, V b) { return select(a > b, a, b); }

static STRATA_INLINE i32v i24(i32v x) { return (x << 8) >> 8; }
static STRATA_INLINE u32v u24(u32v x) { return x & 0xffffffu; }
static STRATA_INLINE i64v wide(i32v x) { return convert<i64v>(x); }
static STRATA_INLINE u64v wide(u32v x) { return convert<u64v>(x); }
static STRATA_INLINE u32v high(u64v x) { return convert<u32v>(x >> 32); }
static STRATA_INLINE u32v high(i64v x) { return convert<u32v>(as<u64v>(x) >> 32); }

static STRATA_INLINE i32v saturate(i64v x) {
    x = select(x > 0x7fffffffll, i64v{} + 0x7fffffffll, x);
    return convert<i32v>(select(x < -0x80000000ll, i64v{} - 0x80000000ll, x));
}
static STRATA_INLINE u32v saturate(u64v x) { return convert<u32v>(select(i64v(x > 0xffffffffull), u64v{} + 0xffffffffull, x)); }
static STRATA_INLINE u32v add_saturated(u32v a, u32v b) {
    const u32v r = a + b;
    return select(i32v(r < a), splat(0xffffffffu), r);
}
static STRATA_INLINE u32v sub_saturated(u32v a, u32v b) { return select(i32v(a < b), splat(0), a - b); }

static STRATA_INLINE u32v bfe_u(u32v a, u32v b, u32v c) { return (a >> (b & 31u)) & ((splat(1) << (c & 31u)) - 1u); }
static STRATA_INLINE i32v bfe_i(i32v a, u32v b, u32v c) {
    const u32v width = c & 31u;
    const u32v field = as<u32v>(a >> as<i32v>(b & 31u)) & ((splat(1) << width) - 1u);
    const u32v sign = (splat(1) << width) >> 1;
    return as<i32v>((field ^ sign) - sign);
}
static STRATA_INLINE u32v reverse(u32v x) {
    x = ((x >> 1) & 0x55555555u) | ((x & 0x55555555u) << 1);
    x = ((x >> 2) & 0x33333333u) | ((x & 0x33333333u) << 2);
    x = ((x >> 4) & 0x0f0f0f0fu) | ((x & 0x0f0f0f0fu) << 4);
    x = ((x >> 8) & 0x00ff00ffu) | ((x & 0x00ff00ffu) << 8);
    return (x >> 16) | (x << 16);
}
static STRATA_INLINE u32v population(u32v x) {
    x = x - ((x >> 1) & 0x55555555u);
    x = (x & 0x33333333u) + ((x >> 2) & 0x33333333u);
    x = (x + (x >> 4)) & 0x0f0f0f0fu;
    return (x * 0x01010101u) >> 24;
}
/// Leading zeros; 32 for 0.
static STRATA_INLINE u32v leading(u32v x) {
    x |= x >> 1;
    x |= x >> 2;
    x |= x >> 4;
    x |= x >> 8;
    x |= x >> 16;
    return 32u - population(x);
}
static STRATA_INLINE i32v clz(u32v x) { return select(i32v(x == 0u), i32v{} - 1, as<i32v>(leading(x))); }
static STRATA_INLINE i32v ctz(u32v x) { return select(i32v(x == 0u), i32v{} - 1, as<i32v>(population((x & (0u - x)) - 1u))); }
static STRATA_INLINE i32v cls(i32v x) {
    const u32v y = as<u32v>(x ^ (x >> 31));
    return select(i32v(y == 0u), i32v{} - 1, as<i32v>(leading(y)));
}
static STRATA_INLINE u32v byte(u32v x, int n) { return (x >> (8 * n)) & 0xffu; }
static STRATA_INLINE u32v difference(u32v a, u32v b) { return select(i32v(a > b), a - b, b - a); }
static STRATA_INLINE u32v sad_u8(u32v a, u32v b) {
    u32v r = splat(0);
    for (int n = 0; n < 4; n++) r += difference(byte(a, n), byte(b, n));
    return r;
}
static STRATA_INLINE u32v msad_u8(u32v a, u32v b) {
    u32v r = splat(0);
    for (int n = 0; n < 4; n++) r += select(i32v(byte(b, n) == 0u), splat(0), difference(byte(a, n), byte(b, n)));
    return r;
}
static STRATA_INLINE u32v lerp(u32v a, u32v b, u32v c) {
    u32v r = splat(0);
    for (int n = 0; n < 4; n++) r |= ((byte(a, n) + byte(b, n) + (c >> (8 * n) & 1u)) >> 1) << (8 * n);
    return r;
}
static STRATA_INLINE u32v perm(u32v a, u32v b, u32v selectors) {
    const u64v data = join(b, a);
    u32v r = splat(0);
    for (int n = 0; n < 4; n++) {
        const u32v s = byte(selectors, n);
        u32v x = convert<u32v>(data >> wide((s & 7u) << 3)) & 0xffu;
        // 8..11: the sign of byte 1, 3, 5, 7
        const u32v sign = convert<u32v>(data >> wide((((s & 3u) << 1) + 1u) * 8u + 7u)) & 1u;
        x = select(i32v(s >= 8u), 0u - sign, x);
        x = select(i32v(s == 12u), splat(0), x);
        x = select(i32v(s >= 13u), splat(0xffu), x);
        r |= (x & 0xffu) << (8 * n);
    }
    return r;
}
static STRATA_INLINE u32v pack_i16(i32v a, i32v b) {
    return (as<u32v>(clamp_i32(a, -32768, 32767)) & 0xffffu) | (as<u32v>(clamp_i32(b, -32768, 32767)) << 16);
}
static STRATA_INLINE u32v sad_u16(u32v a, u32v b) { return difference(a & 0xffffu, b & 0xffffu) + difference(a >> 16, b >> 16); }

// Sums of products of N-bit fields, exact in 64 bits for clamp and modulo 2^32 otherwise.
template <int bits, bool sa, bool sb> static STRATA_INLINE i32v dot(u32v a, u32v b) {
    i32v r = i32v{};
    for (int n = 0; n < 32; n += bits) {
        const int up = 32 - bits - n;
        const i32v x = sa ? as<i32v>(a << up) >> (32 - bits) : as<i32v>((a << up) >> (32 - bits));
        const i32v y = sb ? as<i32v>(b << up) >> (32 - bits) : as<i32v>((b << up) >> (32 - bits));
        r += x * y;
    }
    return r;
}
template <int bits> static STRATA_INLINE i32v dot_signs(const inst * i, u32v a, u32v b) {
    switch (i->neg & 3) {
    case 0: return dot<bits, false, false>(a, b);
    case 1: return dot<bits, true, false>(a, b);
    case 2: return dot<bits, false, true>(a, b);
    default: return dot<bits, true, true>(a, b);
    }
}
/// neg says which side is signed.
template <int bits> static STRATA_HANDLER(dot_iu) {
    const uint32_t lanes = active(w, i);
    const u32v a = fetch(w, i, 0), b = fetch(w, i, 1);
    const i32v c = as<i32v>(fetch(w, i, 2));
    const i32v sum = dot_signs<bits>(i, a, b);
    const i32v d = i->clamp ? saturate(wide(sum) + wide(c)) : sum + c;
    put_row(w, i->dst, as<u32v>(d), lanes);
    STRATA_NEXT;
}
static STRATA_HANDLER(dot4_iu8_rows) {
    const u32v a = get_row<U32>(w, i, 0), b = get_row<U32>(w, i, 1);
    const i32v c = get_row<I32>(w, i, 2);
    put_row(w, i->dst, as<u32v>(dot_signs<8>(i, a, b) + c), w->s[slot_exec]);
    STRATA_NEXT;
}
template <int bits> static STRATA_HANDLER(dot_u) {
    const uint32_t lanes = active(w, i);
    const u32v sum = as<u32v>(dot<bits, false, false>(fetch(w, i, 0), fetch(w, i, 1)));
    const u32v c = fetch(w, i, 2);
    put_row(w, i->dst, i->clamp ? add_saturated(sum, c) : sum + c, lanes);
    STRATA_NEXT;
}

static STRATA_INLINE u32v mbcnt(u32v a, u32v b, bool low) {
    return low ? population(a & (lane_bit - 1u)) + b : b;  // wave32: no lane has lanes below it in the high half
}

static STRATA_INLINE u32v add_carry(u32v a, u32v b, uint32_t carry, uint32_t & out) {
    const u32v c = as<u32v>(mask_lanes(carry)) & 1u;
    const u64v r = wide(a) + wide(b) + wide(c);
    out = lane_bits(i32v(high(r) != 0u));
    return convert<u32v>(r);
}
static STRATA_INLINE u32v sub_borrow(u32v a, u32v b, uint32_t borrow, uint32_t & out) {
    const u32v c = as<u32v>(mask_lanes(borrow)) & 1u;
    out = lane_bits(i64v(wide(a) < wide(b) + wide(c)));
    return a - b - c;
}
// With clamp, a carry saturates.
static constexpr auto clamp_up = [](u32v d, uint32_t bits) STRATA_LAMBDA { return select(mask_lanes(bits), splat(0xffffffffu), d); };
static constexpr auto clamp_down = [](u32v d, uint32_t bits) STRATA_LAMBDA { return select(mask_lanes(bits), splat(0), d); };

static STRATA_INLINE u64v mad_u64(u32v a, u32v b, u64v c, uint32_t & out) {
    const u64v r = wide(a) * wide(b) + c;
    out = lane_bits(i64v(r < c));
    return r;
}
static STRATA_INLINE i64v mad_i64(i32v a, i32v b, i64v c, uint32_t & out) {
    const i64v product = wide(a) * wide(b);
    const i64v r = as<i64v>(as<u64v>(product) + as<u64v>(c));
    // Bit 64 of the 65-bit signed sum.
    out = lane_bits(i64v((((product & c) | ((product | c) & ~r)) ^ product ^ c) < 0));
    return r;
}

#define COMPARES(T, S) \
    CMP(lt_##T, S, S, a < b), CMP(eq_##T, S, S, a == b), CMP(le_##T, S, S, a <= b), CMP(gt_##T, S, S, a > b), CMP(ne_##T, S, S, a != b), \
        CMP(ge_##T, S, S, a >= b)

static const operation entries[] = {
    OP1(v_mov_b32, R32, R32, a),
    OP1(v_not_b32, U32, U32, ~a),
    OP1(v_bfrev_b32, U32, U32, reverse(a)),
    OP1(v_clz_i32_u32, I32, U32, clz(a)),
    OP1(v_ctz_i32_b32, I32, U32, ctz(a)),
    OP1(v_cls_i32, I32, I32, cls(a)),
    OP1(v_cvt_i32_i16, I32, I16, a),
    OP1(v_cvt_u32_u16, U32, U16, a),
    OP2(v_and_b32, U32, U32, U32, a & b),
    OP2(v_or_b32, U32, U32, U32, a | b),
    OP2(v_xor_b32, U32, U32, U32, a ^ b),
    OP2(v_xnor_b32, U32, U32, U32, ~(a ^ b)),
    OP2(v_lshlrev_b32, U32, U32, U32, b << (a & 31u)),
    OP2(v_lshrrev_b32, U32, U32, U32, b >> (a & 31u)),
    OP2(v_ashrrev_i32, I32, U32, I32, b >> as<i32v>(a & 31u)),
    OP2C(v_add_nc_u32, U32, U32, U32, a + b, add_saturated(a, b)),
    OP2C(v_sub_nc_u32, U32, U32, U32, a - b, sub_saturated(a, b)),
    OP2C(v_subrev_nc_u32, U32, U32, U32, b - a, sub_saturated(b, a)),
    OP2C(v_add_nc_i32, I32, I32, I32, as<i32v>(as<u32v>(a) + as<u32v>(b)), saturate(wide(a) + wide(b))),
    OP2C(v_sub_nc_i32, I32, I32, I32, as<i32v>(as<u32v>(a) - as<u32v>(b)), saturate(wide(a) - wide(b))),
    OP2(v_min_i32, I32, I32, I32, smallest(a, b)),
    OP2(v_max_i32, I32, I32, I32, largest(a, b)),
    OP2(v_min_u32, U32, U32, U32, as<u32v>(select(i32v(a < b), a, b))),
    OP2(v_max_u32, U32, U32, U32, as<u32v>(select(i32v(a > b), a, b))),
    OP3(v_min3_i32, I32, I32, I32, I32, smallest(smallest(a, b), c)),
    OP3(v_max3_i32, I32, I32, I32, I32, largest(largest(a, b), c)),
    OP3(v_med3_i32, I32, I32, I32, I32, largest(smallest(a, b), smallest(largest(a, b), c))),
    OP3(v_minmax_i32, I32, I32, I32, I32, largest(smallest(a, b), c)),
    OP3(v_maxmin_i32, I32, I32, I32, I32, smallest(largest(a, b), c)),
    OP3(v_min3_u32, U32, U32, U32, U32, smallest(smallest(a, b), c)),
    OP3(v_max3_u32, U32, U32, U32, U32, largest(largest(a, b), c)),
    OP3(v_med3_u32, U32, U32, U32, U32, largest(smallest(a, b), smallest(largest(a, b), c))),
    OP3(v_minmax_u32, U32, U32, U32, U32, largest(smallest(a, b), c)),
    OP3(v_maxmin_u32, U32, U32, U32, U32, smallest(largest(a, b), c)),
    OP2(v_mul_lo_u32, U32, U32, U32, a * b),
    OP2(v_mul_hi_u32, U32, U32, U32, high(wide(a) * wide(b))),
    OP2(v_mul_hi_i32, U32, I32, I32, high(wide(a) * wide(b))),
    OP2(v_mul_i32_i24, I32, I32, I32, i24(a) * i24(b)),
    OP2(v_mul_hi_i32_i24, U32, I32, I32, high(wide(i24(a)) * wide(i24(b)))),
    OP2(v_mul_u32_u24, U32, U32, U32, u24(a) * u24(b)),
    OP2(v_mul_hi_u32_u24, U32, U32, U32, high(wide(u24(a)) * wide(u24(b)))),
    OP3C(v_mad_i32_i24, I32, I32, I32, I32, as<i32v>(as<u32v>(i24(a)) * as<u32v>(i24(b)) + as<u32v>(c)),
         saturate(wide(i24(a)) * wide(i24(b)) + wide(c))),
    OP3C(v_mad_u32_u24, U32, U32, U32, U32, u24(a) * u24(b) + c, saturate(wide(u24(a)) * wide(u24(b)) + wide(c))),
    OP3C(v_mad_u32_u16, U32, U16, U16, U32, a * b + c, saturate(wide(a) * wide(b) + wide(c))),
    OP3C(v_mad_i32_i16, I32, I16, I16, I32, as<i32v>(as<u32v>(a * b) + as<u32v>(c)), saturate(wide(a) * wide(b) + wide(c))),
    OP3(v_bfe_u32, U32, U32, U32, U32, bfe_u(a, b, c)),
    OP3(v_bfe_i32, I32, I32, U32, U32, bfe_i(a, b, c)),
    OP3(v_bfi_b32, U32, U32, U32, U32, (a & b) | (~a & c)),
    OP3(v_alignbit_b32, U32, U32, U32, U32, convert<u32v>(join(b, a) >> wide(c & 31u))),
    OP3(v_alignbyte_b32, U32, U32, U32, U32, convert<u32v>(join(b, a) >> wide((c & 3u) << 3))),
    OP3(v_perm_b32, U32, U32, U32, U32, perm(a, b, c)),
    OP3(v_lerp_u8, U32, U32, U32, U32, lerp(a, b, c)),
    OP3C(v_sad_u8, U32, U32, U32, U32, sad_u8(a, b) + c, add_saturated(sad_u8(a, b), c)),
    OP3C(v_sad_hi_u8, U32, U32, U32, U32, (sad_u8(a, b) << 16) + c, add_saturated(sad_u8(a, b) << 16, c)),
    OP3C(v_sad_u16, U32, U32, U32, U32, sad_u16(a, b) + c, add_saturated(sad_u16(a, b), c)),
    OP3C(v_sad_u32, U32, U32, U32, U32, difference(a, b) + c, add_saturated(difference(a, b), c)),
    OP3C(v_msad_u8, U32, U32, U32, U32, msad_u8(a, b) + c, add_saturated(msad_u8(a, b), c)),
    OP3(v_xor3_b32, U32, U32, U32, U32, a ^ b ^ c),
    OP3(v_or3_b32, U32, U32, U32, U32, a | b | c),
    OP3(v_and_or_b32, U32, U32, U32, U32, (a & b) | c),
    OP3(v_lshl_or_b32, U32, U32, U32, U32, (a << (b & 31u)) | c),
    OP3(v_lshl_add_u32, U32, U32, U32, U32, (a << (b & 31u)) + c),
    OP3(v_add_lshl_u32, U32, U32, U32, U32, (a + b) << (c & 31u)),
    OP3(v_add3_u32, U32, U32, U32, U32, a + b + c),
    OP3(v_xad_u32, U32, U32, U32, U32, (a ^ b) + c),
    OP2(v_bfm_b32, U32, U32, U32, ((splat(1) << (a & 31u)) - 1u) << (b & 31u)),
    OP2(v_bcnt_u32_b32, U32, U32, U32, population(a) + b),
    OP2(v_mbcnt_lo_u32_b32, U32, U32, U32, mbcnt(a, b, true)),
    OP2(v_mbcnt_hi_u32_b32, U32, U32, U32, mbcnt(a, b, false)),
    OP2(v_cvt_pk_u16_u32, U32, U32, U32, min_u32(a, 65535) | (min_u32(b, 65535) << 16)),
    OP2(v_cvt_pk_i16_i32, U32, I32, I32, pack_i16(a, b)),
    OP3_AS(v_cndmask_b32, form::valu_mask, R32, R32, R32, M, select(mask_lanes(c), b, a)),

    CARRY2(v_add_co_u32, U32, U32, U32, add_carry(a, b, 0, out), clamp_up),
    CARRY2(v_sub_co_u32, U32, U32, U32, sub_borrow(a, b, 0, out), clamp_down),
    CARRY2(v_subrev_co_u32, U32, U32, U32, sub_borrow(b, a, 0, out), clamp_down),
    CARRY3(v_add_co_ci_u32, U32, U32, U32, M, add_carry(a, b, c, out), clamp_up),
    CARRY3(v_sub_co_ci_u32, U32, U32, U32, M, sub_borrow(a, b, c, out), clamp_down),
    CARRY3(v_subrev_co_ci_u32, U32, U32, U32, M, sub_borrow(b, a, c, out), clamp_down),
    CARRY3(v_mad_u64_u32, U64, U32, U32, U64, mad_u64(a, b, c, out), nullptr),
    CARRY3(v_mad_i64_i32, I64, I32, I32, I64, mad_i64(a, b, c, out), nullptr),

    {"v_dot4_i32_iu8", form::valu, type::i32, type::b32, type::b32, type::i32, dot4_iu8_rows, dot_iu<8>, op_int_clamp | op_neg_is_sign},
    {"v_dot8_i32_iu4", form::valu, type::i32, type::b32, type::b32, type::i32, nullptr, dot_iu<4>, op_int_clamp | op_neg_is_sign},
    {"v_dot4_u32_u8", form::valu, type::b32, type::b32, type::b32, type::b32, nullptr, dot_u<8>, op_int_clamp},
    {"v_dot8_u32_u4", form::valu, type::b32, type::b32, type::b32, type::b32, nullptr, dot_u<4>, op_int_clamp},

    CMP(f_i32, I32, I32, (a != a) & (b != b)), CMP(t_i32, I32, I32, (a == a) | (b == b)), COMPARES(i32, I32),
    CMP(f_u32, U32, U32, i32v((a != a) & (b != b))), CMP(t_u32, U32, U32, i32v((a == a) | (b == b))), COMPARES(u32, U32),
};
STRATA_TABLE(valu_int, entries)

}  // namespace strata::emulator::STRATA_ISA
