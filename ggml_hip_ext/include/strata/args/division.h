// Division of 31-bit numbers by a divisor known at launch, as a multiplication; shared by host and kernels.
#pragma once

#ifdef __AMDGCN__
#include "strata/device.h"
#else
#include <cstdint>
#endif

namespace strata {

/// n / divisor is mulhi(2 n, magic) >> shift for n < 2^31.
struct fast_divisor {
    uint32_t divisor, magic, shift;
};

#ifdef __AMDGCN__

STRATA_DEVICE uint32_t quotient(uint32_t n, const fast_divisor & by) {
    return static_cast<uint32_t>(static_cast<uint64_t>(n << 1) * by.magic >> 32) >> by.shift;
}

STRATA_DEVICE uint32_t remainder(uint32_t n, uint32_t quotient, const fast_divisor & by) { return n - quotient * by.divisor; }

#else

/// 1 <= divisor < 2^31.
inline fast_divisor make_divisor(uint32_t divisor) {
    uint32_t shift = 0;
    while ((uint64_t(1) << shift) < divisor) {
        shift++;
    }
    // The product of the rounded-up magic number is off by less than n / 2^31 of the quotient's unit, so the quotient is exact.
    const uint64_t magic = ((uint64_t(1) << (31 + shift)) + divisor - 1) / divisor;
    return {divisor, uint32_t(magic), shift};
}

#endif

}  // namespace strata
