// 32 lanes as vectors. STRATA_ISA names the namespace of this build; every exec/*.cpp is compiled once per host instruction set.
#pragma once

#include "../instruction.h"

#include <cstring>

#ifndef STRATA_ISA
#error "compile exec/*.cpp with -DSTRATA_ISA=generic|avx2|avx512"
#endif

#define STRATA_INLINE inline __attribute__((always_inline))
#define STRATA_LAMBDA __attribute__((always_inline))
#define STRATA_HANDLER(name) void name([[maybe_unused]] wave * w, [[maybe_unused]] const inst * i, [[maybe_unused]] uint64_t count)
/// Goes on with the instruction after i.
#define STRATA_NEXT [[clang::musttail]] return i[1].fn(w, i + 1, count + i->weight)

namespace strata::emulator::STRATA_ISA {

template <class T, int N>
using vec = T __attribute__((vector_size(sizeof(T) * N)));

using u32v = vec<uint32_t, 32>;
using i32v = vec<int32_t, 32>;
using f32v = vec<float, 32>;
using u64v = vec<uint64_t, 32>;
using i64v = vec<int64_t, 32>;
using f64v = vec<double, 32>;
using u16v = vec<uint16_t, 32>;
using boolv = bool __attribute__((ext_vector_type(32)));

template <class To, class From>
static STRATA_INLINE To as(From value) {
    static_assert(sizeof(To) == sizeof(From));
    return __builtin_bit_cast(To, value);
}
template <class To, class From>
static STRATA_INLINE To convert(From value) { return __builtin_convertvector(value, To); }

static STRATA_INLINE u32v splat(uint32_t x) { return u32v{} + x; }
static STRATA_INLINE f32v splatf(float x) { return as<f32v>(u32v{} + __builtin_bit_cast(uint32_t, x)); }
static STRATA_INLINE u64v splat64(uint64_t x) { return u64v{} + x; }
static STRATA_INLINE f64v splatd(double x) { return as<f64v>(u64v{} + __builtin_bit_cast(uint64_t, x)); }

static constexpr u32v lane_bit = {1u << 0, 1u << 1, 1u << 2, 1u << 3, 1u << 4, 1u << 5, 1u << 6, 1u << 7, 1u << 8, 1u << 9, 1u << 10,
                                  1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20,
                                  1u << 21, 1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30,
                                  1u << 31};
static constexpr u32v lane_number = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                     16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

/// All ones in the lanes whose bit is set.
static STRATA_INLINE i32v mask_lanes(uint32_t bits) { return (splat(bits) & lane_bit) != 0; }
static STRATA_INLINE i64v mask_lanes64(uint32_t bits) { return convert<i64v>(mask_lanes(bits)); }
/// The bit of every lane that is not zero.
static STRATA_INLINE uint32_t lane_bits(i32v mask) { return __builtin_bit_cast(uint32_t, __builtin_convertvector(mask, boolv)); }
static STRATA_INLINE uint32_t lane_bits(i64v mask) { return lane_bits(convert<i32v>(mask)); }

template <class V, class M>
static STRATA_INLINE V select(M mask, V yes, V no) {
    return as<V>((as<M>(yes) & mask) | (as<M>(no) & ~mask));
}

static STRATA_INLINE u32v load_row(const void * row) {
    u32v r;
    std::memcpy(&r, __builtin_assume_aligned(row, 64), sizeof r);
    return r;
}
static STRATA_INLINE void store_row(void * row, u32v value) { std::memcpy(__builtin_assume_aligned(row, 64), &value, sizeof value); }

/// Two registers as 64-bit lanes.
static STRATA_INLINE u64v join(u32v low, u32v high) { return convert<u64v>(low) | (convert<u64v>(high) << 32); }
static STRATA_INLINE u32v low_half(u64v x) { return convert<u32v>(x); }
static STRATA_INLINE u32v high_half(u64v x) { return convert<u32v>(x >> 32); }

}  // namespace strata::emulator::STRATA_ISA
