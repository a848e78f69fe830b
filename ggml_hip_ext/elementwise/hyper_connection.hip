// DSV4_HC_PRE, DSV4_HC_POST, DSV4_HC_COMB: hyper-connections; DSV4_HC_POST with its weights and the norm behind it.
#include "row_norm.h"
#include "strata/args/hyper_connection.h"
#include "strata/q8_1.h"

namespace strata {

STRATA_DEVICE float4v fma(float4v a, float4v b, float4v c) {
    float4v r;
    for (uint32_t i = 0; i < 4; i++) {
        r[i] = fma(a[i], b[i], c[i]);
    }
    return r;
}

STRATA_DEVICE float4v load_four(const void * row, uint32_t first, uint32_t length) {
    return load_part<false>(static_cast<const float *>(row), first, length);
}

STRATA_DEVICE float weight_of(const hyper_weights & w, uint32_t stream, uint32_t token) {
    const float v = load<float>(static_cast<const char *>(w.data) + (stream * w.stride[0] + token * w.stride[1]));
    return w.gated ? fma(sigmoid(fma(v, w.in[0], w.in[1])), w.out[0], w.out[1]) : v;
}

// The rows of a stream of a token.
struct hyper_row {
    float * dst, * sum;
    const float * x, * residual, * norm_weight;
    float weight;
    char * values, * meta;
};

STRATA_DEVICE hyper_row find_row(const hyper_norm_args & a, uint32_t row) {
    const uint32_t token = quotient(row, a.streams), stream = remainder(row, token, a.streams);
    const auto at = [&](const row_operand & o) {
        return reinterpret_cast<float *>(static_cast<char *>(o.data) + (stream * o.stride[0] + token * o.stride[1]));
    };
    const uint64_t first = static_cast<uint64_t>(row) * a.row;
    return {at(a.dst), at(a.sum), reinterpret_cast<const float *>(static_cast<const char *>(a.x) + token * a.x_stride), at(a.residual),
            at(a.norm_weight), weight_of(a.weights, stream, token), static_cast<char *>(a.values) + first,
            static_cast<char *>(a.meta) + first / 32 * sizeof(q8_1_meta)};
}

// Elements e .. e+3 of the sum, written.
template <bool Fours>
STRATA_DEVICE float4v add_block(const hyper_norm_args & a, const hyper_row & at, uint32_t e) {
    float4v v = load_part<Fours>(at.x, e, a.row) * at.weight;
    v += load_part<Fours>(at.residual, e, a.row);
    store_part<Fours>(at.sum, e, a.row, v);
    return v;
}

// Elements e .. e+3 of the result, of normalized ones.
template <bool Fours>
STRATA_DEVICE void finish(const hyper_norm_args & a, const hyper_row & at, uint32_t e, float4v v) {
    v *= load_part<Fours>(at.norm_weight, e, a.row);
    store_part<Fours>(at.dst, e, a.row, v);
    if constexpr (Fours) {
        if (a.values && e < a.row) {
            store_q8_1(at.values, at.meta, e, v);
        }
    }
}

// A wave a row, or a workgroup: in the order of norm_chain.hip.
template <bool Fours>
STRATA_DEVICE void norm_in_wave(const hyper_norm_args & a) {
    const uint32_t row = uniform(block_x() * norm_waves + thread_x() / wave_size);
    if (row >= a.rows) {
        return;
    }
    const hyper_row at = find_row(a, row);
    const uint32_t first = 4 * (thread_x() % wave_size);
    float4v values[norm_wave_steps];
    float4v sums = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (uint32_t k = 0; k < norm_wave_steps; k++) {
        if (k * wave_step < a.row) {
            values[k] = add_block<Fours>(a, at, first + k * wave_step);
        }
    }
#pragma unroll
    for (uint32_t k = 0; k < norm_wave_steps; k++) {
        if (k * wave_step < a.row) {
            add_squares(sums, values[k]);
        }
    }
    const float scale = rms_scale(wave_sum(lane_total(sums)), a.row, a.eps);
#pragma unroll
    for (uint32_t k = 0; k < norm_wave_steps; k++) {
        if (k * wave_step < a.row) {
            finish<Fours>(a, at, first + k * wave_step, values[k] * scale);
        }
    }
}

template <bool Fours>
STRATA_DEVICE void norm_in_block(const hyper_norm_args & a, float * parts) {
    const hyper_row at = find_row(a, block_x());
    const uint32_t first = 4 * thread_x();
    float4v sums = {0.0f, 0.0f, 0.0f, 0.0f};
    for (uint32_t e = first; e < a.row; e += block_step) {
        add_squares(sums, add_block<Fours>(a, at, e));
    }
    const float scale = rms_scale(block_sum<norm_waves>(lane_total(sums), parts), a.row, a.eps);
    for (uint32_t e = first; e < a.row; e += block_step) {
        finish<Fours>(a, at, e, load_part<Fours>(at.sum, e, a.row) * scale);
    }
}

}  // namespace strata

using namespace strata;

STRATA_KERNEL(hyper_block) void hyper_pre(hyper_pre_args a) {
    const uint32_t item = block_x() * hyper_block + thread_x();
    if (item >= a.count) {
        return;
    }
    const uint32_t token = quotient(item, a.parts), first = 4 * remainder(item, token, a.parts);
    const char * const x = static_cast<const char *>(a.x) + token * a.x_stride[1];
    const char * const weights = static_cast<const char *>(a.weights) + token * a.weight_stride[1];
    float4v sum = {0.0f, 0.0f, 0.0f, 0.0f};
    for (uint32_t h = 0; h < a.streams; h++) {
        const char * const weight = weights + h * a.weight_stride[0];
        float4v w;
        if (a.gated) {
            w = load_four(weight, first, a.width);
            for (uint32_t i = 0; i < 4; i++) {
                w[i] = sigmoid(w[i]);
            }
        } else {
            w = load<float>(weight);
        }
        sum = fma(load_four(x + h * a.x_stride[0], first, a.width), w, sum);
    }
    const uint64_t row = static_cast<uint64_t>(token) * a.width;
    sum *= a.scale;
    store_part<false>(static_cast<float *>(a.dst) + row, first, a.width, sum);
    if (a.values) {  // whole 32-blocks are in neighbouring lanes: the width is a multiple of 32
        store_q8_1(static_cast<char *>(a.values) + row, static_cast<char *>(a.meta) + row / 32 * sizeof(q8_1_meta), first, sum);
    }
}

STRATA_KERNEL(hyper_block) void hyper_post(hyper_post_args a) {
    const uint32_t item = block_x() * hyper_block + thread_x();
    if (item >= a.count) {
        return;
    }
    const uint32_t row = quotient(item, a.parts), first = 4 * remainder(item, row, a.parts);
    const uint32_t token = quotient(row, a.stream_count), d = remainder(row, token, a.stream_count);
    const char * const residual = static_cast<const char *>(a.residual) + token * a.residual_stride[1];
    float4v sum = load_four(static_cast<const char *>(a.x) + token * a.x_stride, first, a.width) * weight_of(a.weights, d, token);
    if (a.comb) {
        const char * const comb = static_cast<const char *>(a.comb) + (d * a.comb_stride[0] + token * a.comb_stride[2]);
        for (uint32_t s = 0; s < a.streams; s++) {
            const float4v weight = load<float>(comb + s * a.comb_stride[1]);
            sum = fma(load_four(residual + s * a.residual_stride[0], first, a.width), weight, sum);
        }
    } else {
        sum += load_four(residual + d * a.residual_stride[0], first, a.width);
    }
    store_part<false>(static_cast<float *>(a.dst) + static_cast<uint64_t>(row) * a.width, first, a.width, sum);
}

STRATA_KERNEL(norm_block) void hyper_post_norm_wave(hyper_norm_args a) { norm_in_wave<false>(a); }
STRATA_KERNEL(norm_block) void hyper_post_norm_wave4(hyper_norm_args a) { norm_in_wave<true>(a); }
STRATA_KERNEL(norm_block) void hyper_post_norm_row(hyper_norm_args a) {
    __shared__ float parts[norm_waves];
    norm_in_block<false>(a, parts);
}
STRATA_KERNEL(norm_block) void hyper_post_norm_row4(hyper_norm_args a) {
    __shared__ float parts[norm_waves];
    norm_in_block<true>(a, parts);
}

/// A token a work-item.
STRATA_KERNEL(hyper_block) void hyper_comb(hyper_comb_args a) {
    constexpr uint32_t n = hyper_streams;
    const uint32_t token = block_x() * hyper_block + thread_x();
    if (token >= a.tokens) {
        return;
    }
    const char * const mixes = static_cast<const char *>(a.mixes) + (2 * n * a.mix_stride[0] + token * a.mix_stride[1]);
    const char * const base = static_cast<const char *>(a.base) + 2 * n * a.base_stride;
    const float scale = load<float>(static_cast<const char *>(a.scale) + 2 * a.scale_stride);
    float4v comb[n];  // a source each, of four destinations
#pragma unroll
    for (uint32_t s = 0; s < n; s++) {
        float4v v;
        for (uint32_t d = 0; d < n; d++) {
            const uint32_t i = s * n + d;
            v[d] = fma(load<float>(mixes + i * a.mix_stride[0]), scale, load<float>(base + i * a.base_stride));
        }
        const float largest = max(max(v[0], v[1]), max(v[2], v[3]));
        for (uint32_t d = 0; d < n; d++) {
            v[d] = exp(v[d] - largest);
        }
        comb[s] = v * divide(1.0f, (v[0] + v[1]) + (v[2] + v[3])) + a.eps;
    }
    for (uint32_t round = 0; round < a.iterations; round++) {
        if (round > 0) {
#pragma unroll
            for (uint32_t s = 0; s < n; s++) {
                comb[s] *= reciprocal((comb[s][0] + comb[s][1]) + (comb[s][2] + comb[s][3]) + a.eps);
            }
        }
        const float4v sums = (comb[0] + comb[1]) + (comb[2] + comb[3]) + a.eps;
        float4v factors;
        for (uint32_t d = 0; d < n; d++) {
            factors[d] = reciprocal(sums[d]);
        }
#pragma unroll
        for (uint32_t s = 0; s < n; s++) {
            comb[s] *= factors;
        }
    }
#pragma unroll
    for (uint32_t s = 0; s < n; s++) {
        store(a.dst + static_cast<uint64_t>(token) * n * n, s * sizeof(float4v), comb[s]);
    }
}
