// OUT_PROD: the sum of outer products, f32. A work-item an element of the first operand's row and several of the second's, which are the
// same in all lanes.
#include "strata/args/backward.h"
#include "strata/math.h"
#include "strata/memory.h"

using namespace strata;

STRATA_KERNEL(out_prod_block) void out_prod_f32(out_prod_args args) {
    const uint32_t m = block_x() * out_prod_block + thread_x(), first = block_y() * out_prod_columns;
    const uint32_t i3 = quotient(block_z(), args.ne2), i2 = remainder(block_z(), i3, args.ne2);
    if (m >= args.m) {
        return;
    }
    const char * a = reinterpret_cast<const char *>(args.a + m) +
                     (quotient(i2, args.ratio2) * args.a_stride[0] + quotient(i3, args.ratio3) * args.a_stride[1]);
    const char * const b = reinterpret_cast<const char *>(args.b) + (i2 * args.b_stride[0] + i3 * args.b_stride[1]);
    uint64_t at[out_prod_columns];
#pragma unroll
    for (uint32_t c = 0; c < out_prod_columns; c++) {
        at[c] = smaller(first + c, args.n - 1) * args.b_step[0];
    }
    float sums[out_prod_columns] = {};
    for (uint32_t k = 0; k < args.k; k++) {
        const float value = load<float>(a);
#pragma unroll
        for (uint32_t c = 0; c < out_prod_columns; c++) {
            sums[c] = fma(value, load<float>(b + (at[c] + k * args.b_step[1])), sums[c]);
        }
        a += args.a_step;
    }
    float * const dst = args.dst + (static_cast<uint64_t>(block_z()) * args.n + first) * args.m + m;
#pragma unroll
    for (uint32_t c = 0; c < out_prod_columns; c++) {
        if (first + c < args.n) {
            dst[static_cast<uint64_t>(c) * args.m] = sums[c];
        }
    }
}
