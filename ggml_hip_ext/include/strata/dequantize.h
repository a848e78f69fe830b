// One weight of a quantized block as a float, in exactly the arithmetic of ggml's dequantize_row functions (products and sums are rounded
// apart).
#pragma once

#include "strata/blocks.h"
#include "strata/codebooks.h"
#include "strata/memory.h"

namespace strata {

/// Low or high nibble of element i of a 32-block of 4-bit values.
STRATA_DEVICE int32_t nibble(const uint8_t * qs, uint32_t i) { return (qs[i & 15] >> ((i >> 4) * 4)) & 15; }

STRATA_DEVICE float dequantize(const block_q4_0 & b, uint32_t i) {
    return static_cast<float>(nibble(b.qs, i) - 8) * half_bits_to_float(b.d);
}

STRATA_DEVICE float dequantize(const block_q4_1 & b, uint32_t i) {
    return static_cast<float>(nibble(b.qs, i)) * half_bits_to_float(b.d) + half_bits_to_float(b.m);
}

STRATA_DEVICE float dequantize(const block_q5_0 & b, uint32_t i) {
    const int32_t high = (b.qh[i >> 3] >> (i & 7)) & 1;
    return static_cast<float>((nibble(b.qs, i) | high << 4) - 16) * half_bits_to_float(b.d);
}

STRATA_DEVICE float dequantize(const block_q5_1 & b, uint32_t i) {
    const int32_t high = (b.qh[i >> 3] >> (i & 7)) & 1;
    return static_cast<float>(nibble(b.qs, i) | high << 4) * half_bits_to_float(b.d) + half_bits_to_float(b.m);
}

STRATA_DEVICE float dequantize(const block_q8_0 & b, uint32_t i) {
    return static_cast<float>(b.qs[i]) * half_bits_to_float(b.d);
}

/// Scale and min of sub-block s, six bits each, of q4_K and q5_K.
struct scale_min {
    int32_t scale, min;
};

STRATA_DEVICE scale_min sub_block_scale(const uint8_t * scales, uint32_t s) {
    if (s < 4) {
        return {scales[s] & 63, scales[s + 4] & 63};
    }
    return {(scales[s + 4] & 15) | (scales[s - 4] >> 6) << 4, (scales[s + 4] >> 4) | (scales[s] >> 6) << 4};
}

STRATA_DEVICE float dequantize(const block_q4_K & b, uint32_t i) {
    const uint32_t s = i >> 5;
    const scale_min sm = sub_block_scale(b.scales, s);
    const int32_t q = (b.qs[(s >> 1) * 32 + (i & 31)] >> ((s & 1) * 4)) & 15;
    const float d = half_bits_to_float(b.d) * static_cast<float>(sm.scale);
    const float m = half_bits_to_float(b.dmin) * static_cast<float>(sm.min);
    return d * static_cast<float>(q) - m;
}

STRATA_DEVICE float dequantize(const block_q5_K & b, uint32_t i) {
    const uint32_t s = i >> 5;
    const scale_min sm = sub_block_scale(b.scales, s);
    const int32_t low = (b.qs[(s >> 1) * 32 + (i & 31)] >> ((s & 1) * 4)) & 15;
    const int32_t high = (b.qh[i & 31] >> s) & 1;
    const float d = half_bits_to_float(b.d) * static_cast<float>(sm.scale);
    const float m = half_bits_to_float(b.dmin) * static_cast<float>(sm.min);
    return d * static_cast<float>(low + high * 16) - m;
}

STRATA_DEVICE float dequantize(const block_q6_K & b, uint32_t i) {
    const uint32_t h = i >> 7, p = (i >> 5) & 3, l = i & 31;
    const int32_t low = (b.ql[64 * h + 32 * (p & 1) + l] >> ((p >> 1) * 4)) & 15;
    const int32_t high = (b.qh[32 * h + l] >> (2 * p)) & 3;
    const float d = half_bits_to_float(b.d) * static_cast<float>(b.scales[i >> 4]);
    return d * static_cast<float>((low | high << 4) - 32);
}

STRATA_DEVICE float dequantize(const block_q1_0 & b, uint32_t i) {
    const float d = half_bits_to_float(b.d);
    return b.qs[i >> 3] >> (i & 7) & 1 ? d : -d;
}

STRATA_DEVICE float dequantize(const block_q2_0 & b, uint32_t i) {
    return static_cast<float>((b.qs[i >> 2] >> 2 * (i & 3) & 3) - 1) * half_bits_to_float(b.d);
}

/// Element i of a 256-block of 2-bit values, as q2_K, q3_K and tq2_0 have them.
STRATA_DEVICE int32_t two_bits(const uint8_t * qs, uint32_t i) { return qs[(i >> 7) * 32 + (i & 31)] >> 2 * (i >> 5 & 3) & 3; }

STRATA_DEVICE float dequantize(const block_q2_K & b, uint32_t i) {
    const uint32_t both = b.scales[i >> 4];
    const float d = half_bits_to_float(b.d) * static_cast<float>(both & 15), m = half_bits_to_float(b.dmin) * static_cast<float>(both >> 4);
    return d * static_cast<float>(two_bits(b.qs, i)) - m;
}

STRATA_DEVICE float dequantize(const block_q3_K & b, uint32_t i) {
    const uint32_t s = i >> 4;
    const int32_t scale = (b.scales[s & 7] >> (s >> 3) * 4 & 15) | (b.scales[8 + (s & 3)] >> (s >> 2) * 2 & 3) << 4;
    const int32_t high = b.hmask[i & 31] >> (i >> 5) & 1;
    return half_bits_to_float(b.d) * static_cast<float>(scale - 32) * static_cast<float>(two_bits(b.qs, i) + 4 * high - 4);
}

STRATA_DEVICE float dequantize(const block_tq1_0 & b, uint32_t i) {
    uint32_t byte, digit;
    if (i < 160) {
        byte = b.qs[i & 31];
        digit = i >> 5;
    } else if (i < 240) {
        byte = b.qs[32 + (i & 15)];
        digit = (i - 160) >> 4;
    } else {
        byte = b.qh[i & 3];
        digit = (i - 240) >> 2;
    }
    const uint32_t power = digit == 0 ? 1 : digit == 1 ? 3 : digit == 2 ? 9 : digit == 3 ? 27 : 81;
    const uint32_t q = (byte * power & 255) * 3 >> 8;
    return static_cast<float>(static_cast<int32_t>(q) - 1) * half_bits_to_float(b.d);
}

STRATA_DEVICE float dequantize(const block_tq2_0 & b, uint32_t i) {
    return static_cast<float>(two_bits(b.qs, i) - 1) * half_bits_to_float(b.d);
}

STRATA_DEVICE float dequantize(const block_iq4_nl & b, uint32_t i) {
    return half_bits_to_float(b.d) * static_cast<float>(look_up_one(iq4_values, nibble(b.qs, i)));
}

STRATA_DEVICE float dequantize(const block_iq4_xs & b, uint32_t i) {
    const uint32_t s = i >> 5;
    const int32_t scale = (b.scales_l[s >> 1] >> (s & 1) * 4 & 15) | (b.scales_h >> 2 * s & 3) << 4;
    const float d = half_bits_to_float(b.d) * static_cast<float>(scale - 32);
    return d * static_cast<float>(look_up_one(iq4_values, nibble(b.qs + 16 * s, i & 31)));
}

STRATA_DEVICE float dequantize(const block_mxfp4 & b, uint32_t i) {
    return static_cast<float>(look_up_one(e2m1_values, nibble(b.qs, i))) * e8m0_half(b.e);
}

STRATA_DEVICE float dequantize(const block_nvfp4 & b, uint32_t i) {
    const uint32_t s = i >> 4, q = b.qs[8 * s + (i & 7)] >> (i & 8 ? 4 : 0);
    return static_cast<float>(look_up_one(e2m1_values, q)) * e4m3_half(b.d[s]);
}

/// Weight i & 7 of eight magnitudes, bit i & 7 of `signs` set for a negative one.
STRATA_DEVICE float signed_magnitude(uint64_t magnitudes, uint32_t signs, uint32_t i) {
    const float value = static_cast<float>(magnitudes >> 8 * (i & 7) & 255);
    return signs >> (i & 7) & 1 ? -value : value;
}

/// A scale of four bits: 0.5 + scale.
STRATA_DEVICE float half_and(uint32_t scale) { return 0.5f + static_cast<float>(scale & 15); }

STRATA_DEVICE float dequantize(const block_iq2_xxs & b, uint32_t i) {
    const uint32_t s = i >> 5, e = i >> 3 & 3;
    const uint32_t indices = b.qs[4 * s] | static_cast<uint32_t>(b.qs[4 * s + 1]) << 16;
    const uint32_t signs = b.qs[4 * s + 2] | static_cast<uint32_t>(b.qs[4 * s + 3]) << 16;
    return half_bits_to_float(b.d) * half_and(signs >> 28) * 0.25f *
           signed_magnitude(iq2xxs_grid[indices >> 8 * e & 255], complete_signs(signs >> 7 * e & 127), i);
}

STRATA_DEVICE float dequantize(const block_iq2_xs & b, uint32_t i) {
    const uint32_t q = b.qs[i >> 3];
    return half_bits_to_float(b.d) * half_and(b.scales[i >> 5] >> (i >> 4 & 1) * 4) * 0.25f *
           signed_magnitude(iq2xs_grid[q & 511], complete_signs(q >> 9), i);
}

STRATA_DEVICE float dequantize(const block_iq2_s & b, uint32_t i) {
    const uint32_t index = b.qs[i >> 3] | (b.qh[i >> 5] >> 2 * (i >> 3 & 3) & 3) << 8;
    return half_bits_to_float(b.d) * half_and(b.scales[i >> 5] >> (i >> 4 & 1) * 4) * 0.25f *
           signed_magnitude(iq2s_grid[index], b.signs[i >> 3], i);
}

STRATA_DEVICE float dequantize(const block_iq3_xxs & b, uint32_t i) {
    const uint8_t * word = b.scales_and_signs + 4 * (i >> 5);
    const uint32_t signs = word[0] | word[1] << 8 | word[2] << 16 | static_cast<uint32_t>(word[3]) << 24;
    const uint32_t magnitude = iq3xxs_grid[b.qs[i >> 2]] >> 8 * (i & 3) & 255;
    return half_bits_to_float(b.d) * half_and(signs >> 28) * 0.5f *
           signed_magnitude(static_cast<uint64_t>(magnitude) << 8 * (i & 7), complete_signs(signs >> 7 * (i >> 3 & 3) & 127), i);
}

STRATA_DEVICE float dequantize(const block_iq3_s & b, uint32_t i) {
    const uint32_t index = b.qs[i >> 2] | (b.qh[i >> 5] >> (i >> 2 & 7) & 1) << 8;
    const uint32_t magnitude = iq3s_grid[index] >> 8 * (i & 3) & 255;
    const int32_t scale = b.scales[i >> 6] >> (i >> 5 & 1) * 4 & 15;
    return half_bits_to_float(b.d) * static_cast<float>(1 + 2 * scale) *
           signed_magnitude(static_cast<uint64_t>(magnitude) << 8 * (i & 7), b.signs[i >> 3], i);
}

/// Value -1, 0 or 1 of element i & 7 of a grid entry of the iq1 types, plus or minus an eighth.
STRATA_DEVICE float ternary_value(uint32_t index, bool negative, uint32_t i) {
    const int32_t value = static_cast<int32_t>(iq1s_grid_gpu[index] >> (8 * (i & 3) + (i & 4)) & 15) - 1;
    return static_cast<float>(value) + (negative ? -0.125f : 0.125f);
}

STRATA_DEVICE float dequantize(const block_iq1_s & b, uint32_t i) {
    const uint32_t high = b.qh[i >> 5], index = b.qs[i >> 3] | (high >> 3 * (i >> 3 & 3) & 7) << 8;
    const int32_t scale = high >> 12 & 7;
    return half_bits_to_float(b.d) * static_cast<float>(2 * scale + 1) * ternary_value(index, (high & 0x8000) != 0, i);
}

STRATA_DEVICE float dequantize(const block_iq1_m & b, uint32_t i) {
    const uint32_t high = b.qh[i >> 4] >> (i >> 3 & 1) * 4, index = b.qs[i >> 3] | (high & 7) << 8;
    const uint8_t * word = b.scales + 2 * (i >> 6);
    const int32_t scale = (word[0] | word[1] << 8) >> 3 * (i >> 4 & 3) & 7;
    const uint32_t d = b.scales[1] >> 4 | (b.scales[3] & 0xf0) | (b.scales[5] & 0xf0) << 4 | (b.scales[7] & 0xf0) << 8;
    return half_bits_to_float(static_cast<uint16_t>(d)) * static_cast<float>(2 * scale + 1) * ternary_value(index, (high & 8) != 0, i);
}

}  // namespace strata
