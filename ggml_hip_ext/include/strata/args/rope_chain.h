// Arguments of the kernels that compute a rotary embedding together with the norm before it and the copy into a cache behind it.
#pragma once

#include "strata/args/norm_chain.h"
#include "strata/args/rope.h"

namespace strata {

struct rope_chain_args {
    rope_args rope;              ///< src is what the norm reads, if there is one
    row_operand weight;          ///< of the norm, by head, token and batch
    float eps;
    uint32_t length;             ///< channels of a head, a multiple of 4
    // Into a cache: head h of a token goes to channel h * length of row index[token], in f16.
    void * cache;
    const void * index;          ///< i32, or i64 of which the low half is read
    uint64_t cache_stride, index_stride;   ///< bytes
};

constexpr uint32_t rope_chain_block = 256;    ///< work-items a workgroup, a wave a head
constexpr uint32_t rope_chain_length = 512;   ///< most channels

}  // namespace strata
