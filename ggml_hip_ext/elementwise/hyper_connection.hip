// DSV4_HC_PRE, DSV4_HC_POST, DSV4_HC_COMB: hyper-connections.
#include "strata/args/hyper_connection.h"
#include "strata/math.h"
#include "strata/row_part.h"

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
    store_part<false>(static_cast<float *>(a.dst) + static_cast<uint64_t>(token) * a.width, first, a.width, sum * a.scale);
}

STRATA_KERNEL(hyper_block) void hyper_post(hyper_post_args a) {
    const uint32_t item = block_x() * hyper_block + thread_x();
    if (item >= a.count) {
        return;
    }
    const uint32_t row = quotient(item, a.parts), first = 4 * remainder(item, row, a.parts);
    const uint32_t token = quotient(row, a.stream_count), d = remainder(row, token, a.stream_count);
    const char * const residual = static_cast<const char *>(a.residual) + token * a.residual_stride[1];
    const float post = load<float>(static_cast<const char *>(a.post) + (d * a.post_stride[0] + token * a.post_stride[1]));
    float4v sum = load_four(static_cast<const char *>(a.x) + token * a.x_stride, first, a.width) * post;
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
