// Weight type tq1_0: see block32.h for what the members mean. A piece is 64 weights, four runs of 16: run r < 10 is digit r / 2 of the
// bytes at 16 (r % 2), run 10 to 14 digit r - 10 of the bytes at 32, run 15 the four digits of the four bytes at 48.
#pragma once

#include "strata/quant/block64.h"

namespace strata {

/// 3^n for n < 5.
STRATA_DEVICE uint32_t power_of_three(uint32_t n) {
    const uint32_t low = n & 1 ? 3 : 1;
    return n & 4 ? 81 : n & 2 ? low * 9 : low;
}

/// Digit n of the numbers in four bytes, less one, for `power` 3^n.
STRATA_DEVICE uint32_t ternary_digits(uint32_t bytes, uint32_t power) {
    constexpr uint32_t mask = 0x00ff00ff;
    const uint32_t even = ((bytes & mask) * power & mask) * 3 >> 8 & 0x00030003u;
    const uint32_t odd = ((bytes >> 8 & mask) * power & mask) * 3 & 0x03000300u;
    return subtract_from_bytes<1>(even | odd);
}

struct tq1_0 : block64<block_tq1_0, 32> {
    struct weights {
        uint4v q[4];
        uint16_t d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t p) {
        weights w;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t run = (p & 3) * 4 + i;
            if (i < 3 || run != 15) {
                w.q[i] = strata::load<uint4v>(row, offset + (run < 10 ? run % 2 * 16 : 32));
            } else {
                const auto four = strata::load<uint32_t>(row, offset, 48);
                w.q[i] = uint4v{four, four, four, four};
            }
        }
        w.d = strata::load<uint16_t>(row, offset, 52);
        return w;
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t p) {
        tile_piece t;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t run = (p & 3) * 4 + i, power = power_of_three(run < 10 ? run >> 1 : run - 10);
#pragma unroll
            for (uint32_t j = 0; j < 4; ++j) {
                t.q[i][j] = ternary_digits(w.q[i][j], i == 3 && run == 15 ? power_of_three(j) : power);
            }
        }
        t.scale[0] = t.scale[1] = half_bits_to_float(w.d);
        return t;
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p) { return dot_unpacked(unpack(w, p), a, sum); }
};

}  // namespace strata
