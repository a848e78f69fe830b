// Per-layer embeddings (qwen4exp): the gate of their value by a key and the residual streams, and the dilated convolution behind it with its
// states where the cache has them. Sums are added in the order of norm.hip and sum.hip, and each op rounds as its own kernel does: the same bits
// as one launch an op.
#include "row_norm.h"
#include "strata/args/per_layer.h"
#include "strata/args/reduce.h"
#include "strata/element.h"

namespace strata {

static_assert(sum_block == norm_block && sum_wave_row == norm_wave_row);

/// A sum over the row that Waves waves have.
template <uint32_t Waves>
STRATA_DEVICE float row_total(float4v sums, float * parts) {
    if constexpr (Waves == 1) {
        return wave_sum(lane_total(sums));
    } else {
        return block_sum<Waves>(lane_total(sums), parts);
    }
}

/// A wave a row, or a workgroup; the row in registers.
template <uint32_t Waves>
STRATA_DEVICE void gate(const per_layer_gate_args & a, float * parts) {
    constexpr uint32_t lanes = Waves * wave_size, step = 4 * lanes;
    const uint32_t row = Waves == 1 ? uniform(block_x() * norm_waves + thread_x() / wave_size) : block_x();
    if (row >= a.rows) {
        return;
    }
    const uint32_t token = quotient(row, a.streams), stream = remainder(row, token, a.streams);
    const auto at = [&](const row_operand & o) {
        return reinterpret_cast<float *>(static_cast<char *>(o.data) + (stream * o.stride[0] + token * o.stride[1]));
    };
    // All pointers are read before anything is written.
    const float * const key_row = at(a.key), * const query_row = at(a.query), * const value_row = at(a.value);
    const float * const key_weight = at(a.key_weight), * const query_weight = at(a.query_weight), * const weight = at(a.weight);
    float * const gated = at(a.gated), * const normed = at(a.normed);
    const uint32_t first = 4 * (thread_x() % lanes);

    float4v keys[norm_wave_steps], queries[norm_wave_steps];
    float4v sums = {0.0f, 0.0f, 0.0f, 0.0f}, query_sums = sums;
#pragma unroll
    for (uint32_t k = 0; k < norm_wave_steps; k++) {
        if (k * step < a.row) {
            keys[k] = load_part<true>(key_row, first + k * step, a.row);
            queries[k] = load_part<true>(query_row, first + k * step, a.row);
        }
    }
#pragma unroll
    for (uint32_t k = 0; k < norm_wave_steps; k++) {
        if (k * step < a.row) {
            add_squares(sums, keys[k]);
            add_squares(query_sums, queries[k]);
        }
    }
    const float key_scale = rms_scale(row_total<Waves>(sums, parts), a.row, a.key_eps);
    const float query_scale = rms_scale(row_total<Waves>(query_sums, parts + norm_waves), a.row, a.query_eps);
    sums = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (uint32_t k = 0; k < norm_wave_steps; k++) {
        if (k * step < a.row) {
            const uint32_t e = first + k * step;
            sums += keys[k] * key_scale * load_part<true>(key_weight, e, a.row) *
                    (queries[k] * query_scale * load_part<true>(query_weight, e, a.row));
        }
    }
    const float s = fma(row_total<Waves>(sums, parts + 2 * norm_waves), a.scale, a.bias);
    const float size = sqrt(min(max(abs(s), a.least), a.most));
    const float factor = sigmoid((s > 0.0f ? 1.0f : s < 0.0f ? -1.0f : 0.0f) * size);
    sums = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (uint32_t k = 0; k < norm_wave_steps; k++) {
        if (k * step < a.row) {
            keys[k] = load_part<true>(value_row, first + k * step, a.row) * factor;
            store_part<true>(gated, first + k * step, a.row, keys[k]);
            add_squares(sums, keys[k]);
        }
    }
    const float scale = rms_scale(row_total<Waves>(sums, parts + 3 * norm_waves), a.row, a.eps);
#pragma unroll
    for (uint32_t k = 0; k < norm_wave_steps; k++) {
        if (k * step < a.row) {
            const uint32_t e = first + k * step;
            store_part<true>(normed, e, a.row, keys[k] * scale * load_part<true>(weight, e, a.row));
        }
    }
}

extern __shared__ float kept_history[];

/// A work-item a channel. Grid: channels, tiles of tokens, sequences; the first tile of all sequences is one workgroup's, because a sequence's
/// new state may lie where another one's is read.
template <class T>
STRATA_DEVICE void conv(const per_layer_conv_args & a) {
    const uint32_t channel = block_x() * per_layer_block + thread_x();
    const bool first_tile = block_y() == 0;
    if (channel >= a.channels || (first_tile && block_z() != 0)) {
        return;
    }
    const char * const states = static_cast<const char *>(a.states) + static_cast<uint64_t>(channel) * a.history * sizeof(float);
    const char * const weights = static_cast<const char *>(a.weights) + channel * a.weight_stride;
    const char * const x = static_cast<const char *>(a.x);
    const char * const other = static_cast<const char *>(a.other);
    const char * const rows = reinterpret_cast<const char *>(a.rows);
    char * const dst = static_cast<char *>(a.dst);

    float weight[per_layer_taps];
#pragma unroll
    for (uint32_t k = 0; k < per_layer_taps; k++) {
        weight[k] = k < a.taps ? T::to_float(load<typename T::storage>(weights, k * sizeof(typename T::storage))) : 0.0f;
    }
    // Each work-item reads what it has put here itself.
    float * const own = kept_history + thread_x();
    const uint32_t begin = first_tile ? 0 : block_z(), end = first_tile ? a.sequences : begin + 1;
    if (first_tile) {
        for (uint32_t s = 0; s < end; s++) {
            const char * const from = states + uniform(load<uint32_t>(rows, s * sizeof(uint32_t))) * a.state_stride;
            for (uint32_t h = 0; h < a.history; h++) {
                own[(s * a.history + h) * per_layer_block] = load<float>(from, h * sizeof(float));
            }
        }
    }
    const uint32_t first_token = block_y() * a.tile, end_token = smaller(first_token + a.tile, a.tokens);
    for (uint32_t s = begin; s < end; s++) {
        const char * const own_x = x + s * a.sequence_stride + channel * sizeof(float);
        const auto number = [&](uint32_t n) {
            return n < a.history ? own[(s * a.history + n) * per_layer_block] : load<float>(own_x + (n - a.history) * a.token_stride);
        };
        for (uint32_t t = first_token; t < end_token; t++) {
            float sum = 0.0f;
#pragma unroll
            for (uint32_t k = 0; k < per_layer_taps; k++) {
                if (k < a.taps) {
                    const float product = number(a.start[k] + t) * weight[k];
                    sum = k == 0 ? product : sum + product;
                }
            }
            const uint64_t at = ((s * static_cast<uint64_t>(a.tokens) + t) * a.channels + channel) * sizeof(float);
            store(dst + at, 0, load<float>(other + at) + silu(sum));
        }
        if (first_tile) {
            for (uint32_t c = 0; c < a.copy_count; c++) {
                char * const to = static_cast<char *>(a.copies[c]) + s * a.copy_stride + static_cast<uint64_t>(channel) * a.history * sizeof(float);
                for (uint32_t h = 0; h < a.history; h++) {
                    store(to, h * sizeof(float), number(a.first[c] + h));
                }
            }
        }
    }
}

}  // namespace strata

using namespace strata;

STRATA_KERNEL(norm_block) void per_layer_gate_wave(per_layer_gate_args a) { gate<1>(a, nullptr); }
STRATA_KERNEL(norm_block) void per_layer_gate_row(per_layer_gate_args a) {
    __shared__ float parts[4 * norm_waves];
    gate<norm_waves>(a, parts);
}

// Named after the type of the weights.
STRATA_KERNEL(per_layer_block) void per_layer_conv_f32(per_layer_conv_args a) { conv<f32>(a); }
STRATA_KERNEL(per_layer_block) void per_layer_conv_f16(per_layer_conv_args a) { conv<f16>(a); }
STRATA_KERNEL(per_layer_block) void per_layer_conv_bf16(per_layer_conv_args a) { conv<bf16>(a); }
