// f16 or bf16 weights times many columns: WMMA with f32 accumulation on tiles in LDS; activations are rounded to the type of the weights.
//
// A workgroup of four waves makes 128 rows x Columns columns of the result in steps of 64 along k, a wave 32 rows of them. The next
// step's values lie in registers while a step is multiplied. Beyond the end of k the tiles hold zeros. Activations are the A operand,
// weights the B operand. With experts, as in mul_mat_q.h.
#pragma once

#include "float_tile.h"
#include "store_tile.h"
#include "strata/floats.h"

namespace strata {

/// Eight values of 16 bits from k on, zeros from k = end on.
template <class Weight, class From>
STRATA_DEVICE uint4v load_rounded(const void * base, uint32_t row_offset, uint32_t k, uint32_t end) {
    uint4v packed = {0, 0, 0, 0};
    if (k + 8 <= end) {
        const auto raw = load_eight<From>(base, row_offset + k * element_size<From>);
        if constexpr (element_size<From> == 2) {
            packed = bit_cast<uint4v>(raw);
        } else {
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                packed[i] = bits_of<Weight>(From::to_float(raw[2 * i])) | bits_of<Weight>(From::to_float(raw[2 * i + 1])) << 16;
            }
        }
    } else if (k < end) {
        // Values enter at the low end, last one first; a loop, because this is the rare end of an odd row and would be most of the code.
#pragma clang loop unroll(disable)
        for (uint32_t i = 8; i-- > 0;) {
            const uint32_t bits = k + i < end ? bits_of<Weight>(load_float<From>(base, row_offset + (k + i) * element_size<From>)) : 0;
            packed = {packed.x << 16 | bits, packed.y << 16 | packed.x >> 16, packed.z << 16 | packed.y >> 16,
                      packed.w << 16 | packed.z >> 16};
        }
    }
    return packed;
}

/// Grid: tiles of rows, tiles of columns, matrices; or tiles of rows, expert tiles.
template <class Weight, class Activation, uint32_t Columns>
STRATA_DEVICE void mul_mat_16(const mul_mat_f_args & a) {
    using fragment = typename fragment_of<Weight>::type;
    constexpr uint32_t rows = 128, threads = 128, k_step = 64, row_words = k_step / 8, pitch = k_step * 2 + 16;
    constexpr uint32_t thread_weights = rows * row_words / threads, thread_activations = Columns * row_words / threads;
    constexpr uint32_t row_tiles = 2, column_tiles = Columns / 16;

    alignas(32) __shared__ unsigned char weight_tile[rows * pitch];
    alignas(32) __shared__ unsigned char activation_tile[Columns * pitch];
    __shared__ uint32_t targets[Columns];   // with experts: columns of the result

    const uint32_t thread = thread_x(), wave = uniform(thread / wave_size);
    const uint32_t word = thread % row_words, line = thread / row_words;
    constexpr uint32_t lines = threads / row_words;
    float_tile<thread_activations> tile;
    if (!find_float_tile<rows, Columns>(a, line, tile, targets)) {
        return;
    }

    uint4v next_weights[thread_weights], next_activations[thread_activations];
    const auto fetch = [&](uint32_t k) {
#pragma unroll
        for (uint32_t i = 0; i < thread_weights; ++i) {
            const uint32_t at = smaller(i * lines + line, tile.last_row) * a.stride1;
            next_weights[i] = load_rounded<Weight, Weight>(tile.weights, at, k + word * 8, a.k);
        }
#pragma unroll
        for (uint32_t i = 0; i < thread_activations; ++i) {
            next_activations[i] = load_rounded<Weight, Activation>(tile.activations, tile.activation_at[i], k + word * 8, a.k);
        }
    };

    const uint32_t wave_row = wave * 32, index = wmma_lane_index();
    float8 acc[column_tiles][row_tiles] = {};
    fetch(0);
    for (uint32_t k = 0; k < a.k; k += k_step) {
#pragma unroll
        for (uint32_t i = 0; i < thread_weights; ++i) {
            *reinterpret_cast<uint4v *>(weight_tile + (i * lines + line) * pitch + word * 16) = next_weights[i];
        }
#pragma unroll
        for (uint32_t i = 0; i < thread_activations; ++i) {
            *reinterpret_cast<uint4v *>(activation_tile + (i * lines + line) * pitch + word * 16) = next_activations[i];
        }
        barrier();
        if (k + k_step < a.k) {
            fetch(k + k_step);
        }
#pragma clang loop unroll(disable)
        for (uint32_t part = 0; part < k_step * 2; part += 32) {
            fragment w[row_tiles];
#pragma unroll
            for (uint32_t r = 0; r < row_tiles; ++r) {
                w[r] = load_fragment<fragment>(weight_tile + (wave_row + r * 16 + index) * pitch + part);
            }
#pragma unroll
            for (uint32_t c = 0; c < column_tiles; ++c) {
                const auto x = load_fragment<fragment>(activation_tile + (c * 16 + index) * pitch + part);
#pragma unroll
                for (uint32_t r = 0; r < row_tiles; ++r) {
                    acc[c][r] = wmma(x, w[r], acc[c][r]);
                }
            }
        }
        barrier();
    }

    float * dst = tile.dst + wave_row;
    const int32_t rows_left = static_cast<int32_t>(tile.last_row + 1 - wave_row), columns_left = static_cast<int32_t>(tile.last_column + 1);
    if (tile.routed) {
        store_scattered_tile<column_tiles>(dst, a.rows, acc, rows_left, columns_left, targets);
    } else {
        store_tile<column_tiles>(dst, a.rows, acc, rows_left, columns_left);
    }
}

}  // namespace strata

// Kernels mul_mat_<weights>_<activations>_j<columns a workgroup>.
#define STRATA_MUL_MAT_16(weight, activation, columns)                                                        \
    STRATA_KERNEL(128) void mul_mat_##weight##_##activation##_j##columns(strata::mul_mat_f_args a) {          \
        strata::mul_mat_16<strata::weight, strata::activation, columns>(a);                                   \
    }
