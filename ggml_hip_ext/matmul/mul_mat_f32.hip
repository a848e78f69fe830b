// f32 weights times many columns of f32, by fma: a workgroup makes 64 x 64 results, a work-item 4 rows x 8 columns of them, in steps of
// 16 along k. With experts, as in mul_mat_q.h.
#include "float_tile.h"
#include "strata/memory.h"

namespace strata {

/// Four values from k on, zeros from k = end on.
STRATA_DEVICE float4v load_four(const char * base, uint32_t row_offset, uint32_t k, uint32_t end) {
    float4v v = {0, 0, 0, 0};
    if (k + 4 <= end) {
        v = load<float4v>(base, row_offset + k * 4);
    } else if (k < end) {
#pragma unroll
        for (uint32_t i = 0; i < 3; ++i) {
            if (k + i < end) {
                v[i] = load<float>(base, row_offset + (k + i) * 4);
            }
        }
    }
    return v;
}

/// Grid: tiles of rows, tiles of columns, matrices; or tiles of rows, expert tiles.
STRATA_KERNEL(128) void mul_mat_f32_f32(mul_mat_f_args a) {
    constexpr uint32_t side = 64, k_step = 16, pitch = side + 4, lines = 128 / (k_step / 4);
    alignas(16) __shared__ float weight_tile[k_step * pitch];        // [k][row]
    alignas(16) __shared__ float activation_tile[k_step * pitch];    // [k][column]
    __shared__ uint32_t targets[side];                               // with experts: columns of the result

    const uint32_t thread = thread_x();
    const uint32_t word = thread % (k_step / 4), line = thread / (k_step / 4);
    float_tile<side / lines> tile;
    if (!find_float_tile<side, side>(a, line, tile, targets)) {
        return;
    }

    const uint32_t row = thread % 16 * 4, column = thread / 16 * 8;
    const bool has_columns = uniform(thread / wave_size) * (wave_size / 2) <= tile.last_column;   // this wave
    float acc[8][4] = {};
    for (uint32_t k = 0; k < a.k; k += k_step) {
        float4v w[side / lines], x[side / lines];
#pragma unroll
        for (uint32_t i = 0; i < side / lines; ++i) {
            const uint32_t at = i * lines + line;
            w[i] = load_four(tile.weights, smaller(at, tile.last_row) * a.stride1, k + word * 4, a.k);
            x[i] = load_four(tile.activations, tile.activation_at[i], k + word * 4, a.k);
        }
        barrier();
#pragma unroll
        for (uint32_t i = 0; i < side / lines; ++i) {
#pragma unroll
            for (uint32_t j = 0; j < 4; ++j) {
                weight_tile[(word * 4 + j) * pitch + i * lines + line] = w[i][j];
                activation_tile[(word * 4 + j) * pitch + i * lines + line] = x[i][j];
            }
        }
        barrier();
        if (!has_columns) {
            continue;
        }
#pragma unroll 4
        for (uint32_t j = 0; j < k_step; ++j) {
            const auto four = *reinterpret_cast<const float4v *>(weight_tile + j * pitch + row);
            const auto low = *reinterpret_cast<const float4v *>(activation_tile + j * pitch + column);
            const auto high = *reinterpret_cast<const float4v *>(activation_tile + j * pitch + column + 4);
#pragma unroll
            for (uint32_t c = 0; c < 8; ++c) {
#pragma unroll
                for (uint32_t r = 0; r < 4; ++r) {
                    acc[c][r] = __builtin_fmaf(c < 4 ? low[c % 4] : high[c % 4], four[r], acc[c][r]);
                }
            }
        }
    }

#pragma unroll
    for (uint32_t c = 0; c < 8; ++c) {
        if (column + c <= tile.last_column) {
            float * to = tile.dst + static_cast<uint64_t>(tile.routed ? targets[column + c] : column + c) * a.rows;
#pragma unroll
            for (uint32_t r = 0; r < 4; ++r) {
                if (row + r <= tile.last_row) {
                    to[row + r] = acc[c][r];
                }
            }
        }
    }
}

}  // namespace strata
