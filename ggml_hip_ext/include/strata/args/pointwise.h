// Arguments of the kernels that compute each element of the result from one element of each operand.
#pragma once

#include "strata/args/division.h"

namespace strata {

/// One loop over all operands: its trip count, and the step of each operand in bytes (0 where an operand is repeated).
struct pointwise_dim {
    fast_divisor size;
    uint32_t step_dst, step_a, step_b;
};

/// Tensors of any strides and any repetition as nested loops, innermost first; neighbouring loops that run through memory alike are merged
/// by the host. There is always at least one.
struct pointwise_args {
    void * dst;
    const void * a;
    const void * b;          ///< unused by functions of one argument
    uint32_t count;          ///< elements, < 2^31
    uint32_t dim_count;      ///< loops in use
    uint32_t waves;          ///< _rows kernels: waves with work, a tile of a row each
    uint32_t tile;           ///< _rows kernels: elements a wave takes of a row, pointwise_tile or half of it
    fast_divisor row_tiles;  ///< _rows kernels: tiles a row
    float params[4];         ///< of the function
    pointwise_dim dims[8];
};

constexpr uint32_t pointwise_tile = 256;  ///< most elements a wave of a _rows kernel takes of a row
constexpr uint32_t pointwise_block = 256; ///< work-items a workgroup

}  // namespace strata
