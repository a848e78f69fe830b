// SOLVE_TRI: forward substitution. A wave solves for 32 columns, a lane a column, four rows at a time; what is known of X stays in LDS.
#include "strata/args/solve_tri.h"
#include "strata/math.h"
#include "strata/memory.h"

using namespace strata;

constexpr uint32_t step = 4;  // rows at a time

extern __shared__ float solved[];  // [n][32]

STRATA_KERNEL(32) void solve_tri(solve_tri_args args) {
    const uint32_t lane = lane_id();
    const uint32_t column = block_x() * wave_size + lane;
    const bool active = column < args.columns;
    const uint32_t own = smaller(column, args.columns - 1) * sizeof(float);
    const uint32_t i3 = quotient(block_y(), args.channels), i2 = remainder(block_y(), i3, args.channels);
    const char * const a = static_cast<const char *>(args.a) + (i2 * args.a_stride[1] + i3 * args.a_stride[2]);
    const char * const b = static_cast<const char *>(args.b) + (i2 * args.b_stride[1] + i3 * args.b_stride[2]);
    char * const x = static_cast<char *>(args.x) + (i2 * args.x_stride[1] + i3 * args.x_stride[2]);

    for (uint32_t first = 0; first < args.n; first += step) {
        float rest[step];
        const char * row[step];
#pragma unroll
        for (uint32_t r = 0; r < step; r++) {
            const uint32_t i = smaller(first + r, args.n - 1);  // rows behind the last are computed for nothing
            row[r] = a + i * args.a_stride[0];
            rest[r] = load<float>(b + i * args.b_stride[0], own);
        }
        for (uint32_t t = 0; t < first; t += 4) {
            float4v factors[step];
#pragma unroll
            for (uint32_t r = 0; r < step; r++) {
                factors[r] = load<float4v>(row[r], t * sizeof(float));
            }
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) {
                const float known = solved[(t + j) * wave_size + lane];
#pragma unroll
                for (uint32_t r = 0; r < step; r++) {
                    rest[r] = fma(-factors[r][j], known, rest[r]);
                }
            }
        }
        float now[step];
#pragma unroll
        for (uint32_t r = 0; r < step; r++) {
            if (first + r < args.n) {
#pragma unroll
                for (uint32_t j = 0; j < r; j++) {
                    rest[r] = fma(-load<float>(row[r], (first + j) * sizeof(float)), now[j], rest[r]);
                }
                now[r] = divide(rest[r], load<float>(row[r], (first + r) * sizeof(float)));
                solved[(first + r) * wave_size + lane] = now[r];
                if (active) {
                    store(x + (first + r) * args.x_stride[0], own, now[r]);
                }
            }
        }
    }
}
