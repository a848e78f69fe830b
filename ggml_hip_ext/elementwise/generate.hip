// ARANGE and TIMESTEP_EMBEDDING, f32.
#include "strata/args/generate.h"
#include "strata/math.h"
#include "strata/memory.h"

using namespace strata;

STRATA_KERNEL(generate_block) void arange(arange_args a) {
    const uint32_t i = block_x() * generate_block + thread_x();
    if (i < a.count) {
        static_cast<float *>(a.dst)[i] = a.start + a.step * static_cast<float>(i);
    }
}

// A work-item a frequency; the workgroup's y is the timestep.
STRATA_KERNEL(generate_block) void timestep_embedding(timestep_args a) {
    const uint32_t j = block_x() * generate_block + thread_x();
    char * const row = static_cast<char *>(a.dst) + block_y() * a.dst_stride;
    if (j < a.half) {
        const float timestep = load<float>(static_cast<const char *>(a.src) + block_y() * a.src_stride);
        const float frequency = exp(a.exponent * static_cast<float>(j) / static_cast<float>(a.half));
        float sine, cosine;
        sincos(timestep * frequency, sine, cosine);
        store(row, j * sizeof(float), cosine);
        store(row, (a.half + j) * sizeof(float), sine);
    } else if (2 * j + 1 == a.dim) {
        store(row, 2 * j * sizeof(float), 0.0f);
    }
}
