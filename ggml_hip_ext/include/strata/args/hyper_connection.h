// Arguments of the hyper-connections: several residual streams that are mixed before and after a layer. Strides in bytes.
#pragma once

#include "strata/args/division.h"

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
};

/// dst[token][d][i] = x[token][i] * post[token][d] + sum over streams s of residual[token][s][i] * comb[token][s][d].
struct hyper_post_args {
    void * dst;                ///< f32, contiguous
    const void * x;
    const void * residual;
    const void * post;
    const void * comb;         ///< null: each stream keeps its own residual
    uint64_t x_stride;         ///< between tokens
    uint64_t residual_stride[2];  ///< between streams and tokens
    uint64_t post_stride[2];   ///< between streams and tokens
    uint64_t comb_stride[3];   ///< between d, s and tokens
    uint32_t width, streams;
    uint32_t count;            ///< work-items with four neighbouring elements of one result stream each
    fast_divisor parts;        ///< work-items a stream
    fast_divisor stream_count;
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
