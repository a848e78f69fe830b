// What the iq2 and iq3 types have in common: magnitudes from a grid with signs apart.
#pragma once

#include "strata/codebooks.h"
#include "strata/quant/block64.h"

namespace strata {

/// Four magnitudes (bytes of 1 to 127), negative where the low four bits of `signs` say so.
STRATA_DEVICE uint32_t apply_signs(uint32_t magnitudes, uint32_t signs) {
    const uint32_t one = spread_bits(signs), all = (one << 8) - one;
    return (magnitudes ^ all) + one;
}

/// Puts eight weights at words w, w + 1 of a piece.
STRATA_DEVICE void put_eight(uint4v (&q)[4], uint32_t w, uint64_t magnitudes, uint32_t signs) {
    q[w / 4][w % 4] = apply_signs(static_cast<uint32_t>(magnitudes), signs);
    q[w / 4][w % 4 + 1] = apply_signs(static_cast<uint32_t>(magnitudes >> 32), signs >> 4);
}

/// 2 scale + 1 for a scale of four bits.
STRATA_DEVICE float odd_scale(uint32_t scale) { return static_cast<float>(2 * (scale & 15) + 1); }

}  // namespace strata
