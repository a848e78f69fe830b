// What iq1_s and iq1_m have in common: values -1, 0 and 1 from a grid, with an eighth added or taken off, here all times eight.
#pragma once

#include "strata/codebooks.h"
#include "strata/quant/block64.h"

namespace strata {

/// Puts eight weights 8 value + 1 (or - 1 if `negative`) at words w, w + 1 of a piece. `grid`: eight nibbles value + 1, elements 0-3 low, 4-7 high.
STRATA_DEVICE void put_eight_ternary(uint4v (&q)[4], uint32_t w, uint32_t grid, bool negative) {
    const uint32_t bias = negative ? 0x09090909u : 0x07070707u;
    const auto eighths = [&](uint32_t eight_times) { return ((eight_times | 0x80808080u) - bias) ^ 0x80808080u; };
    q[w / 4][w % 4] = eighths(grid << 3 & 0x78787878u);
    q[w / 4][w % 4 + 1] = eighths(grid >> 1 & 0x78787878u);
}

/// (2 scale + 1) / 8 for a scale of three bits.
STRATA_DEVICE float odd_eighths(uint32_t scale) { return static_cast<float>(2 * (scale & 7) + 1) * 0.125f; }

}  // namespace strata
