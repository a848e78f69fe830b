// Numbers with their columns as integers that order as the numbers do.
#pragma once

#include "strata/device.h"

namespace strata {

/// -0 is 0; NaN lies beyond infinity; equal numbers order by column.
STRATA_DEVICE uint64_t sort_key(float x, uint32_t descending, uint32_t column) {
    const uint32_t bits = bit_cast<uint32_t>(x + 0.0f);
    const uint32_t ordered = bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
    return static_cast<uint64_t>(descending ? ~ordered : ordered) << 32 | column;
}

}  // namespace strata
