// Debian's half precision, and three functions that came after it: shuffles of a pair, and the larger of two.
#pragma once
#include <hip/hip_runtime.h>
#include_next <hip/hip_fp16.h>

#ifdef __HIP__
PEER_SHUFFLES(__half2)

// Of a number and a NaN the number.
static __device__ __forceinline__ __half __hmax(__half a, __half b) {
    return __builtin_fmaxf16(static_cast<__half_raw>(a).data, static_cast<__half_raw>(b).data);
}
#endif
