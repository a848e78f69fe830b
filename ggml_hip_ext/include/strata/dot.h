// Dot products of four bytes with a 32-bit sum.
#pragma once

#include "strata/memory.h"

namespace strata {

#if defined(__GFX11__) || defined(__GFX12__)

/// sum + the products of four signed bytes with four signed bytes; wraps.
STRATA_DEVICE int32_t dot4_signed(uint32_t a, uint32_t b, int32_t sum) {
    return __builtin_amdgcn_sudot4(true, static_cast<int32_t>(a), true, static_cast<int32_t>(b), sum, false);
}

/// sum + the products of four unsigned bytes `a` with four signed bytes `b`; wraps.
STRATA_DEVICE int32_t dot4_unsigned(uint32_t a, uint32_t b, int32_t sum) {
    return __builtin_amdgcn_sudot4(false, static_cast<int32_t>(a), true, static_cast<int32_t>(b), sum, false);
}

#else  // older cards multiply signed bytes only

STRATA_DEVICE int32_t dot4_signed(uint32_t a, uint32_t b, int32_t sum) {
    return __builtin_amdgcn_sdot4(static_cast<int32_t>(a), static_cast<int32_t>(b), sum, false);
}

STRATA_DEVICE int32_t dot4_unsigned(uint32_t a, uint32_t b, int32_t sum) {
    return dot4_signed(a ^ 0x80808080u, b, sum) + 128 * dot4_signed(0x01010101u, b, 0);
}

#endif

/// The sum of sixteen signed bytes.
STRATA_DEVICE int32_t sum_bytes(uint4v bytes) {
    int32_t sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        sum = dot4_signed(bytes[i], 0x01010101, sum);
    }
    return sum;
}

/// Product of the low 24 bits, signed, of each: v_mul_i32_i24, four times as fast as a full product.
STRATA_DEVICE int32_t mul24(int32_t a, int32_t b) { return ((a << 8) >> 8) * ((b << 8) >> 8); }

}  // namespace strata
