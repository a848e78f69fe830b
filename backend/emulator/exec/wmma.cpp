// 16x16x16 matrix products of a wave. Lane l holds row l % 16 of A and column l % 16 of B (lanes 16..31 repeat them);
// register i, lane l of C and D is row 2 i + l / 16, column l % 16. EXEC is taken as full.
// Rows of A are read from lanes 0..15, columns of B from the lane that holds the result. Floating-point sums are taken in
// f32, from C, over k = 0..15, one fused multiply-add each: the chip's order and rounding are not published.
#include "math.h"
#include "tables.h"

#include <immintrin.h>

namespace strata::emulator::STRATA_ISA {

/// Register n of an operand; a constant operand is one row for all of them.
static STRATA_INLINE u32v operand_row(const wave * w, const inst * i, int k, int n) {
    return load_row(row(w, i->src[k] + (i->src[k] >= 0 ? n * row_bytes : 0)));
}

/// Sums of products of pairs of signed 16-bit numbers, exact in 32 bits.
static STRATA_INLINE u32v multiply_add_pairs(u32v a, u32v b) {
    u32v r;
#if defined(__AVX512BW__)
    __m512i x[2], y[2], z[2];
    std::memcpy(x, &a, sizeof a);
    std::memcpy(y, &b, sizeof b);
    for (int n = 0; n < 2; n++) z[n] = _mm512_madd_epi16(x[n], y[n]);
#elif defined(__AVX2__)
    __m256i x[4], y[4], z[4];
    std::memcpy(x, &a, sizeof a);
    std::memcpy(y, &b, sizeof b);
    for (int n = 0; n < 4; n++) z[n] = _mm256_madd_epi16(x[n], y[n]);
#else
    __m128i x[8], y[8], z[8];
    std::memcpy(x, &a, sizeof a);
    std::memcpy(y, &b, sizeof b);
    for (int n = 0; n < 8; n++) z[n] = _mm_madd_epi16(x[n], y[n]);
#endif
    std::memcpy(&r, z, sizeof r);
    return r;
}

using u32h = vec<uint32_t, 16>;
using f32h = vec<float, 16>;

/// Lanes 0..15 get `low`, lanes 16..31 `high`.
static STRATA_INLINE u32v halves(uint32_t low, uint32_t high) {
    const u32h l = u32h{} + low, h = u32h{} + high;
    return __builtin_shufflevector(l, h, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
                                   26, 27, 28, 29, 30, 31);
}

using i16x64 = vec<int16_t, 64>;
using u16x64 = vec<uint16_t, 64>;

// Fields of `bits` bits as pairs of 16-bit numbers: vector n has field n of every 16-bit word. Which numbers are paired does not
// matter as long as A and B agree.
template <int bits> static STRATA_INLINE void widen(u32v x, bool is_signed, u32v * pairs) {
    for (int n = 0; n < 16 / bits; n++) {
        const i16x64 raised = as<i16x64>(x) << (16 - bits - bits * n);
        pairs[n] = is_signed ? as<u32v>(raised >> (16 - bits)) : as<u32v>(as<u16x64>(raised) >> (16 - bits));
    }
}

template <int bits> static STRATA_HANDLER(wmma_integer) {
    constexpr int registers = bits / 2;  // of A and of B
    constexpr int per_register = 16 / bits;
    u32v b[8];
    alignas(64) uint32_t a[8][32];
    for (int n = 0; n < registers; n++) {
        u32v pairs[per_register];
        widen<bits>(operand_row(w, i, 0, n), i->neg & 1, pairs);
        for (int p = 0; p < per_register; p++) std::memcpy(a[n * per_register + p], &pairs[p], sizeof pairs[p]);
        widen<bits>(operand_row(w, i, 1, n), i->neg & 2, pairs);
        for (int p = 0; p < per_register; p++) b[n * per_register + p] = pairs[p];
    }
    u32v result[8];
    const auto finish = [&](int r, u32v sum) STRATA_LAMBDA {
        const u32v c = operand_row(w, i, 2, r);
        const u32v wrapped = sum + c;
        if (__builtin_expect(!i->clamp, 1)) return wrapped;
        const i32v overflow = as<i32v>((sum ^ wrapped) & (c ^ wrapped)) >> 31;
        return select(overflow, (as<u32v>(as<i32v>(c) >> 31)) ^ 0x7fffffffu, wrapped);
    };
    for (int r = 0; r < 8; r += 2) {
        u32v even = splat(0), odd = splat(0);
        for (int k = 0; k < 8; k++) {
            even += multiply_add_pairs(halves(a[k][2 * r], a[k][2 * r + 1]), b[k]);
            odd += multiply_add_pairs(halves(a[k][2 * r + 2], a[k][2 * r + 3]), b[k]);
        }
        result[r] = finish(r, even);
        result[r + 1] = finish(r + 1, odd);
    }
    for (int r = 0; r < 8; r++) store_row(w->v + i->dst + r * row_bytes, result[r]);
    STRATA_NEXT;
}

enum class element { f16, bf16 };

static STRATA_INLINE u32h low_lanes(u32v x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }
static STRATA_INLINE u32h high_lanes(u32v x) {
    return __builtin_shufflevector(x, x, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
}
/// The 16 lanes, twice.
template <class V> static STRATA_INLINE auto twice(V x) {
    return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,
                                   14, 15);
}

/// Both halves of 16 lanes, widened and stored to low[0..15] and high[0..15].
static STRATA_INLINE void widen_pair(element e, u32h x, void * low, void * high) {
    if (e == element::bf16) {
        const u32h l = x << 16, h = x & 0xffff0000u;
        std::memcpy(low, &l, sizeof l);
        std::memcpy(high, &h, sizeof h);
        return;
    }
#if defined(__F16C__) && defined(__AVX2__)
    half_to_float_pairs<2>(&x, static_cast<float *>(low), static_cast<float *>(high));
#else
    const half_pair wide = halves_to_float(twice(x));
    std::memcpy(low, &wide.low, sizeof x);
    std::memcpy(high, &wide.high, sizeof x);
#endif
}
static STRATA_INLINE f32v widened(element e, u32v h) { return e == element::f16 ? half_to_float(h) : bfloat_to_float(h); }

/// Results in f32, or in one half (op_sel) of the registers.
template <element E, bool wide_result> static STRATA_HANDLER(wmma_float) {
    const uint32_t sign_a = (i->neg & 1 ? 0x8000u : 0) | (i->abs & 1 ? 0x80000000u : 0);
    const uint32_t sign_b = (i->neg & 2 ? 0x8000u : 0) | (i->abs & 2 ? 0x80000000u : 0);
    alignas(64) uint32_t a[16][16];
    alignas(64) float b[2][16][16];  // lanes 0..15 and, unless they repeat them, 16..31
    u32h difference{};
    for (int n = 0; n < 8; n++) {
        widen_pair(E, low_lanes(operand_row(w, i, 0, n)) ^ sign_a, a[2 * n], a[2 * n + 1]);
        const u32v columns = operand_row(w, i, 1, n);
        difference |= low_lanes(columns) ^ high_lanes(columns);
        widen_pair(E, low_lanes(columns) ^ sign_b, b[0][2 * n], b[0][2 * n + 1]);
    }
    const bool repeated = __builtin_reduce_or(difference) == 0;
    if (__builtin_expect(!repeated, 0)) {
        for (int n = 0; n < 8; n++) widen_pair(E, high_lanes(operand_row(w, i, 1, n)) ^ sign_b, b[1][2 * n], b[1][2 * n + 1]);
    }
    const auto column = [&](int half, int k) STRATA_LAMBDA {
        f32h x;
        std::memcpy(&x, b[half][k], sizeof x);
        return x;
    };
    const int shift = i->opsel & 4 ? 16 : 0;
    u32v result[8];
    const auto start = [&](int r) STRATA_LAMBDA {
        const u32v old = operand_row(w, i, 2, r);
        f32v sum = wide_result ? as<f32v>(old) : widened(E, (old >> shift) & 0xffffu);
        if (i->abs & 4) sum = abs_(sum);
        if (i->neg & 4) sum = -sum;
        return sum;
    };
    const auto finish = [&](int r, f32v sum) STRATA_LAMBDA {
        if (wide_result) return as<u32v>(sum);
        const u32v narrow = E == element::f16 ? float_to_half(sum) : float_to_bfloat(sum);
        const u32v kept = load_row(w->v + i->dst + r * row_bytes);
        return shift ? (kept & 0xffffu) | (narrow << 16) : (kept & 0xffff0000u) | narrow;
    };
    const auto sum_up = [&](auto columns_of) STRATA_LAMBDA {
        for (int r = 0; r < 8; r += 2) {  // two at a time hide the latency of the additions
            f32v even = start(r), odd = start(r + 1);
            for (int k = 0; k < 16; k++) {
                const f32v columns = columns_of(k);
                even = fma_(as<f32v>(halves(a[k][2 * r], a[k][2 * r + 1])), columns, even);
                odd = fma_(as<f32v>(halves(a[k][2 * r + 2], a[k][2 * r + 3])), columns, odd);
            }
            result[r] = finish(r, even);
            result[r + 1] = finish(r + 1, odd);
        }
    };
    if (__builtin_expect(repeated, 1)) {
        sum_up([&](int k) STRATA_LAMBDA { return twice(column(0, k)); });
    } else {
        sum_up([&](int k) STRATA_LAMBDA {
            const f32h low = column(0, k), high = column(1, k);
            return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23,
                                           24, 25, 26, 27, 28, 29, 30, 31);
        });
    }
    for (int r = 0; r < 8; r++) store_row(w->v + i->dst + r * row_bytes, result[r]);
    STRATA_NEXT;
}

#define WMMA(NAME, C, FN, FLAGS) \
    {"v_wmma_" NAME, form::valu, type::b32, type::b32, type::b32, C, nullptr, FN, op_neg_is_sign | op_no_dpp | FLAGS}

static const operation entries[] = {
    WMMA("f32_16x16x16_f16", type::f32, (wmma_float<element::f16, true>), 0),
    WMMA("f32_16x16x16_bf16", type::f32, (wmma_float<element::bf16, true>), 0),
    WMMA("f16_16x16x16_f16", type::f16, (wmma_float<element::f16, false>), 0),
    WMMA("bf16_16x16x16_bf16", type::bf16, (wmma_float<element::bf16, false>), 0),
    WMMA("i32_16x16x16_iu8", type::i32, wmma_integer<8>, op_int_clamp),
    WMMA("i32_16x16x16_iu4", type::i32, wmma_integer<4>, op_int_clamp),
};
STRATA_TABLE(wmma, entries)

}  // namespace strata::emulator::STRATA_ISA
