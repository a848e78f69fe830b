// Four neighbouring floats of a row at a time, also at the end of a row whose length is not a multiple of four.
#pragma once

#include "strata/memory.h"

namespace strata {

/// Elements e .. e+3 of a row of n, zeros past its end. Fours: n is a multiple of 4.
template <bool Fours>
STRATA_DEVICE float4v load_part(const float * row, uint32_t e, uint32_t n) {
    float4v v = {0.0f, 0.0f, 0.0f, 0.0f};
    if (Fours ? e < n : e + 4 <= n) {
        v = load<float4v>(row, e * sizeof(float));
    } else if constexpr (!Fours) {
        for (uint32_t i = 0; i < 3; i++) {
            if (e + i < n) {
                v[i] = load<float>(row, (e + i) * sizeof(float));
            }
        }
    }
    return v;
}

/// Writes those of e .. e+3 that the row has.
template <bool Fours>
STRATA_DEVICE void store_part(float * row, uint32_t e, uint32_t n, float4v v) {
    if (Fours ? e < n : e + 4 <= n) {
        store(row, e * sizeof(float), v);
    } else if constexpr (!Fours) {
        for (uint32_t i = 0; i < 3; i++) {
            if (e + i < n) {
                store(row, (e + i) * sizeof(float), v[i]);
            }
        }
    }
}

}  // namespace strata
