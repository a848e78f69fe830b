// Arguments of the kernels of per-layer embeddings (qwen4exp). f32 but for weights of the convolution; strides in bytes.
#pragma once

#include "strata/args/norm_chain.h"

namespace strata {

/// g = sigmoid(sgn(s) sqrt(clamp(|s|))), s = (norm(key) * weight) . (norm(query) * weight) scaled;
/// gated = value * g, normed = norm(gated) * weight. Rows are of (stream, token). `gated` may lie where `key` or `query` do.
struct per_layer_gate_args {
    row_operand gated, normed;      ///< results
    row_operand key, query;
    row_operand key_weight, query_weight, weight;
    row_operand value;
    uint32_t row;                   ///< elements a row, a multiple of 4
    uint32_t rows;                  ///< rows in all
    fast_divisor streams;
    float key_eps, query_eps, eps;
    float scale, bias;              ///< of s
    float least, most;              ///< of the clamp
};

constexpr uint32_t per_layer_row = 8192;     ///< longest row, which a workgroup keeps in registers

constexpr uint32_t per_layer_block = 64;     ///< channels a workgroup of the convolution
constexpr uint32_t per_layer_tile = 16;      ///< tokens a workgroup, or `history` if that is more
constexpr uint32_t per_layer_taps = 8;       ///< most taps
constexpr uint32_t per_layer_copies = 9;     ///< most new states

/// What a channel is convolved from is numbered: `history` numbers that an earlier step left in a row of a cache, then those of the tokens.
/// dst[token] = other[token] + silu(sum over taps of numbers[start of the tap + token] * weight); each product and each sum is rounded.
struct per_layer_conv_args {
    void * dst;                     ///< [sequence][token][channel]
    const void * other;             ///< likewise; dst may lie there
    const void * states;            ///< [row][channel][history]
    const int32_t * rows;           ///< where the states of each sequence are
    const void * x;                 ///< [sequence][token][channel]
    const void * weights;           ///< [channel][tap]
    uint64_t state_stride;          ///< between rows
    uint64_t token_stride, sequence_stride;   ///< of x
    uint64_t weight_stride;         ///< between channels
    uint64_t copy_stride;           ///< between sequences
    void * copies[per_layer_copies];     ///< [sequence][channel][history]: new states
    uint32_t first[per_layer_copies];    ///< number that comes first in each
    uint32_t copy_count;
    uint32_t channels, tokens, sequences, history, taps;
    uint32_t start[per_layer_taps];
    uint32_t tile;                  ///< tokens a workgroup, at least `history`: only the first tile reads states, and it writes the new ones
};

/// LDS of per_layer_conv: the states of the channels of a workgroup.
constexpr uint32_t per_layer_lds(uint32_t sequences, uint32_t history) { return sequences * history * per_layer_block * 4; }

}  // namespace strata
