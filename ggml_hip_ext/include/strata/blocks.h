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

/// 128 weights +d or -d: bit i of qs is set for +d.
struct block_q1_0 {
    static constexpr uint32_t elements = 128;
    uint16_t d;
    uint8_t qs[16];
};

/// 64 weights d * (q - 1), four to a byte in order.
struct block_q2_0 {
    static constexpr uint32_t elements = 64;
    uint16_t d;
    uint8_t qs[16];
};

/// 256 weights d * scale * q - dmin * min in sixteen sub-blocks of 16; a byte of `scales` has the scale in its low nibble, the min in its
/// high one. Within half h, quarter p (32 elements), element i is bits 2p and 2p + 1 of qs[32 h + i].
struct block_q2_K {
    static constexpr uint32_t elements = 256;
    uint8_t scales[16];
    uint8_t qs[64];
    uint16_t d, dmin;
};

/// 256 weights d * (scale - 32) * (q - 4) in sixteen sub-blocks of 16. The low two bits of q lie as in q2_K, the top one of half h,
/// quarter p, element i is bit 4h + p of hmask[i]. The low nibble of scale s < 8 is that of scales[s], of scale s >= 8 the high one of
/// scales[s - 8]; its top two bits are bits 2 (s / 4) and above of scales[8 + s % 4].
struct block_q3_K {
    static constexpr uint32_t elements = 256;
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint16_t d;
};

/// 256 weights d * (q - 1) of three values. Byte b is five of them, as ceil(256 / 243 * (81 q0 + 27 q1 + 9 q2 + 3 q3 + q4)): q_n is the top
/// of (b * 3^n mod 256) * 3. Element 32 n + i (n < 5) is q_n of qs[i], element 160 + 16 n + i q_n of qs[32 + i], element 240 + 4 n + i
/// (n < 4) q_n of qh[i].
struct block_tq1_0 {
    static constexpr uint32_t elements = 256;
    uint8_t qs[48];
    uint8_t qh[4];
    uint16_t d;
};

/// 256 weights d * (q - 1), q as in q2_K.
struct block_tq2_0 {
    static constexpr uint32_t elements = 256;
    uint8_t qs[64];
    uint16_t d;
};

/// 32 weights d * values[q] of a table with 16 entries, nibbles as in q4_0.
struct block_iq4_nl {
    static constexpr uint32_t elements = 32;
    uint16_t d;
    uint8_t qs[16];
};

/// 256 weights in eight sub-blocks of 32, d * (scale - 32) * values[q], the table of iq4_nl. The low nibble of scale s is the low (odd s:
/// the high) one of scales_l[s / 2], its top two bits are bits 2s and 2s + 1 of scales_h. Sub-block s is qs[16 s ..], nibbles as in q4_0.
struct block_iq4_xs {
    static constexpr uint32_t elements = 256;
    uint16_t d, scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
};

/// 32 weights 2^(e - 128) * values[q] of the doubled e2m1 numbers, nibbles as in q4_0.
struct block_mxfp4 {
    static constexpr uint32_t elements = 32;
    uint8_t e;
    uint8_t qs[16];
};

/// 64 weights in four sub-blocks of 16, scale / 2 * values[q] of the doubled e2m1 numbers; d[s] is the scale as unsigned e4m3. Sub-block s
/// is qs[8 s ..]: low nibbles are elements 0-7, high ones 8-15.
struct block_nvfp4 {
    static constexpr uint32_t elements = 64;
    uint8_t d[4];
    uint8_t qs[32];
};

/// The iq types have grids: tables of eight (iq3: four) magnitudes. Sub-blocks are of 32 weights, a scale times magnitudes with signs;
/// where signs have seven bits for eight weights, the eighth makes the number of minuses even.
///
/// Sub-block s is qs[4 s ..]: four bytes of grid indices, then a word with 4 x 7 bits of signs and four of the scale, which stands for
/// d * (2 scale + 1) / 8.
struct block_iq2_xxs {
    static constexpr uint32_t elements = 256;
    uint16_t d;
    uint16_t qs[32];
};

/// Eight weights a word of qs: 9 bits of index, 7 of signs. Byte s of `scales` has a nibble for each half of sub-block s, as in iq2_xxs.
struct block_iq2_xs {
    static constexpr uint32_t elements = 256;
    uint16_t d;
    uint16_t qs[32];
    uint8_t scales[8];
};

/// Eight weights a byte of qs (low bits of the index) and a byte of signs; two bits of qh[s] are the top of each index of sub-block s.
/// Scales as in iq2_xs.
struct block_iq2_s {
    static constexpr uint32_t elements = 256;
    uint16_t d;
    uint8_t qs[32];
    uint8_t signs[32];
    uint8_t qh[8];
    uint8_t scales[8];
};

/// Four weights a byte of qs; word s of scales_and_signs as the second of iq2_xxs. d * (2 scale + 1) / 4.
struct block_iq3_xxs {
    static constexpr uint32_t elements = 256;
    uint16_t d;
    uint8_t qs[64];
    uint8_t scales_and_signs[32];
};

/// Four weights a byte of qs; a bit of qh[s] is the top of each index of sub-block s; a bit of sign a weight. Nibble s of `scales`:
/// d * (2 scale + 1).
struct block_iq3_s {
    static constexpr uint32_t elements = 256;
    uint16_t d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t signs[32];
    uint8_t scales[4];
};

/// Weights d * (2 scale + 1) * (value + delta): values -1, 0 and 1 from a grid of eight, delta +1/8 or -1/8. Eight weights a byte of qs;
/// qh[s] has three bits on top of each index of sub-block s, then three of the scale, then the sign of delta.
struct block_iq1_s {
    static constexpr uint32_t elements = 256;
    uint16_t d;
    uint8_t qs[32];
    uint16_t qh[8];
};

/// As iq1_s, with a nibble of qh for each eight weights: three bits of index and the sign of delta. Word j of `scales`: three bits for each
/// 16 weights of sub-blocks 2j and 2j + 1, and four bits of d, the lowest in word 0.
struct block_iq1_m {
    static constexpr uint32_t elements = 256;
    uint8_t qs[32];
    uint8_t qh[16];
    uint8_t scales[8];
};

static_assert(sizeof(block_q4_0) == 18 && sizeof(block_q4_1) == 20 && sizeof(block_q5_0) == 22 && sizeof(block_q5_1) == 24);
static_assert(sizeof(block_q8_0) == 34 && sizeof(block_q4_K) == 144 && sizeof(block_q5_K) == 176 && sizeof(block_q6_K) == 210);
static_assert(sizeof(block_q1_0) == 18 && sizeof(block_q2_0) == 18 && sizeof(block_q2_K) == 84 && sizeof(block_q3_K) == 110);
static_assert(sizeof(block_tq1_0) == 54 && sizeof(block_tq2_0) == 66 && sizeof(block_iq4_nl) == 18 && sizeof(block_iq4_xs) == 136);
static_assert(sizeof(block_mxfp4) == 17 && sizeof(block_nvfp4) == 36 && sizeof(block_iq2_xxs) == 66 && sizeof(block_iq2_xs) == 74);
static_assert(sizeof(block_iq2_s) == 82 && sizeof(block_iq3_xxs) == 98 && sizeof(block_iq3_s) == 110 && sizeof(block_iq1_s) == 50);
static_assert(sizeof(block_iq1_m) == 56);

/// What goes with 32 quantized activations: their scale and the sum of the quantized values. The values themselves lie apart, so that they
/// can be loaded sixteen bytes at a time.
struct q8_1_meta {
    float d;
    int32_t sum;
};

}  // namespace strata
