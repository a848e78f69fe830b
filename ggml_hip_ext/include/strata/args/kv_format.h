// How the rows of a key/value cache are stored, as kernels need to know it: the host fills it in, the kernels branch on it uniformly.
#pragma once

#ifdef __AMDGCN__
#include "strata/device.h"
#else
#include <cstdint>
#endif

namespace strata {

enum class kv_kind : uint32_t {
    f16,
    bf16,
    f32,
    bytes,     ///< q8_0: signed bytes
    nibbles,   ///< q4_0, q4_1
    fives,     ///< q5_0, q5_1: nibbles and a fifth bit
    table,     ///< iq4_nl: nibbles that index a table
    pairs,     ///< q2_0: two bits
    bits,      ///< q1_0: one bit
};

/// Elements of a block are (quant - bias) * d + m; a block begins with d (f16), followed by m in some types.
struct kv_format {
    kv_kind kind;
    uint32_t block_bytes;
    uint32_t quants;        ///< byte offset of the quants in a block
    uint32_t high;          ///< byte offset of the fifth bits
    uint32_t scale_mask;    ///< which of the first 32 bits of a block are d and m
    uint32_t biased;        ///< twice the half 1024 + bias
};

constexpr kv_format q8_0_kv_format = {kv_kind::bytes, 34, 2, 0, 0xffff, (0x6400 + 128) * 0x10001};

}  // namespace strata
