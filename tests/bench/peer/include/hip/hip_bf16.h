// Newer than Debian's HIP: bfloat16 as storage, with conversions from and to float (nearest, ties to even; NaN stays NaN).
#pragma once
#include <hip/hip_runtime.h>

struct __hip_bfloat16 {
    unsigned short __x;

    __hip_bfloat16() = default;
    __host__ __device__ __hip_bfloat16(float value) {
#ifdef __HIP_DEVICE_COMPILE__
        __x = __builtin_bit_cast(unsigned short, static_cast<__bf16>(value));
#else  // Debian 12's libgcc cannot convert to __bf16
        const unsigned int u = __builtin_bit_cast(unsigned int, value);
        if ((u & 0x7fffffffu) > 0x7f800000u) {
            __x = static_cast<unsigned short>((u | 0x400000u) >> 16);
        } else {
            __x = static_cast<unsigned short>((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
        }
#endif
    }
    __host__ __device__ operator float() const { return __builtin_bit_cast(float, static_cast<unsigned int>(__x) << 16); }
};

struct alignas(4) __hip_bfloat162 {
    __hip_bfloat16 x, y;
};

#define PEER_BOTH static __host__ __device__ __forceinline__
PEER_BOTH __hip_bfloat16 __float2bfloat16(float value) { return value; }
PEER_BOTH float __bfloat162float(__hip_bfloat16 value) { return value; }
PEER_BOTH __hip_bfloat16 __low2bfloat16(__hip_bfloat162 pair) { return pair.x; }
PEER_BOTH __hip_bfloat16 __high2bfloat16(__hip_bfloat162 pair) { return pair.y; }
PEER_BOTH float2 __bfloat1622float2(__hip_bfloat162 pair) { return make_float2(pair.x, pair.y); }
PEER_BOTH __hip_bfloat162 __float22bfloat162_rn(float2 pair) { return {__hip_bfloat16(pair.x), __hip_bfloat16(pair.y)}; }
#undef PEER_BOTH
