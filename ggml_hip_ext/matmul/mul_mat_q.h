// Quantized weights times many columns of quantized activations: WMMA iu8 on tiles of bytes in LDS.
//
// A workgroup makes 128 rows x Columns columns of the result, a wave 32 rows x up to 64 columns of them, in steps of 128 along k. A step's
// weights are decoded to signed bytes with a float scale (and min) for each group of 32 or 16, the next step's lie in registers meanwhile.
// Activations are the A operand (rows of D), weights the B operand (columns of D), so that stores run along the rows of the result.
// Each element of the result adds its k blocks in ascending order, whatever the tile.
//
// With experts, a tile's columns are pairs of token and slot that chose the same expert, as route_experts lists them; workgroups without a
// tile end at once.
#pragma once

#include "store_tile.h"
#include "strata/args/mul_mat.h"
#include "strata/blocks.h"
#include "strata/dot.h"
#include "strata/memory.h"

namespace strata {

constexpr uint32_t mul_mat_q_rows = 128;

/// Columns of the result in a workgroup and how its waves share them.
template <uint32_t Columns>
struct mul_mat_q_shape {
    static constexpr uint32_t wave_columns = Columns < 64 ? Columns : 64;
    static constexpr uint32_t threads = 128 * (Columns / wave_columns);
};

/// Where activation column c of 16 lies among the scales: those of the eight D elements of a lane are neighbours.
STRATA_DEVICE uint32_t scale_slot(uint32_t c) { return (c & ~15u) | (c & 1) << 3 | (c >> 1 & 7); }

/// Sums of products begin at the bits of this float, 1.5 * 2^23. Its lowest bit counts ones, so what has been added to the bits has been added
/// to the float, up to 2^22 either way; 32 products of two bytes stay below 2^20.
constexpr float sum_origin = 12582912.0f;
/// Such a sum as a float, exactly. Unlike conversions, two subtractions can go in one instruction.
STRATA_DEVICE float float_sum(int32_t sum) { return bit_cast<float>(sum) - sum_origin; }

/// Grid: tiles of rows, tiles of columns, matrices; or tiles of rows, expert tiles.
template <class Type, uint32_t Columns>
STRATA_DEVICE void mul_mat_q(const mul_mat_q_args & a) {
    using block = typename Type::block;
    using shape = mul_mat_q_shape<Columns>;
    constexpr uint32_t rows = mul_mat_q_rows, threads = shape::threads;
    constexpr uint32_t k_step = 128, blocks_a_step = k_step / 32;
    constexpr uint32_t piece_length = block::elements / Type::pieces, row_pieces = k_step / piece_length;
    constexpr uint32_t thread_pieces = rows * row_pieces / threads;
    constexpr uint32_t groups = k_step / Type::group, groups_a_block = 32 / Type::group;
    constexpr bool half_sums = Type::has_min && Type::group == 16;   // then value_sum has the sums of 16 values, without their scale
    constexpr uint32_t column_words = k_step / 16, thread_words = Columns * column_words / threads;
    constexpr uint32_t metas = Columns * blocks_a_step, thread_metas = (metas + threads - 1) / threads;
    constexpr uint32_t row_tiles = 2, column_tiles = shape::wave_columns / 16;

    // A row is as long as all banks of LDS together. Word w (16 bytes) of row r lies where word w ^ tile_swizzle(r) would, so that eight
    // neighbouring rows have the same word in different banks.
    alignas(16) __shared__ unsigned char weight_bytes[rows * k_step];
    alignas(16) __shared__ unsigned char value_bytes[Columns * k_step];
    alignas(32) __shared__ float weight_scale[groups * rows];
    alignas(32) __shared__ float weight_min[Type::has_min ? groups * rows : 1];   // negated: an fma with a sign is no half of a dual instruction
    alignas(32) __shared__ float value_scale[blocks_a_step * Columns];
    alignas(32) __shared__ float value_sum[Type::has_min ? groups * Columns : 1];
    __shared__ uint32_t targets[Columns];   // with experts: columns of the result

    const uint32_t thread = thread_x(), lane = lane_id(), wave = uniform(thread / wave_size);
    const uint32_t first_row = block_x() * rows;
    const uint32_t last_row = a.rows - 1 - first_row;   // seen from the tile's corner
    const uint32_t meta_pitch = a.k / 32 * sizeof(q8_1_meta);
    const char * weights = static_cast<const char *>(a.weights) + static_cast<uint64_t>(first_row) * a.stride1;
    const char * values = static_cast<const char *>(a.values);
    const char * meta = static_cast<const char *>(a.meta);
    float * dst = a.dst + first_row;

    // Rows and columns beyond the edge repeat the last one: their loads stay in bounds and their results are not stored.
    uint32_t weight_at[thread_pieces], value_at[thread_words], meta_at[thread_metas], last_column;
    const uint32_t piece = thread % row_pieces, word = thread % column_words, meta_block = thread % blocks_a_step;
#pragma unroll
    for (uint32_t i = 0; i < thread_pieces; ++i) {
        const uint32_t row = (i * threads + thread) / row_pieces;
        weight_at[i] = smaller(row, last_row) * a.stride1 + Type::block_offset(piece);
    }
    const auto place_columns = [&](auto && source) {
#pragma unroll
        for (uint32_t i = 0; i < thread_words; ++i) {
            value_at[i] = source(smaller((i * threads + thread) / column_words, last_column)) * a.k + word * 16;
        }
#pragma unroll
        for (uint32_t i = 0; i < thread_metas; ++i) {
            meta_at[i] = source(smaller((i * threads + thread) / blocks_a_step, last_column)) * meta_pitch + meta_block * sizeof(q8_1_meta);
        }
    };
    const bool routed = a.routed.tiles != nullptr;
    if (routed) {
        const expert_tile tile = find_tile(a.routed, block_y());
        if (tile.count == 0) {
            return;
        }
        last_column = tile.count - 1;
        weights += tile.expert * a.batches.stride2;
        const expert_column * columns = a.routed.columns + tile.first;
        place_columns([&](uint32_t column) { return columns[column].source; });
        if (thread < Columns) {   // seen after the barriers of the first step
            targets[thread] = columns[smaller(thread, last_column)].pair;
        }
    } else {
        const uint32_t first_column = block_y() * Columns, z = block_z();
        const uint64_t flat_column = static_cast<uint64_t>(z) * a.columns + first_column;
        last_column = a.columns - 1 - first_column;
        weights += weight_matrix_offset(a.batches, z);
        values += flat_column * a.k;
        meta += flat_column * meta_pitch;
        dst += flat_column * a.rows;
        place_columns([](uint32_t column) { return column; });
    }

    typename Type::weights next_weights[thread_pieces];
    uint4v next_values[thread_words];
    q8_1_meta next_meta[thread_metas];
    const auto fetch = [&](uint32_t k) {
        if (k + piece * piece_length < a.k) {
            const char * from = weights + Type::block_offset(k / piece_length);
#pragma unroll
            for (uint32_t i = 0; i < thread_pieces; ++i) {
                next_weights[i] = Type::load(from, weight_at[i], k / piece_length + piece);
            }
        }
        if (k + word * 16 < a.k) {
#pragma unroll
            for (uint32_t i = 0; i < thread_words; ++i) {
                next_values[i] = load<uint4v>(values + k, value_at[i]);
            }
        }
        if (k + meta_block * 32 < a.k) {
#pragma unroll
            for (uint32_t i = 0; i < thread_metas; ++i) {
                next_meta[i] = load<q8_1_meta>(meta + k / 32 * sizeof(q8_1_meta), meta_at[i]);
            }
        }
    };
    static_assert(threads / row_pieces % 8 == 0 && threads / column_words % 8 == 0, "all rows of a work-item have the same swizzle");
    const uint32_t weights_to = thread / row_pieces * k_step + (Type::tile_offset(piece, 0) ^ Type::tile_swizzle(thread / row_pieces) * 16);
    const uint32_t values_to = thread / column_words * k_step + (word ^ Type::tile_swizzle(thread / column_words)) * 16;
    const auto put_down = [&](uint32_t k) {
#pragma unroll
        for (uint32_t i = 0; i < thread_pieces; ++i) {
            const uint32_t row = (i * threads + thread) / row_pieces;
            const auto t = Type::unpack(next_weights[i], k / piece_length + piece);
#pragma unroll
            for (uint32_t w = 0; w < piece_length / 16; ++w) {
                *reinterpret_cast<uint4v *>(weight_bytes + i * (threads / row_pieces * k_step) + (weights_to ^ Type::tile_offset(0, w))) = t.q[w];
            }
#pragma unroll
            for (uint32_t g = 0; g < piece_length / Type::group; ++g) {
                weight_scale[Type::scale_index(piece, g) * rows + row] = t.scale[g];
                if constexpr (Type::has_min) {
                    weight_min[Type::scale_index(piece, g) * rows + row] = -t.min[g];
                }
            }
            keep_order();
        }
#pragma unroll
        for (uint32_t i = 0; i < thread_words; ++i) {
            const uint32_t column = (i * threads + thread) / column_words;
            *reinterpret_cast<uint4v *>(value_bytes + i * (threads / column_words * k_step) + values_to) = next_values[i];
            if constexpr (half_sums) {
                value_sum[word * Columns + scale_slot(column)] = static_cast<float>(sum_bytes(next_values[i]));
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < thread_metas; ++i) {
            if (metas % threads == 0 || i * threads + thread < metas) {
                const uint32_t slot = meta_block * Columns + scale_slot((i * threads + thread) / blocks_a_step);
                value_scale[slot] = next_meta[i].d;
                if constexpr (Type::has_min && !half_sums) {
                    value_sum[slot] = next_meta[i].d * static_cast<float>(next_meta[i].sum);
                }
            }
        }
    };

    const uint32_t wave_row = wave % 4 * 32, wave_column = wave / 4 * shape::wave_columns;
    const uint32_t index = wmma_lane_index(), half_row = lane >> 4;
    const uint32_t read_swizzle = Type::tile_swizzle(index) * 16;   // that of all rows and columns that the lane reads
    const uint32_t weights_from = (wave_row + index) * k_step + read_swizzle, values_from = (wave_column + index) * k_step + read_swizzle;
    float8 acc[column_tiles][row_tiles] = {};
    const auto multiply = [&](uint32_t blocks) {
#pragma clang loop unroll(disable)
        for (uint32_t b = 0; b < blocks; ++b) {
            int8x16 w[row_tiles][2];
            float scale[row_tiles][groups_a_block], min[row_tiles][groups_a_block];
#pragma unroll
            for (uint32_t r = 0; r < row_tiles; ++r) {
                const uint32_t row = wave_row + r * 16 + index;
                w[r][0] = *reinterpret_cast<const int8x16 *>(weight_bytes + r * 16 * k_step + (weights_from ^ b * 32));
                w[r][1] = *reinterpret_cast<const int8x16 *>(weight_bytes + r * 16 * k_step + (weights_from ^ (b * 32 + 16)));
#pragma unroll
                for (uint32_t g = 0; g < groups_a_block; ++g) {
                    scale[r][g] = weight_scale[(b * groups_a_block + g) * rows + row];
                    if constexpr (Type::has_min) {
                        min[r][g] = weight_min[(b * groups_a_block + g) * rows + row];
                    }
                }
            }
            struct column_tile {
                int8x16 x[2];
                float8 d;
            };
            const auto read_columns = [&](uint32_t c) {
                const uint32_t column = wave_column + c * 16;
                column_tile t;
                t.x[0] = *reinterpret_cast<const int8x16 *>(value_bytes + c * 16 * k_step + (values_from ^ b * 32));
                t.x[1] = *reinterpret_cast<const int8x16 *>(value_bytes + c * 16 * k_step + (values_from ^ (b * 32 + 16)));
                t.d = *reinterpret_cast<const float8 *>(value_scale + b * Columns + column + half_row * 8);
                return t;
            };
            column_tile next = read_columns(0);
#pragma unroll
            for (uint32_t c = 0; c < column_tiles; ++c) {
                const column_tile x = next;
                if (c + 1 < column_tiles) {
                    next = read_columns(c + 1);
                }
                keep_order();   // one tile ahead, no more: else the registers run out
                const auto read_sums = [&](uint32_t group_in_step) {
                    return *reinterpret_cast<const float8 *>(value_sum + group_in_step * Columns + wave_column + c * 16 + half_row * 8);
                };
                float8 sums;
                if constexpr (Type::has_min && !half_sums) {
                    sums = read_sums(b);
                }
#pragma unroll
                for (uint32_t r = 0; r < row_tiles; ++r) {
                    const int8v origin = bit_cast<int32_t>(sum_origin);
                    if constexpr (groups_a_block == 1) {
                        const int8v product = wmma(x.x[1], w[r][1], wmma(x.x[0], w[r][0], origin));
#pragma unroll
                        for (uint32_t i = 0; i < 8; ++i) {
                            acc[c][r][i] = __builtin_fmaf(float_sum(product[i]), scale[r][0] * x.d[i], acc[c][r][i]);
                        }
                    } else {
                        const int8v first = wmma(x.x[0], w[r][0], origin), second = wmma(x.x[1], w[r][1], origin);
                        float8 sum;
#pragma unroll
                        for (uint32_t i = 0; i < 8; ++i) {
                            const float first_half = float_sum(first[i]) * scale[r][0];
                            sum[i] = __builtin_fmaf(float_sum(second[i]), scale[r][1], first_half);
                        }
                        if constexpr (half_sums) {
#pragma unroll
                            for (uint32_t g = 0; g < 2; ++g) {
                                keep_order();   // read when they are needed: the registers would not hold both halves' sums as well
                                const float8 half_sum = read_sums(2 * b + g);
#pragma unroll
                                for (uint32_t i = 0; i < 8; ++i) {
                                    sum[i] = __builtin_fmaf(min[r][g], half_sum[i], sum[i]);
                                }
                            }
                        }
#pragma unroll
                        for (uint32_t i = 0; i < 8; ++i) {
                            acc[c][r][i] = __builtin_fmaf(sum[i], x.d[i], acc[c][r][i]);
                        }
                    }
                    if constexpr (Type::has_min && !half_sums) {
#pragma unroll
                        for (uint32_t i = 0; i < 8; ++i) {
                            acc[c][r][i] = __builtin_fmaf(min[r][0], sums[i], acc[c][r][i]);
                        }
                    }
                }
            }
        }
    };

    fetch(0);
    for (uint32_t k = 0; k < a.k; k += k_step) {
        put_down(k);
        barrier();
        if (k + k_step < a.k) {
            fetch(k + k_step);
        }
        multiply(smaller(blocks_a_step, (a.k - k) / 32));
        barrier();
    }

    const int32_t rows_left = static_cast<int32_t>(last_row + 1 - wave_row), columns_left = static_cast<int32_t>(last_column + 1 - wave_column);
    if (routed) {
        store_scattered_tile<column_tiles>(dst + wave_row, a.rows, acc, rows_left, columns_left, targets + wave_column);
    } else {
        store_tile<column_tiles>(dst + static_cast<uint64_t>(wave_column) * a.rows + wave_row, a.rows, acc, rows_left, columns_left);
    }
}

}  // namespace strata

// Kernels mul_mat_<type>_j<columns a workgroup>.
#define STRATA_MUL_MAT_Q(type, columns)                                                                        \
    STRATA_KERNEL(strata::mul_mat_q_shape<columns>::threads) void mul_mat_##type##_j##columns(strata::mul_mat_q_args a) { \
        strata::mul_mat_q<strata::type, columns>(a);                                                           \
    }
#define STRATA_MUL_MAT_Q_KERNELS(type) \
    STRATA_MUL_MAT_Q(type, 16)         \
    STRATA_MUL_MAT_Q(type, 32)         \
    STRATA_MUL_MAT_Q(type, 48)         \
    STRATA_MUL_MAT_Q(type, 64)         \
    STRATA_MUL_MAT_Q(type, 128)
