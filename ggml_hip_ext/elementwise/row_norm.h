// What the norms of f32 rows have in common. The order of the additions: each of the four elements of a lane has a sum of its own.
#pragma once

#include "strata/args/norm.h"
#include "strata/math.h"
#include "strata/memory.h"
#include "strata/reduce.h"
#include "strata/row_part.h"

namespace strata {

constexpr uint32_t wave_step = 4 * wave_size;
constexpr uint32_t block_step = 4 * norm_block;
constexpr uint32_t norm_waves = norm_block / wave_size;
constexpr uint32_t norm_wave_steps = norm_wave_row / wave_step;   // of a row that a wave keeps in registers

STRATA_DEVICE void add_squares(float4v & sums, float4v v) {
    for (uint32_t i = 0; i < 4; i++) {
        sums[i] = fma(v[i], v[i], sums[i]);
    }
}

STRATA_DEVICE float lane_total(float4v sums) { return (sums[0] + sums[1]) + (sums[2] + sums[3]); }

// What a row of `length` elements is multiplied by.
STRATA_DEVICE float rms_scale(float squares, uint32_t length, float eps) { return 1.0f / sqrt(squares / static_cast<float>(length) + eps); }

}  // namespace strata
