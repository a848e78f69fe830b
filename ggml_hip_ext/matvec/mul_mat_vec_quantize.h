// Quantized weights times one to eight columns of f32, which every workgroup quantizes for itself into LDS: no launch before this one. The bits are
// those of quantize_q8_1 and the mat-vec after it, whose order of additions this keeps.
#pragma once

#include "grid.h"
#include "results.h"
#include "strata/args/mul_mat_quantize.h"
#include "strata/blocks.h"
#include "strata/memory.h"
#include "strata/q8_1.h"

namespace strata {

/// Columns of activations as a workgroup holds them: their quantized values, then the meta of their 32-blocks.
extern __shared__ unsigned char quantized_columns[];

/// Quantizes f32 columns of k values (a multiple of 32) as the kernel quantize_q8_1 does, to where mul_mat_quantize_args has them in LDS, by a
/// workgroup of `Threads` work-items. A barrier must follow. `meanwhile` is called when the first values have been asked for: what it loads may
/// come later than these.
template <uint32_t Threads, uint32_t Columns, class Meanwhile>
STRATA_DEVICE void quantize_columns(const char * activations, uint64_t column_stride, uint32_t k, char * values, char * meta,
                                    const Meanwhile & meanwhile) {
    constexpr uint32_t step = 4 * Threads, steps = Columns == 1 ? 4 : 2;
    // Loads without conditions, beyond the end of the last four values again: the compiler counts what it waits for only where no branch is.
    float4v x[Columns][steps];
    uint32_t first = 4 * thread_x();
    const auto load_some = [&] {
#pragma unroll
        for (uint32_t c = 0; c < Columns; ++c) {
#pragma unroll
            for (uint32_t s = 0; s < steps; ++s) {
                x[c][s] = load<float4v>(activations + c * column_stride, smaller(first + s * step, k - 4) * 4);
            }
        }
    };
    const auto store_some = [&] {
#pragma unroll
        for (uint32_t s = 0; s < steps; ++s) {
            if (first + s * step < k) {
#pragma unroll
                for (uint32_t c = 0; c < Columns; ++c) {
                    const uint32_t at = first + s * step, skipped = mul_mat_quantize_place(at) - at;
                    store_q8_1(values + (c * mul_mat_quantize_pitch(k) + skipped), meta + c * (k / 32 * sizeof(q8_1_meta)), at, x[c][s]);
                }
            }
        }
        first += steps * step;
    };
    load_some();
    meanwhile();
    store_some();
    while (first < k) {
        load_some();
        store_some();
    }
}

/// sums[c * Rows + r] becomes this lane's part of row r times column c, of f32 columns which the workgroup quantizes for itself; meanwhile the
/// first two steps of the weights are on their way. A row's address is the same in all lanes, and the workgroup has the grid in LDS before.
template <class Type, uint32_t Columns, uint32_t Rows, uint32_t Results>
STRATA_DEVICE void quantize_and_multiply(const char * const (&rows)[Rows], const char * activations, uint64_t column_stride, uint32_t k,
                                         float (&sums)[Results]) {
    using block = typename Type::block;
    using weights_of_rows = typename Type::weights[Rows];
    constexpr uint32_t piece_length = block::elements / Type::pieces;
    constexpr uint32_t values_step = mul_mat_quantize_place(wave_size * piece_length), meta_step = wave_size * piece_length / 32 * sizeof(q8_1_meta);
    static_assert(wave_size * piece_length % 128 == 0 && 128 % piece_length == 0);
    constexpr uint32_t block_step = wave_size / Type::pieces * sizeof(block);

    const uint32_t lane = lane_id(), meta_pitch = k / 32 * sizeof(q8_1_meta);
    uint32_t weight_at = Type::block_offset(lane), values_at = mul_mat_quantize_place(Type::value_offset(lane)), meta_at = Type::meta_offset(lane);
    const int32_t pieces = static_cast<int32_t>(k / piece_length), mine = static_cast<int32_t>(lane);
    // Without conditions too: lanes that have nothing left read their first piece again, or where they have none the row's first.
    const uint32_t first_weight = mine < pieces ? weight_at : Type::block_offset(0);
    const auto fetch = [&](weights_of_rows & w, int32_t left) {
#pragma unroll
        for (uint32_t r = 0; r < Rows; ++r) {
            w[r] = Type::load(rows[r], mine < left ? weight_at : first_weight, lane);
        }
        weight_at += block_step;
    };
    char * const values = reinterpret_cast<char *>(quantized_columns);
    const uint32_t pitch = mul_mat_quantize_pitch(k);
    char * const meta = values + Columns * pitch;
    const auto use = [&](const weights_of_rows & w, int32_t left) {
        if (mine < left) {
#pragma unroll
            for (uint32_t c = 0; c < Columns; ++c) {
                const auto x = Type::load_activation(values + c * pitch, values_at, meta + c * meta_pitch, meta_at);
#pragma unroll
                for (uint32_t r = 0; r < Rows; ++r) {
                    sums[c * Rows + r] = dot_of<Type>(w[r], x, sums[c * Rows + r], lane);
                }
            }
        }
        values_at += values_step;
        meta_at += meta_step;
    };

    constexpr int32_t step = wave_size;
    weights_of_rows even, odd;
    quantize_columns<mul_mat_quantize_waves * wave_size, Columns>(activations, column_stride, k, values, meta, [&] {
        keep_order();
        fetch(even, pieces);
        fetch(odd, pieces - step);
        keep_order();
    });
    lds_barrier();
    for (int32_t left = pieces; left > 0; left -= 2 * step) {
        use(even, left);
        if (left > 2 * step) {
            fetch(even, left - 2 * step);
        }
        if (left > step) {
            use(odd, left - step);
            if (left > 3 * step) {
                fetch(odd, left - 3 * step);
            }
        }
    }
}

/// Several products of the same f32 columns. Grid: for each member its groups of mul_mat_quantize_waves Rows rows.
template <class Type, uint32_t Columns, uint32_t Rows>
STRATA_DEVICE void mul_mat_vec_quantize(const mul_mat_quantize_args & args) {
    constexpr uint32_t results = next_power_of_two(Columns * Rows), lanes_per_result = wave_size / results;

    copy_grid<Type>(mul_mat_quantize_waves * wave_size);
    const mul_mat_group_args & a = args.group;
    uint32_t which = 0, before = 0;
    bool beyond = true;
#pragma unroll
    for (uint32_t m = 0; m + 1 < most_in_group; ++m) {   // without branches: all ends are read at once
        beyond &= block_x() >= a.members[m].end;
        which += beyond;
        before = beyond ? a.members[m].end : before;
    }
    const auto & member = a.members[which];
    const uint32_t row = uniform(((block_x() - before) * mul_mat_quantize_waves + (thread_x() >> 5)) * Rows), lane = lane_id();
    const uint32_t last = member.rows - 1;
    const char * rows[Rows];
#pragma unroll
    for (uint32_t r = 0; r < Rows; ++r) {
        rows[r] = static_cast<const char *>(member.weights) + static_cast<uint64_t>(smaller(row + r, last)) * member.stride1;
    }
    float sums[results] = {};
    quantize_and_multiply<Type, Columns>(rows, static_cast<const char *>(args.activations), args.column_stride, a.k, sums);

    const float sum = wave_sums(sums);
    const uint32_t result = lane / lanes_per_result, r = result % Rows, c = result / Rows;
    if (lane % lanes_per_result == 0 && c < Columns && row + r <= last) {
        member.dst[static_cast<uint64_t>(c) * member.rows + row + r] = sum;
    }
}

}  // namespace strata
