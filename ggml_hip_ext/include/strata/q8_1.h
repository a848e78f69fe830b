// Activations to bytes: each 32 values share d = max|x| / 127, and q = round(x / d), halves away from zero, as ggml's q8_1 has it.
#pragma once

#include "strata/blocks.h"
#include "strata/dot.h"
#include "strata/memory.h"
#include "strata/reduce.h"

namespace strata {

/// Writes values at .. at + 3 of a row as bytes, and for each 32 of them a q8_1_meta. Eight neighbouring lanes have 32 neighbouring values,
/// and all of them are active.
STRATA_DEVICE void store_q8_1(char * values, char * meta, uint32_t at, float4v x) {
    constexpr uint32_t lanes = 8;
    float largest = __builtin_fmaxf(__builtin_fmaxf(__builtin_fabsf(x.x), __builtin_fabsf(x.y)),
                                    __builtin_fmaxf(__builtin_fabsf(x.z), __builtin_fabsf(x.w)));
    largest = wave_max<lanes>(largest);
    const float d = largest / 127.0f;
    const float inverse = d != 0.0f ? 1.0f / d : 0.0f;

    uint32_t packed = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        const int32_t q = static_cast<int32_t>(__builtin_roundf(x[i] * inverse));
        packed |= (static_cast<uint32_t>(q) & 255) << 8 * i;
    }
    const int32_t sum = wave_sum<lanes>(dot4_signed(packed, 0x01010101, 0));
    store<uint32_t>(values, at, packed);
    if (at % 32 == 0) {
        store<q8_1_meta>(meta, at / 32 * sizeof(q8_1_meta), {d, sum});
    }
}

}  // namespace strata
