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

/// q, k and v of an attention: q is normed and turned, k as well and into its cache, v into its own as it is.
struct rope_qkv_args {
    rope_chain_args q, k;
    const void * v;              ///< f32, `v_length` a token
    void * v_cache;              ///< f16; row index[token] is written
    const void * v_index;        ///< as that of k
    uint64_t v_stride, v_cache_stride, v_index_stride;   ///< bytes
    uint32_t v_length;           ///< a multiple of 4
    uint32_t q_groups, k_groups; ///< workgroups a token, in this order; those behind them copy v
};

constexpr uint32_t rope_chain_block = 256;    ///< work-items a workgroup, a wave a head
constexpr uint32_t rope_chain_length = 512;   ///< most channels

}  // namespace strata
