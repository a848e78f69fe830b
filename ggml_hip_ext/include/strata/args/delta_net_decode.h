// Arguments of a delta net's layer from the convolution to the gated norm, for a few tokens of each sequence.
#pragma once

#include "strata/args/division.h"
#include "strata/args/norm_chain.h"

namespace strata {

constexpr uint32_t delta_net_taps = 4;        ///< of the convolution
constexpr uint32_t delta_net_tokens = 8;      ///< most tokens of a sequence
constexpr uint32_t delta_net_sequences = 64;  ///< most sequences
constexpr uint32_t delta_net_copies = 9;      ///< most states of the convolution that are kept
constexpr uint32_t delta_net_block = 512;     ///< work-items a workgroup of the recurrence
constexpr uint32_t delta_net_columns = 64;    ///< of a state, a workgroup

/// What the convolution sees: taps - 1 numbers of each channel that an earlier step left in a row of a cache, and the new ones.
/// f32; strides in bytes.
struct delta_net_input {
    const void * states;           ///< [row][channel][taps - 1]
    const void * x;                ///< [sequence][token][channel]
    void * before;                 ///< [sequence][channel][taps - 1]: the states of the sequences, kept for delta_net_finish
    uint64_t state_stride;         ///< between rows
    uint64_t token_stride, sequence_stride;
    uint32_t channels;
};

/// The norm of q or k: x / rms(x) * scale + bias.
struct delta_net_key {
    uint32_t channel;              ///< its first one
    float eps, scale, bias;
};

/// Convolution, SiLU, norms of q and k, recurrence. A state of a head is a column after the other; states lie in rows of a cache.
struct delta_net_decode_args {
    delta_net_input input;
    const int32_t * rows;          ///< where the states of each sequence are
    const void * weights;          ///< [channel][tap]
    const void * decay;            ///< [sequence][token][head], its logarithm
    const void * beta;             ///< [sequence][token][head]
    const void * states;           ///< [row][head][column][size]
    void * new_states;             ///< of the first sequence
    void * aside;                  ///< [sequence][head][column][size]; null for one sequence
    void * out;                    ///< [sequence][token][head][size]
    uint64_t weight_stride;
    uint64_t state_stride;         ///< between rows
    uint64_t snapshot_stride;      ///< from a new state to that of a token before
    delta_net_key keys[2];         ///< of q and k
    uint32_t value_channel;        ///< the first one of v
    fast_divisor key_heads;        ///< heads that have a key of their own; if `neighbours`, heads that share one
    uint32_t neighbours;
    uint32_t first_row;            ///< of new_states
    fast_divisor snapshot_rows;    ///< rows from a new state to that of a token before
    uint32_t heads, tokens, sequences;
    uint32_t snapshots;            ///< min(tokens, snapshots) states are written, that of the last token first
    float scale;                   ///< of the result
};

/// The gated norm of the result, in its place, and the new states of the convolution.
struct delta_net_finish_args {
    delta_net_input input;
    void * out;                    ///< [sequence][token][head][size]
    const void * weight;           ///< [size]
    row_operand gate;              ///< (head, token, sequence)
    uint64_t copy_stride;          ///< between sequences
    void * copies[delta_net_copies];      ///< [sequence][channel][taps - 1]
    uint32_t first[delta_net_copies];     ///< which of `before` and the tokens, counted through, comes first in each
    uint32_t copy_count;
    uint32_t size;
    fast_divisor heads;
    uint32_t tokens;
    uint32_t norm_blocks;          ///< workgroups that compute norms; those behind them copy
    float eps;
    uint32_t sigmoid_gate;         ///< 0: SiLU of the gate
    // `out` as quantize_q8_1 makes it, or null.
    void * values;                 ///< int8 [sequence][token][head][size]
    void * meta;                   ///< q8_1_meta, one for each 32 of those
};

}  // namespace strata
