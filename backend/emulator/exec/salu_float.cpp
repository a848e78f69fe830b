// Scalar floating point of gfx11.5. Values run through the vector functions, so scalar and vector results agree.
#include "math.h"
#include "scalar.h"
#include "tables.h"

namespace strata::emulator::STRATA_ISA {

using u32 = uint32_t;
using i32 = int32_t;

static STRATA_INLINE float min1(float a, float b) { return min_(splatf(a), splatf(b))[0]; }
static STRATA_INLINE float max1(float a, float b) { return max_(splatf(a), splatf(b))[0]; }
static STRATA_INLINE float fma1(float a, float b, float c) { return fma_(splatf(a), splatf(b), splatf(c))[0]; }
static STRATA_INLINE float unpack(u32 h) { return half_to_float(splat(h & 0xffff))[0]; }
static STRATA_INLINE float unpack_raw(u32 h) { return half_to_float_raw(splat(h & 0xffff))[0]; }
/// A scalar f16 result leaves the upper half of its register alone.
static STRATA_INLINE u32 merge(u32 old, u32 half) { return (old & 0xffff0000u) | half; }
static STRATA_INLINE u32 pack(float x) { return float_to_half(splatf(x))[0]; }
static STRATA_INLINE u32 pack_double(double x) { return double_to_half(splatd(x))[0]; }
static STRATA_INLINE u32 pack_rtz(float a, float b) { return float_to_half_rtz(splatf(a))[0] | float_to_half_rtz(splatf(b))[0] << 16; }

#define LITERAL(NAME, ...) {#NAME, form::salu_literal, type::b32, type::b32, type::b32, type::none, nullptr, \
    literal_handler<[](float a, float b, float k) { return __VA_ARGS__; }>, 0}
template <auto F> static STRATA_HANDLER(literal_handler) {
    write_slot(w, i->dst, float(F(read<float>(w, i, 0), read<float>(w, i, 1), __builtin_bit_cast(float, i->src[2]))));
    STRATA_NEXT;
}

#define COMPARES(SUFFIX, T, X, Y) \
    SC(s_cmp_lt_##SUFFIX, T, T, X < Y), SC(s_cmp_eq_##SUFFIX, T, T, X == Y), SC(s_cmp_le_##SUFFIX, T, T, X <= Y), \
    SC(s_cmp_gt_##SUFFIX, T, T, X > Y), SC(s_cmp_lg_##SUFFIX, T, T, X < Y || X > Y), SC(s_cmp_ge_##SUFFIX, T, T, X >= Y), \
    SC(s_cmp_o_##SUFFIX, T, T, X == X && Y == Y), SC(s_cmp_u_##SUFFIX, T, T, X != X || Y != Y), SC(s_cmp_nge_##SUFFIX, T, T, !(X >= Y)), \
    SC(s_cmp_nlg_##SUFFIX, T, T, !(X < Y || X > Y)), SC(s_cmp_ngt_##SUFFIX, T, T, !(X > Y)), SC(s_cmp_nle_##SUFFIX, T, T, !(X <= Y)), \
    SC(s_cmp_neq_##SUFFIX, T, T, X != Y), SC(s_cmp_nlt_##SUFFIX, T, T, !(X < Y))

// f16 operands are read as words with f16 constants.
#define H1(NAME, ...) {#NAME, form::salu, type::b32, type::f16, type::none, type::none, nullptr, \
    STRATA_SCALAR(u32, u32, u32, __VA_ARGS__), 0}
#define H2(NAME, ...) {#NAME, form::salu, type::b32, type::f16, type::f16, type::none, nullptr, \
    STRATA_SCALAR(u32, u32, u32, __VA_ARGS__), 0}
#define HC(NAME, ...) {#NAME, form::salu_compare, type::none, type::f16, type::f16, type::none, nullptr, \
    scalar_compare<u32, u32, [](u32 p, u32 q) STRATA_LAMBDA { \
        const float a = unpack(p), b = unpack(q); \
        return u32(__VA_ARGS__); \
    }>, 0}

static const operation entries[] = {
    S2(s_add_f32, float, float, float, d = a + b),
    S2(s_sub_f32, float, float, float, d = a - b),
    S2(s_mul_f32, float, float, float, d = a * b),
    S2(s_min_f32, float, float, float, d = min1(a, b)),
    S2(s_max_f32, float, float, float, d = max1(a, b)),
    S2(s_fmac_f32, float, float, float, d = fma1(a, b, d)),
    LITERAL(s_fmaak_f32, fma1(a, b, k)),
    LITERAL(s_fmamk_f32, fma1(a, k, b)),
    S2(s_cvt_pk_rtz_f16_f32, u32, float, float, d = pack_rtz(a, b)),
    S1(s_ceil_f32, float, float, d = ceil_(splatf(a))[0]),
    S1(s_floor_f32, float, float, d = floor_(splatf(a))[0]),
    S1(s_trunc_f32, float, float, d = trunc_(splatf(a))[0]),
    S1(s_rndne_f32, float, float, d = rint_(splatf(a))[0]),
    S1(s_cvt_f32_i32, float, i32, d = float(a)),
    S1(s_cvt_f32_u32, float, u32, d = float(a)),
    S1(s_cvt_i32_f32, i32, float, d = to_i32(splatf(a))[0]),
    S1(s_cvt_u32_f32, u32, float, d = to_u32(splatf(a))[0]),
    S1(s_cvt_f16_f32, u32, float, d = merge(d, pack(a))),
    H1(s_cvt_f32_f16, d = __builtin_bit_cast(u32, unpack(a))),
    S1(s_cvt_hi_f32_f16, float, u32, d = unpack(a >> 16)),
    H1(s_ceil_f16, d = merge(d, pack(ceil_(splatf(unpack(a)))[0]))),
    H1(s_floor_f16, d = merge(d, pack(floor_(splatf(unpack(a)))[0]))),
    H1(s_trunc_f16, d = merge(d, pack(trunc_(splatf(unpack(a)))[0]))),
    H1(s_rndne_f16, d = merge(d, pack(rint_(splatf(unpack(a)))[0]))),
    H2(s_add_f16, d = merge(d, pack(unpack(a) + unpack(b)))),
    H2(s_sub_f16, d = merge(d, pack(unpack(a) - unpack(b)))),
    H2(s_mul_f16, d = merge(d, pack(unpack(a) * unpack(b)))),
    H2(s_min_f16, d = merge(d, pack(min1(unpack_raw(a), unpack_raw(b))))),
    H2(s_max_f16, d = merge(d, pack(max1(unpack_raw(a), unpack_raw(b))))),
    H2(s_fmac_f16, d = merge(d, pack_double(double(unpack(a)) * double(unpack(b)) + double(unpack(d))))),

    COMPARES(f32, float, a, b),
    HC(s_cmp_lt_f16, a < b), HC(s_cmp_eq_f16, a == b), HC(s_cmp_le_f16, a <= b), HC(s_cmp_gt_f16, a > b), HC(s_cmp_lg_f16, a < b || a > b),
    HC(s_cmp_ge_f16, a >= b), HC(s_cmp_o_f16, a == a && b == b), HC(s_cmp_u_f16, a != a || b != b), HC(s_cmp_nge_f16, !(a >= b)),
    HC(s_cmp_nlg_f16, !(a < b || a > b)), HC(s_cmp_ngt_f16, !(a > b)), HC(s_cmp_nle_f16, !(a <= b)), HC(s_cmp_neq_f16, a != b),
    HC(s_cmp_nlt_f16, !(a < b)),
};
STRATA_TABLE(salu_float, entries)

}  // namespace strata::emulator::STRATA_ISA
