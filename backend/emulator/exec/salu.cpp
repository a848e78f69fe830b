// Scalar operations.
#include "scalar.h"
#include "tables.h"

namespace strata::emulator::STRATA_ISA {

static STRATA_INLINE uint32_t mask_of(uint32_t width) { return width >= 32 ? ~0u : (1u << width) - 1; }
static STRATA_INLINE uint64_t mask_of64(uint32_t width) { return width >= 64 ? ~0ull : (1ull << width) - 1; }

static STRATA_INLINE int32_t sign_extend(uint32_t x, uint32_t width) {
    if (width == 0) return 0;
    if (width >= 32) return int32_t(x);
    return int32_t(x << (32 - width)) >> (32 - width);
}
static STRATA_INLINE int64_t sign_extend64(uint64_t x, uint32_t width) {
    if (width == 0) return 0;
    if (width >= 64) return int64_t(x);
    return int64_t(x << (64 - width)) >> (64 - width);
}
static STRATA_INLINE uint64_t reverse64(uint64_t x) { return __builtin_bitreverse64(x); }
static STRATA_INLINE uint64_t interleave(uint32_t x) {
    uint64_t r = 0;
    for (int n = 0; n < 32; n++) r |= uint64_t(x >> n & 1) * 3 << (2 * n);
    return r;
}
static STRATA_INLINE uint64_t quads(uint64_t x, int count, bool whole) {
    uint64_t r = 0;
    for (int n = 0; n < count; n++) {
        if (x >> (4 * n) & 15) r |= whole ? 15ull << (4 * n) : 1ull << n;
    }
    return r;
}

// exec = f(source, exec); d = the old exec, or the new one for wrexec. In wave32 the 64-bit forms act on 32 lanes.
template <auto F, bool write_new> static STRATA_HANDLER(saveexec) {
    const uint32_t a = read<uint32_t>(w, i, 0);
    const uint32_t old = w->s[slot_exec];
    const uint32_t now = F(a, old);
    w->s[slot_exec] = now;
    w->s[i->dst] = write_new ? now : old;
    w->s[slot_scc] = now != 0;
    STRATA_NEXT;
}
#define EXEC(NAME, NEW, ...) {#NAME, form::salu, type::b32, type::b32, type::none, type::none, nullptr, \
    saveexec<[](uint32_t a, uint32_t e) { return uint32_t(__VA_ARGS__); }, NEW>, 0}

static STRATA_HANDLER(movrels_b32) {
    const uint32_t from = (i->src[0] + w->s[slot_m0]) & 127;
    w->s[i->dst] = w->s[from];
    STRATA_NEXT;
}
static STRATA_HANDLER(movrels_b64) {
    const uint32_t from = (i->src[0] + w->s[slot_m0]) & 126;
    const uint32_t low = w->s[from], high = w->s[from + 1];
    w->s[i->dst] = low;
    w->s[i->dst + 1] = high;
    STRATA_NEXT;
}
static STRATA_HANDLER(movreld_b32) {
    w->s[(i->dst + w->s[slot_m0]) & 127] = read<uint32_t>(w, i, 0);
    STRATA_NEXT;
}
static STRATA_HANDLER(movreld_b64) {
    const uint32_t to = (i->dst + w->s[slot_m0]) & 126;
    const uint64_t x = read<uint64_t>(w, i, 0);
    w->s[to] = uint32_t(x);
    w->s[to + 1] = uint32_t(x >> 32);
    STRATA_NEXT;
}
static STRATA_HANDLER(movrelsd_2_b32) {
    const uint32_t m0 = w->s[slot_m0];
    w->s[(i->dst + (m0 >> 16 & 0x3ff)) & 127] = w->s[(i->src[0] + (m0 & 0x3ff)) & 127];
    STRATA_NEXT;
}

using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;

static const operation entries[] = {
    S1(s_mov_b32, u32, u32, d = a),
    S1(s_mov_b64, u64, u64, d = a),
    S1(s_cmov_b32, u32, u32, d = scc ? a : d),
    S1(s_cmov_b64, u64, u64, d = scc ? a : d),
    S1(s_brev_b32, u32, u32, d = u32(reverse64(a) >> 32)),
    S1(s_brev_b64, u64, u64, d = reverse64(a)),
    S1(s_ctz_i32_b32, u32, u32, d = a ? u32(__builtin_ctz(a)) : ~0u),
    S1(s_ctz_i32_b64, u32, u64, d = a ? u32(__builtin_ctzll(a)) : ~0u),
    S1(s_clz_i32_u32, u32, u32, d = a ? u32(__builtin_clz(a)) : ~0u),
    S1(s_clz_i32_u64, u32, u64, d = a ? u32(__builtin_clzll(a)) : ~0u),
    S1(s_cls_i32, u32, i32, a = a ^ (a >> 31), d = a ? u32(__builtin_clz(u32(a))) : ~0u),
    S1(s_cls_i32_i64, u32, i64, a = a ^ (a >> 63), d = a ? u32(__builtin_clzll(u64(a))) : ~0u),
    S1(s_sext_i32_i8, i32, u32, d = int8_t(a)),
    S1(s_sext_i32_i16, i32, u32, d = int16_t(a)),
    S1(s_bitset0_b32, u32, u32, d &= ~(1u << (a & 31))),
    S1(s_bitset0_b64, u64, u32, d &= ~(1ull << (a & 63))),
    S1(s_bitset1_b32, u32, u32, d |= 1u << (a & 31)),
    S1(s_bitset1_b64, u64, u32, d |= 1ull << (a & 63)),
    S1(s_bitreplicate_b64_b32, u64, u32, d = interleave(a)),
    S1(s_abs_i32, i32, i32, d = a < 0 ? i32(0u - u32(a)) : a, scc = d != 0),
    S1(s_bcnt0_i32_b32, u32, u32, d = u32(__builtin_popcount(~a)), scc = d != 0),
    S1(s_bcnt0_i32_b64, u32, u64, d = u32(__builtin_popcountll(~a)), scc = d != 0),
    S1(s_bcnt1_i32_b32, u32, u32, d = u32(__builtin_popcount(a)), scc = d != 0),
    S1(s_bcnt1_i32_b64, u32, u64, d = u32(__builtin_popcountll(a)), scc = d != 0),
    S1(s_quadmask_b32, u32, u32, d = u32(quads(a, 8, false)), scc = d != 0),
    S1(s_quadmask_b64, u64, u64, d = quads(a, 16, false), scc = d != 0),
    S1(s_wqm_b32, u32, u32, d = u32(quads(a, 8, true)), scc = d != 0),
    S1(s_wqm_b64, u64, u64, d = quads(a, 16, true), scc = d != 0),
    S1(s_not_b32, u32, u32, d = ~a, scc = d != 0),
    S1(s_not_b64, u64, u64, d = ~a, scc = d != 0),
    EXEC(s_and_saveexec_b32, false, a & e),
    EXEC(s_or_saveexec_b32, false, a | e),
    EXEC(s_xor_saveexec_b32, false, a ^ e),
    EXEC(s_nand_saveexec_b32, false, ~(a & e)),
    EXEC(s_nor_saveexec_b32, false, ~(a | e)),
    EXEC(s_xnor_saveexec_b32, false, ~(a ^ e)),
    EXEC(s_and_not0_saveexec_b32, false, ~a & e),
    EXEC(s_or_not0_saveexec_b32, false, ~a | e),
    EXEC(s_and_not1_saveexec_b32, false, a & ~e),
    EXEC(s_or_not1_saveexec_b32, false, a | ~e),
    EXEC(s_and_not0_wrexec_b32, true, ~a & e),
    EXEC(s_and_not1_wrexec_b32, true, a & ~e),
    {"s_movrels_b32", form::salu, type::b32, type::b32, type::none, type::none, nullptr, movrels_b32, op_raw_registers},
    {"s_movrels_b64", form::salu, type::b64, type::b64, type::none, type::none, nullptr, movrels_b64, op_raw_registers},
    {"s_movreld_b32", form::salu, type::b32, type::b32, type::none, type::none, nullptr, movreld_b32, op_raw_registers},
    {"s_movreld_b64", form::salu, type::b64, type::b64, type::none, type::none, nullptr, movreld_b64, op_raw_registers},
    {"s_movrelsd_2_b32", form::salu, type::b32, type::b32, type::none, type::none, nullptr, movrelsd_2_b32, op_raw_registers},

    S2(s_add_u32, u32, u32, u32, d = a + b, scc = d < a),
    S2(s_sub_u32, u32, u32, u32, d = a - b, scc = b > a),
    S2(s_add_i32, i32, i32, i32, scc = __builtin_add_overflow(a, b, &d)),
    S2(s_sub_i32, i32, i32, i32, scc = __builtin_sub_overflow(a, b, &d)),
    S2(s_addc_u32, u32, u32, u32, const u64 sum = u64(a) + b + scc; d = u32(sum); scc = sum >> 32 != 0),
    S2(s_subb_u32, u32, u32, u32, const u32 borrow = scc; d = a - b - borrow; scc = u64(b) + borrow > a),
    S2(s_absdiff_i32, i32, i32, i32, d = i32(u32(a) - u32(b)); d = d < 0 ? i32(0u - u32(d)) : d; scc = d != 0),
    S2(s_lshl_b32, u32, u32, u32, d = a << (b & 31), scc = d != 0),
    S2(s_lshl_b64, u64, u64, u32, d = a << (b & 63), scc = d != 0),
    S2(s_lshr_b32, u32, u32, u32, d = a >> (b & 31), scc = d != 0),
    S2(s_lshr_b64, u64, u64, u32, d = a >> (b & 63), scc = d != 0),
    S2(s_ashr_i32, i32, i32, u32, d = a >> (b & 31), scc = d != 0),
    S2(s_ashr_i64, i64, i64, u32, d = a >> (b & 63), scc = d != 0),
    S2(s_lshl1_add_u32, u32, u32, u32, const u64 sum = (u64(a) << 1) + b; d = u32(sum); scc = sum >> 32 != 0),
    S2(s_lshl2_add_u32, u32, u32, u32, const u64 sum = (u64(a) << 2) + b; d = u32(sum); scc = sum >> 32 != 0),
    S2(s_lshl3_add_u32, u32, u32, u32, const u64 sum = (u64(a) << 3) + b; d = u32(sum); scc = sum >> 32 != 0),
    S2(s_lshl4_add_u32, u32, u32, u32, const u64 sum = (u64(a) << 4) + b; d = u32(sum); scc = sum >> 32 != 0),
    S2(s_min_i32, i32, i32, i32, scc = a < b; d = scc ? a : b),
    S2(s_min_u32, u32, u32, u32, scc = a < b; d = scc ? a : b),
    S2(s_max_i32, i32, i32, i32, scc = a >= b; d = scc ? a : b),
    S2(s_max_u32, u32, u32, u32, scc = a >= b; d = scc ? a : b),
    S2(s_and_b32, u32, u32, u32, d = a & b, scc = d != 0),
    S2(s_and_b64, u64, u64, u64, d = a & b, scc = d != 0),
    S2(s_or_b32, u32, u32, u32, d = a | b, scc = d != 0),
    S2(s_or_b64, u64, u64, u64, d = a | b, scc = d != 0),
    S2(s_xor_b32, u32, u32, u32, d = a ^ b, scc = d != 0),
    S2(s_xor_b64, u64, u64, u64, d = a ^ b, scc = d != 0),
    S2(s_nand_b32, u32, u32, u32, d = ~(a & b), scc = d != 0),
    S2(s_nand_b64, u64, u64, u64, d = ~(a & b), scc = d != 0),
    S2(s_nor_b32, u32, u32, u32, d = ~(a | b), scc = d != 0),
    S2(s_nor_b64, u64, u64, u64, d = ~(a | b), scc = d != 0),
    S2(s_xnor_b32, u32, u32, u32, d = ~(a ^ b), scc = d != 0),
    S2(s_xnor_b64, u64, u64, u64, d = ~(a ^ b), scc = d != 0),
    S2(s_and_not1_b32, u32, u32, u32, d = a & ~b, scc = d != 0),
    S2(s_and_not1_b64, u64, u64, u64, d = a & ~b, scc = d != 0),
    S2(s_or_not1_b32, u32, u32, u32, d = a | ~b, scc = d != 0),
    S2(s_or_not1_b64, u64, u64, u64, d = a | ~b, scc = d != 0),
    S2(s_bfe_u32, u32, u32, u32, d = (a >> (b & 31)) & mask_of(b >> 16 & 127), scc = d != 0),
    S2(s_bfe_i32, i32, i32, u32, d = sign_extend(u32(a >> (b & 31)), b >> 16 & 127), scc = d != 0),
    S2(s_bfe_u64, u64, u64, u32, d = (a >> (b & 63)) & mask_of64(b >> 16 & 127), scc = d != 0),
    S2(s_bfe_i64, i64, i64, u32, d = sign_extend64(u64(a >> (b & 63)), b >> 16 & 127), scc = d != 0),
    S2(s_bfm_b32, u32, u32, u32, d = ((1u << (a & 31)) - 1) << (b & 31)),
    S2(s_bfm_b64, u64, u32, u32, d = ((1ull << (a & 63)) - 1) << (b & 63)),
    S2(s_mul_i32, u32, u32, u32, d = a * b),
    S2(s_mul_hi_u32, u32, u32, u32, d = u32(u64(a) * b >> 32)),
    S2(s_mul_hi_i32, i32, i32, i32, d = i32(i64(a) * b >> 32)),
    S2(s_cselect_b32, u32, u32, u32, d = scc ? a : b),
    S2(s_cselect_b64, u64, u64, u64, d = scc ? a : b),
    S2(s_pack_ll_b32_b16, u32, u32, u32, d = (a & 0xffff) | b << 16),
    S2(s_pack_lh_b32_b16, u32, u32, u32, d = (a & 0xffff) | (b & 0xffff0000)),
    S2(s_pack_hh_b32_b16, u32, u32, u32, d = a >> 16 | (b & 0xffff0000)),
    S2(s_pack_hl_b32_b16, u32, u32, u32, d = a >> 16 | b << 16),

    SC(s_cmp_eq_i32, i32, i32, a == b), SC(s_cmp_lg_i32, i32, i32, a != b), SC(s_cmp_gt_i32, i32, i32, a > b),
    SC(s_cmp_ge_i32, i32, i32, a >= b), SC(s_cmp_lt_i32, i32, i32, a < b), SC(s_cmp_le_i32, i32, i32, a <= b),
    SC(s_cmp_eq_u32, u32, u32, a == b), SC(s_cmp_lg_u32, u32, u32, a != b), SC(s_cmp_gt_u32, u32, u32, a > b),
    SC(s_cmp_ge_u32, u32, u32, a >= b), SC(s_cmp_lt_u32, u32, u32, a < b), SC(s_cmp_le_u32, u32, u32, a <= b),
    SC(s_cmp_eq_u64, u64, u64, a == b), SC(s_cmp_lg_u64, u64, u64, a != b),
    SC(s_bitcmp0_b32, u32, u32, (a >> (b & 31) & 1) == 0), SC(s_bitcmp1_b32, u32, u32, (a >> (b & 31) & 1) == 1),
    SC(s_bitcmp0_b64, u64, u32, (a >> (b & 63) & 1) == 0), SC(s_bitcmp1_b64, u64, u32, (a >> (b & 63) & 1) == 1),

    // SOPK: the second source is the 16-bit constant, sign-extended.
    SK(s_movk_i32, i32, d = b),
    SK(s_cmovk_i32, i32, d = scc ? b : d),
    SK(s_addk_i32, i32, scc = __builtin_add_overflow(d, b, &d)),
    SK(s_mulk_i32, u32, d = d * b),
    SKC(s_cmpk_eq_i32, i32, a == b), SKC(s_cmpk_lg_i32, i32, a != b), SKC(s_cmpk_gt_i32, i32, a > b),
    SKC(s_cmpk_ge_i32, i32, a >= b), SKC(s_cmpk_lt_i32, i32, a < b), SKC(s_cmpk_le_i32, i32, a <= b),
    SKC(s_cmpk_eq_u32, u32, a == (b & 0xffff)), SKC(s_cmpk_lg_u32, u32, a != (b & 0xffff)), SKC(s_cmpk_gt_u32, u32, a > (b & 0xffff)),
    SKC(s_cmpk_ge_u32, u32, a >= (b & 0xffff)), SKC(s_cmpk_lt_u32, u32, a < (b & 0xffff)), SKC(s_cmpk_le_u32, u32, a <= (b & 0xffff)),
};
STRATA_TABLE(salu, entries)

}  // namespace strata::emulator::STRATA_ISA
