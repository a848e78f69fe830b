// Activations to bytes: each 32 values share d = max|x| / 127, and q = round(x / d), halves away from zero, as ggml's q8_1 has it.
#include "strata/args/mul_mat.h"
#include "strata/blocks.h"
#include "strata/dot.h"
#include "strata/memory.h"
#include "strata/reduce.h"

namespace strata {

constexpr uint32_t values_per_lane = 4, lanes_per_block = 32 / values_per_lane;

/// Grid: rows, chunks of 512 values, matrices. A lane takes four values.
STRATA_KERNEL(128) void quantize_q8_1(quantize_args a) {
    const uint32_t at = block_y() * 512 + thread_x() * values_per_lane;
    if (at >= a.length) {   // whole 32-blocks: the length is a multiple of 32
        return;
    }
    const uint32_t z = block_z(), i3 = quotient(z, a.channels), i2 = remainder(z, i3, a.channels), row = block_x();
    const char * src = static_cast<const char *>(a.src) + row * a.stride1 + i2 * a.stride2 + i3 * a.stride3;
    const auto x = load<float4v>(src, at * 4);

    float largest = __builtin_fmaxf(__builtin_fmaxf(__builtin_fabsf(x.x), __builtin_fabsf(x.y)),
                                    __builtin_fmaxf(__builtin_fabsf(x.z), __builtin_fabsf(x.w)));
    largest = wave_max<lanes_per_block>(largest);
    const float d = largest / 127.0f;
    const float inverse = d != 0.0f ? 1.0f / d : 0.0f;

    uint32_t packed = 0;
#pragma unroll
    for (uint32_t i = 0; i < values_per_lane; ++i) {
        const int32_t q = static_cast<int32_t>(__builtin_roundf(x[i] * inverse));
        packed |= (static_cast<uint32_t>(q) & 255) << 8 * i;
    }
    const int32_t sum = wave_sum<lanes_per_block>(dot4_signed(packed, 0x01010101, 0));

    const uint64_t flat_row = static_cast<uint64_t>(z) * a.rows + row;
    char * values = static_cast<char *>(a.values) + flat_row * a.length;
    store<uint32_t>(values, at, packed);
    if (at % 32 == 0) {
        char * meta = static_cast<char *>(a.meta) + flat_row * (a.length / 32 * sizeof(q8_1_meta));
        store<q8_1_meta>(meta, at / 32 * sizeof(q8_1_meta), {d, sum});
    }
}

}  // namespace strata
