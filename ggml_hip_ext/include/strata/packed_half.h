// Pairs of f16 in one register: packing, transposing, dot products with an f32 sum.
#pragma once

#include "strata/device.h"

namespace strata {

using half2 = half __attribute__((ext_vector_type(2)));
using half4 = half __attribute__((ext_vector_type(4)));
using half8 = half __attribute__((ext_vector_type(8)));

/// Two halves of -inf.
constexpr uint32_t packed_minus_infinity = 0xfc00fc00u;

/// Both floats as halves, rounded towards zero, in one instruction.
STRATA_DEVICE half2 pack_towards_zero(float low, float high) { return bit_cast<half2>(__builtin_amdgcn_cvt_pkrtz(low, high)); }

/// a.x b.x + a.y b.y + sum.
STRATA_DEVICE float dot2(half2 a, half2 b, float sum) { return __builtin_amdgcn_fdot2(a, b, sum, false); }

/// The low (high) halves of both words: `a` in the low half of the result.
STRATA_DEVICE uint32_t pack_low(uint32_t a, uint32_t b) { return __builtin_amdgcn_perm(b, a, 0x05040100u); }
STRATA_DEVICE uint32_t pack_high(uint32_t a, uint32_t b) { return __builtin_amdgcn_perm(b, a, 0x07060302u); }

/// Element i of halves packed into words.
template <class Words>
STRATA_DEVICE half half_of(Words words, uint32_t i) {
    return bit_cast<half2>(words[i / 2])[i % 2];
}

}  // namespace strata
