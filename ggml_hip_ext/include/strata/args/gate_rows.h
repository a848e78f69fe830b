// Arguments of the kernel that gates the heads of an attention and quantizes what becomes of them.
#pragma once

#include "strata/args/division.h"

namespace strata {

/// dst = x * sigmoid(gate), rows of f32, a token each; x and dst are contiguous, the gates of a head as well. Strides in bytes.
struct gate_rows_args {
    float * dst;
    const float * x;
    const void * gate;
    uint64_t head_stride, token_stride;   ///< of the gates
    uint32_t row;                         ///< numbers a token, a multiple of 32
    fast_divisor head_quads;              ///< four numbers each, of a head
    void * values;                        ///< dst as quantize_q8_1 makes it: int8 [token][row]
    void * meta;                          ///< q8_1_meta [token][row / 32]
};

constexpr uint32_t gate_rows_block = 256;  ///< work-items a workgroup, four numbers each

}  // namespace strata
