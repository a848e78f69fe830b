// SSM_CONV: each channel's row of numbers times a short row of weights, at every token; the result lies token by token. A bias and SiLU behind
// it round as their own kernels do.
#include "strata/args/ssm_conv.h"
#include "strata/math.h"
#include "strata/memory.h"
#include "strata/read_together.h"

namespace strata {

/// Taps: how many, or 0 for a number known at run time only.
template <uint32_t Taps>
STRATA_DEVICE uint32_t tap_count(const ssm_conv_args & a) {
    return Taps ? Taps : a.taps;
}

STRATA_DEVICE char * token_row(const ssm_conv_args & a, uint32_t token) {
    return static_cast<char *>(a.dst) + (static_cast<uint64_t>(block_z()) * a.tokens + token) * a.channels * sizeof(float);
}

/// Of a channel; asked for before what it is added to.
STRATA_DEVICE float read_bias(const ssm_conv_args & a, uint32_t channel) { return a.bias ? load<float>(a.bias, channel * sizeof(float)) : 0.0f; }

/// What becomes of sums of a channel.
template <uint32_t Sums>
STRATA_DEVICE void finish(const ssm_conv_args & a, float bias, float (&sums)[Sums]) {
    if (a.bias) {
        for (uint32_t i = 0; i < Sums; i++) {
            sums[i] += bias;
        }
    }
    if (a.silu) {
        for (uint32_t i = 0; i < Sums; i++) {
            sums[i] = silu(sums[i]);
        }
    }
}

/// A channel of a token a work-item: for a few tokens.
template <uint32_t Taps>
STRATA_DEVICE void ssm_conv_single(const ssm_conv_args & a) {
    const uint32_t channel = block_x() * ssm_conv_block + thread_x(), token = block_y();
    read_together(a.channels, a.src, a.weights, a.src_stride, a.weight_stride, a.src_sequence_stride, a.dst, a.tokens, a.bias, a.silu);
    if (channel >= a.channels) {
        return;
    }
    const char * const x = static_cast<const char *>(a.src) + (block_z() * a.src_sequence_stride + channel * a.src_stride);
    const char * const w = static_cast<const char *>(a.weights) + channel * a.weight_stride;
    const float bias = read_bias(a, channel);
    float sum[1] = {};
    if constexpr (Taps == 4) {
        const auto row = load<float4v>(x, token * 4), weights = load<float4v>(w);
        for (uint32_t k = 0; k < Taps; k++) {
            sum[0] = fma(row[k], weights[k], sum[0]);
        }
    } else {
        for (uint32_t k = 0; k < tap_count<Taps>(a); k++) {
            sum[0] = fma(load<float>(x, (token + k) * 4), load<float>(w, k * 4), sum[0]);
        }
    }
    finish(a, bias, sum);
    store(token_row(a, token), channel * 4, sum[0]);
}

/// 32 channels of 64 tokens a workgroup: rows are read along the tokens and written along the channels. A lane has a channel, and its wave
/// eight tokens of it.
template <uint32_t Taps>
STRATA_DEVICE void ssm_conv_tile(const ssm_conv_args & a) {
    constexpr uint32_t wave_tokens = ssm_conv_tokens / (ssm_conv_block / wave_size);
    constexpr uint32_t longest = ssm_conv_tokens + (Taps ? Taps : ssm_conv_taps) - 1, quads = (longest + 3) / 4;
    // An odd pitch: the lanes' channels lie in different banks.
    constexpr uint32_t pitch = longest | 1;
    __shared__ float tile[ssm_conv_channels][pitch];
    const uint32_t taps = tap_count<Taps>(a);
    const uint32_t first_channel = block_x() * ssm_conv_channels, first_token = block_y() * ssm_conv_tokens;
    const uint32_t channels = smaller(ssm_conv_channels, a.channels - first_channel);
    const uint32_t tokens = smaller(ssm_conv_tokens, a.tokens - first_token), length = tokens + taps - 1;
    const uint32_t lane = thread_x() % wave_size, wave = uniform(thread_x() / wave_size);

    const char * const x = static_cast<const char *>(a.src) + (block_z() * a.src_sequence_stride + first_channel * a.src_stride + first_token * 4ul);
    for (uint32_t i = thread_x(); i < channels * quads; i += ssm_conv_block) {
        const uint32_t c = i / quads, begin = 4 * (i % quads);
        const char * const row = x + c * a.src_stride;
        if (begin + 4 <= length) {
            const float4v v = load<float4v>(row, begin * 4);
            for (uint32_t e = 0; e < 4; e++) {
                tile[c][begin + e] = v[e];
            }
        } else {
            for (uint32_t e = begin; e < length; e++) {
                tile[c][e] = load<float>(row, e * 4);
            }
        }
    }
    barrier();
    if (lane >= channels) {
        return;
    }
    const char * const w = static_cast<const char *>(a.weights) + (first_channel + lane) * a.weight_stride;
    const uint32_t begin = wave * wave_tokens;
    const float bias = read_bias(a, first_channel + lane);
    float sums[wave_tokens] = {};
    for (uint32_t k = 0; k < taps; k++) {
        const float weight = load<float>(w, k * 4);
        for (uint32_t t = 0; t < wave_tokens; t++) {
            sums[t] = fma(tile[lane][begin + t + k], weight, sums[t]);
        }
    }
    finish(a, bias, sums);
    char * const to = token_row(a, first_token + begin) + first_channel * sizeof(float);
    const uint64_t row_bytes = a.channels * sizeof(float);
    for (uint32_t t = 0; t < wave_tokens; t++) {
        if (begin + t < tokens) {
            store(to + t * row_bytes, lane * 4, sums[t]);
        }
    }
}

}  // namespace strata

using namespace strata;

// The number in a name is that of the taps; `any` takes all, ssm_conv_tile_any up to ssm_conv_taps.
STRATA_KERNEL(ssm_conv_block) void ssm_conv_3(ssm_conv_args a) { ssm_conv_single<3>(a); }
STRATA_KERNEL(ssm_conv_block) void ssm_conv_4(ssm_conv_args a) { ssm_conv_single<4>(a); }
STRATA_KERNEL(ssm_conv_block) void ssm_conv_any(ssm_conv_args a) { ssm_conv_single<0>(a); }
STRATA_KERNEL(ssm_conv_block) void ssm_conv_tile_3(ssm_conv_args a) { ssm_conv_tile<3>(a); }
STRATA_KERNEL(ssm_conv_block) void ssm_conv_tile_4(ssm_conv_args a) { ssm_conv_tile<4>(a); }
STRATA_KERNEL(ssm_conv_block) void ssm_conv_tile_any(ssm_conv_args a) { ssm_conv_tile<0>(a); }
