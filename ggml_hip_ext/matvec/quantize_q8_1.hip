// Activations to bytes, for the products with quantized weights.
#include "strata/args/mul_mat.h"
#include "strata/q8_1.h"

namespace strata {

constexpr uint32_t values_per_lane = 4;

/// Grid: rows, chunks of 512 values, matrices. A lane takes four values.
STRATA_KERNEL(128) void quantize_q8_1(quantize_args a) {
    const uint32_t at = block_y() * 512 + thread_x() * values_per_lane;
    if (at >= a.length) {   // whole 32-blocks: the length is a multiple of 32
        return;
    }
    const uint32_t z = block_z(), i3 = quotient(z, a.channels), i2 = remainder(z, i3, a.channels), row = block_x();
    const char * src = static_cast<const char *>(a.src) + row * a.stride1 + i2 * a.stride2 + i3 * a.stride3;
    const uint64_t flat_row = static_cast<uint64_t>(z) * a.rows + row;
    store_q8_1(static_cast<char *>(a.values) + flat_row * a.length, static_cast<char *>(a.meta) + flat_row * (a.length / 32 * sizeof(q8_1_meta)),
               at, load<float4v>(src, at * 4));
}

}  // namespace strata
