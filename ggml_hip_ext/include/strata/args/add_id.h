// Arguments of add_id: dst[token][slot] = a[token][slot] + b[ids[token][slot]], rows of f32.
#pragma once

#include "strata/args/division.h"

namespace strata {

struct add_id_args {
    float * dst;                             ///< contiguous
    const void * a;
    const void * b;
    const void * ids;                        ///< i32
    uint64_t a_stride_slot, a_stride_token, b_stride, ids_stride_slot, ids_stride_token;   ///< bytes
    uint32_t columns;
    uint32_t waves;                          ///< with work, a tile of a row each; < 2^31
    fast_divisor row_tiles;                  ///< tiles a row
    fast_divisor used;                       ///< slots a token
};

constexpr uint32_t add_id_tile = 256;        ///< columns a wave
constexpr uint32_t add_id_block = 256;       ///< work-items a workgroup

}  // namespace strata
