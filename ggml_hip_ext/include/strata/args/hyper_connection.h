// Arguments of the hyper-connections: several residual streams that are mixed before and after a layer. Strides in bytes.
#pragma once

#include "strata/args/division.h"
#include "strata/args/norm_chain.h"

namespace strata {

/// dst[token][i] = scale * sum over streams h of x[token][h][i] * w, w = weights[token][h] or sigmoid(weights[token][h][i]).
struct hyper_pre_args {
    void * dst;                ///< f32, contiguous
    const void * x;
    const void * weights;
    uint64_t x_stride[2];      ///< between streams and tokens
    uint64_t weight_stride[2]; ///< as x_stride
    uint32_t width, streams;
    uint32_t count;            ///< work-items with four neighbouring elements each
    fast_divisor parts;        ///< work-items a token
    uint32_t gated;
    float scale;
    // dst as quantize_q8_1 makes it, or null; for a width of a multiple of 32.
    void * values;             ///< int8 [token][element]
    void * meta;               ///< q8_1_meta [token][element / 32]
};

/// What the streams of a token get of a block's result: post[token][d], or sigmoid(post * in[0] + in[1]) * out[0] + out[1].
struct hyper_weights {
    const void * data;
    uint64_t stride[2];        ///< between streams and tokens
    uint32_t gated;
    float in[2], out[2];
};

/// dst[token][d][i] = x[token][i] * weight[token][d] + sum over streams s of residual[token][s][i] * comb[token][s][d].
struct hyper_post_args {
    void * dst;                ///< f32, contiguous
    const void * x;
    const void * residual;
    hyper_weights weights;
    const void * comb;         ///< null: each stream keeps its own residual
    uint64_t x_stride;         ///< between tokens
    uint64_t residual_stride[2];  ///< between streams and tokens
    uint64_t comb_stride[3];   ///< between d, s and tokens
    uint32_t width, streams;
    uint32_t count;            ///< work-items with four neighbouring elements of one result stream each
    fast_divisor parts;        ///< work-items a stream
    fast_divisor stream_count;
};

/// sum[token][d][i] = x[token][i] * weight[token][d] + residual[token][d][i], and dst = sum / rms(sum) * norm_weight.
struct hyper_norm_args {
    row_operand dst, sum, residual, norm_weight;   ///< strides between streams and tokens
    const void * x;
    uint64_t x_stride;         ///< between tokens
    hyper_weights weights;
    uint32_t row;              ///< elements of a stream
    uint32_t rows;             ///< tokens times streams, < 2^31
    fast_divisor streams;
    float eps;
    // dst as quantize_q8_1 makes it of contiguous rows, or null; for kernels with 4 in their names and rows of a multiple of 32.
    void * values;             ///< int8 [row][element]
    void * meta;               ///< q8_1_meta [row][element / 32]
};

/// The 4 x 4 mixing matrix of each token, made doubly stochastic by `iterations` rounds.
struct hyper_comb_args {
    float * dst;               ///< f32 [tokens][source][destination]
    const void * mixes;
    const void * scale;        ///< the third of three numbers is used
    const void * base;
    uint64_t mix_stride[2];    ///< between numbers and tokens
    uint64_t scale_stride, base_stride;
    uint32_t tokens, iterations;
    float eps;
};

constexpr uint32_t hyper_block = 256;   ///< work-items a workgroup
constexpr uint32_t hyper_streams = 4;   ///< of hyper_comb

}  // namespace strata
