// Arguments of the kernels that take each element of the result from a shifted place of the source (PAD, PAD_REFLECT_1D, ROLL).
#pragma once

#include "strata/args/division.h"

namespace strata {

/// What stands outside of the source along a dimension.
enum pad_kind : uint32_t {
    pad_zeros = 0,
    pad_around = 1,   ///< the source again
    pad_mirror = 2,   ///< the source backwards, without its first or last element
};

struct pad_args {
    void * dst;                ///< contiguous
    const void * src;
    uint32_t count;            ///< elements of dst, < 2^31
    uint32_t kind;             ///< pad_kind
    struct dim {
        fast_divisor size;     ///< of dst
        fast_divisor source;   ///< of src
        uint32_t step;         ///< of src in bytes
        int32_t before;        ///< index i of dst is index i - before of src
    } dims[4];
};

constexpr uint32_t pad_block = 256;  ///< work-items a workgroup

}  // namespace strata
