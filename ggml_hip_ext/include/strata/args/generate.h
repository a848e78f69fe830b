// Arguments of the kernels that make numbers: sequences and sinusoidal embeddings.
#pragma once

#ifndef __AMDGCN__
#include <cstdint>
#else
#include "strata/device.h"
#endif

namespace strata {

/// dst[i] = start + i * step.
struct arange_args {
    void * dst;
    uint32_t count;
    float start, step;
};

/// Row i of dst: cosines of timestep i times each frequency, then the sines, then a zero if the row is odd.
struct timestep_args {
    void * dst;
    const void * src;
    uint64_t dst_stride, src_stride;  ///< bytes
    uint32_t half;                    ///< frequencies
    uint32_t dim;                     ///< elements a row
    float exponent;                   ///< frequency j is e^(exponent * j / half)
};

constexpr uint32_t generate_block = 256;  ///< work-items a workgroup

}  // namespace strata
