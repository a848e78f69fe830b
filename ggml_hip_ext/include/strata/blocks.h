// Layouts of ggml's quantized blocks, byte for byte, shared by host and kernels. Halves are kept as their 16 bits.
#pragma once

#ifdef __AMDGCN__
#include "strata/device.h"
#else
#include <cstdint>
#endif

namespace strata {

/// 32 weights d * (q - 8); element i < 16 is the low nibble of qs[i], element i + 16 the high one (so in all 4- and 5-bit types of 32).
struct block_q4_0 {
    static constexpr uint32_t elements = 32;
    uint16_t d;
    uint8_t qs[16];
};

/// 32 weights d * q + m.
struct block_q4_1 {
    static constexpr uint32_t elements = 32;
    uint16_t d, m;
    uint8_t qs[16];
};

/// 32 weights d * (q - 16); bit i of qh is the fifth bit of element i.
struct block_q5_0 {
    static constexpr uint32_t elements = 32;
    uint16_t d;
    uint8_t qh[4];
    uint8_t qs[16];
};

/// 32 weights d * q + m; qh as in q5_0.
struct block_q5_1 {
    static constexpr uint32_t elements = 32;
    uint16_t d, m;
    uint8_t qh[4];
    uint8_t qs[16];
};

/// 32 weights d * q.
struct block_q8_0 {
    static constexpr uint32_t elements = 32;
    uint16_t d;
    int8_t qs[32];
};

/// 256 weights d * scale * q - dmin * min in eight sub-blocks of 32. Six-bit scales and mins: bytes 0-3 of `scales` hold scale 0-3 in their
/// low six bits, bytes 4-7 min 0-3, bytes 8-11 the low nibbles of scale (low) and min (high) 4-7, whose top two bits are the top two bits
/// of bytes 0-3 (scales) and 4-7 (mins). Sub-blocks 2j and 2j + 1 are the low and high nibbles of qs[32 j ..].
struct block_q4_K {
    static constexpr uint32_t elements = 256;
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qs[128];
};

/// As q4_K, with a fifth bit: bit s of qh[i] belongs to element i of sub-block s.
struct block_q5_K {
    static constexpr uint32_t elements = 256;
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
};

/// 256 weights d * scale * (q - 32) in sixteen sub-blocks of 16. Within half h (128 elements), quarter p (32 elements), element i: the low
/// four bits are in ql[64 h + 32 (p & 1) + i], low nibble for p < 2, else high; the top two are bits 2p and 2p + 1 of qh[32 h + i].
struct block_q6_K {
    static constexpr uint32_t elements = 256;
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint16_t d;
};

static_assert(sizeof(block_q4_0) == 18 && sizeof(block_q4_1) == 20 && sizeof(block_q5_0) == 22 && sizeof(block_q5_1) == 24);
static_assert(sizeof(block_q8_0) == 34 && sizeof(block_q4_K) == 144 && sizeof(block_q5_K) == 176 && sizeof(block_q6_K) == 210);

/// What goes with 32 quantized activations: their scale and the sum of the quantized values. The values themselves lie apart, so that they
/// can be loaded sixteen bytes at a time.
struct q8_1_meta {
    float d;
    int32_t sum;
};

}  // namespace strata
