// Arguments of the kernels that cut an image into square windows, join windows, and look up relative positions. Strides are in bytes.
#pragma once

#include "strata/args/division.h"

namespace strata {

/// The image has dimensions channels, w, h; the windows channels, side, side, window. dst is contiguous; beyond the image stand zeros.
struct windows_args {
    float * dst;
    const void * src;
    uint32_t count;                   ///< elements of dst, < 2^31
    fast_divisor channels, side;
    fast_divisor across;              ///< windows side by side
    fast_divisor image_w;
    uint32_t image_h;
    uint64_t src_step[4];
};

/// dst[c, i, j] = src[c, j - i + size - 1], contiguous dst, elements of 2 bytes.
struct rel_pos_args {
    uint16_t * dst;
    const void * src;
    uint32_t count;                   ///< elements of dst, < 2^31
    fast_divisor channels, size;
    uint64_t src_step[2];
};

constexpr uint32_t windows_block = 256;  ///< work-items a workgroup

}  // namespace strata
