// Arguments of the transposing copies.
#pragma once

#include "strata/args/pointwise.h"

namespace strata {

/// dst is contiguous along a loop of n0, src along another of n1; other loops around them. Steps in bytes.
struct transpose_args {
    void * dst;
    const void * src;
    uint32_t n0, n1;
    uint32_t src_step0, dst_step1;  ///< step of src along n0, of dst along n1
    fast_divisor tiles0, tiles1;
    uint32_t outer_count;           ///< loops in use in `outer`, of which step_b is not used
    pointwise_dim outer[6];
};

constexpr uint32_t transpose_tile = 32;
constexpr uint32_t transpose_block = 256;

}  // namespace strata
