// Moves between lanes, and between rows and the memory of single lanes.
#pragma once

#include "lanes.h"

#include <immintrin.h>

namespace strata::emulator::STRATA_ISA {

/// data[index[lane]] for every lane; indices are 0..31.
static STRATA_INLINE u32v permute(u32v data, u32v index) {
    u32v r;
#if defined(__AVX512F__)
    __m512i d[2], x[2], out[2];
    std::memcpy(d, &data, sizeof data);
    std::memcpy(x, &index, sizeof index);
    for (int n = 0; n < 2; n++) out[n] = _mm512_permutex2var_epi32(d[0], x[n], d[1]);
    std::memcpy(&r, out, sizeof r);
#elif defined(__AVX2__)
    __m256i d[4], x[4], out[4];
    std::memcpy(d, &data, sizeof data);
    std::memcpy(x, &index, sizeof index);
    for (int n = 0; n < 4; n++) {
        // Bits 3 and 4 of the index choose among the four blocks: they become sign bits for the blends.
        const __m256 eight = _mm256_castsi256_ps(_mm256_slli_epi32(x[n], 28)), sixteen = _mm256_castsi256_ps(_mm256_slli_epi32(x[n], 27));
        __m256 p[4];
        for (int k = 0; k < 4; k++) p[k] = _mm256_castsi256_ps(_mm256_permutevar8x32_epi32(d[k], x[n]));
        out[n] = _mm256_castps_si256(_mm256_blendv_ps(_mm256_blendv_ps(p[0], p[1], eight), _mm256_blendv_ps(p[2], p[3], eight), sixteen));
    }
    std::memcpy(&r, out, sizeof r);
#else
    alignas(64) uint32_t d[32], x[32], out[32];
    std::memcpy(d, &data, sizeof data);
    std::memcpy(x, &index, sizeof index);
    for (int lane = 0; lane < 32; lane++) out[lane] = d[x[lane]];
    std::memcpy(&r, out, sizeof r);
#endif
    return r;
}

/// ds_swizzle: the lane that `lane` reads.
static STRATA_INLINE uint32_t swizzled(uint32_t offset, uint32_t lane) {
    if (offset >= 0xe000) {  // FFT
        const uint32_t mask = offset & 31;
        return (__builtin_bitreverse32(lane) >> 27 >> __builtin_popcount(mask)) | (lane & mask);
    }
    if (offset >= 0xc000) {  // rotate
        const uint32_t mask = offset & 31;
        const uint32_t by = offset >> 10 & 1 ? 0u - (offset >> 5 & 31) : offset >> 5 & 31;
        return ((lane & mask) | ((lane + by) & ~mask)) & 31;
    }
    if (offset >= 0x8000) return (lane & ~3u) | (offset >> (2 * (lane & 3)) & 3);
    return (((lane & offset) | (offset >> 5 & 31)) ^ (offset >> 10 & 31)) & 31;
}

static STRATA_INLINE __m128i load16(const void * p) { return _mm_loadu_si128(static_cast<const __m128i *>(p)); }
static STRATA_INLINE __m128i load8(const void * p) { return _mm_loadl_epi64(static_cast<const __m128i *>(p)); }
static STRATA_INLINE __m128i load4(const void * p) { return _mm_loadu_si32(p); }
static STRATA_INLINE void store16(void * p, __m128i x) { _mm_storeu_si128(static_cast<__m128i *>(p), x); }

/// For all 32 lanes: dwords of lane l at at(l) go to lane l of consecutive rows.
template <int dwords, class At> static STRATA_INLINE void gather(uint8_t * rows, At at) {
    for (int lane = 0; lane < 32; lane += 4) {
        uint8_t * to = rows + lane * 4;
        if constexpr (dwords == 1) {
            const __m128i a = _mm_unpacklo_epi32(load4(at(lane)), load4(at(lane + 1)));
            const __m128i b = _mm_unpacklo_epi32(load4(at(lane + 2)), load4(at(lane + 3)));
            store16(to, _mm_unpacklo_epi64(a, b));
        } else if constexpr (dwords == 2) {
            const __m128i a = _mm_unpacklo_epi32(load8(at(lane)), load8(at(lane + 1)));
            const __m128i b = _mm_unpacklo_epi32(load8(at(lane + 2)), load8(at(lane + 3)));
            store16(to, _mm_unpacklo_epi64(a, b));
            store16(to + row_bytes, _mm_unpackhi_epi64(a, b));
        } else if constexpr (dwords == 4) {
            const __m128i x0 = load16(at(lane)), x1 = load16(at(lane + 1)), x2 = load16(at(lane + 2)), x3 = load16(at(lane + 3));
            const __m128i a = _mm_unpacklo_epi32(x0, x1), b = _mm_unpacklo_epi32(x2, x3);
            const __m128i c = _mm_unpackhi_epi32(x0, x1), d = _mm_unpackhi_epi32(x2, x3);
            store16(to, _mm_unpacklo_epi64(a, b));
            store16(to + row_bytes, _mm_unpackhi_epi64(a, b));
            store16(to + 2 * row_bytes, _mm_unpacklo_epi64(c, d));
            store16(to + 3 * row_bytes, _mm_unpackhi_epi64(c, d));
        } else {
            for (int n = lane; n < lane + 4; n++) {
                for (int d = 0; d < dwords; d++) std::memcpy(rows + d * row_bytes + n * 4, at(n) + 4 * d, 4);
            }
        }
    }
}

/// The other way: lane l of consecutive rows goes to at(l), in the order of the lanes.
template <int dwords, class At> static STRATA_INLINE void scatter(const uint8_t * rows, At at) {
    for (int lane = 0; lane < 32; lane += 4) {
        const uint8_t * from = rows + lane * 4;
        if constexpr (dwords == 2) {
            const __m128i low = load16(from), high = load16(from + row_bytes);
            const __m128i a = _mm_unpacklo_epi32(low, high), b = _mm_unpackhi_epi32(low, high);
            _mm_storel_epi64(reinterpret_cast<__m128i *>(at(lane)), a);
            _mm_storel_epi64(reinterpret_cast<__m128i *>(at(lane + 1)), _mm_unpackhi_epi64(a, a));
            _mm_storel_epi64(reinterpret_cast<__m128i *>(at(lane + 2)), b);
            _mm_storel_epi64(reinterpret_cast<__m128i *>(at(lane + 3)), _mm_unpackhi_epi64(b, b));
        } else if constexpr (dwords == 4) {
            const __m128i x0 = load16(from), x1 = load16(from + row_bytes);
            const __m128i x2 = load16(from + 2 * row_bytes), x3 = load16(from + 3 * row_bytes);
            const __m128i a = _mm_unpacklo_epi32(x0, x1), b = _mm_unpacklo_epi32(x2, x3);
            const __m128i c = _mm_unpackhi_epi32(x0, x1), d = _mm_unpackhi_epi32(x2, x3);
            store16(at(lane), _mm_unpacklo_epi64(a, b));
            store16(at(lane + 1), _mm_unpackhi_epi64(a, b));
            store16(at(lane + 2), _mm_unpacklo_epi64(c, d));
            store16(at(lane + 3), _mm_unpackhi_epi64(c, d));
        } else {
            for (int n = lane; n < lane + 4; n++) {
                for (int d = 0; d < dwords; d++) std::memcpy(at(n) + 4 * d, rows + d * row_bytes + n * 4, 4);
            }
        }
    }
}

}  // namespace strata::emulator::STRATA_ISA
