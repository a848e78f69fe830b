// One weight of a quantized block as a float, in exactly the arithmetic of ggml's dequantize_row functions (products and sums are rounded
// apart).
#pragma once

#include "strata/blocks.h"
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

}  // namespace strata
