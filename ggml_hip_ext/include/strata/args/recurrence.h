// Arguments of the recurrent layers: gated delta net, selective scan, RWKV, gated linear attention.
#pragma once

#include "strata/args/division.h"

namespace strata {

/// f32 numbers of a sequence's tokens and heads; those of one head of one token lie one after another. Strides in bytes.
struct recurrence_tensor {
    const void * data;
    uint64_t head_stride, token_stride, sequence_stride;
};

/// A vector a token that the columns of a head share: head h has vector h % heads, sequence s those of s / sequence_share.
struct recurrence_row {
    recurrence_tensor tensor;
    fast_divisor heads, sequence_share;
};

/// A head's state is a matrix of `columns` columns, each a vector of `length` numbers that goes through the tokens on its own:
/// it takes in the token's rows and one number of its own, and gives one number.
struct recurrence_args {
    recurrence_row rows[5];
    recurrence_tensor column;      ///< a number a column
    recurrence_tensor scalars[2];  ///< a number a head: GDN gate and beta; SSM dt, of `heads_of` columns each
    recurrence_tensor constants;   ///< without tokens: RWKV6 bonus, SSM A
    recurrence_tensor out;         ///< a number a column

    const void * state;            ///< initial states
    const int32_t * sequence_ids;  ///< initial state of each sequence, or null: in order
    void * new_state;
    uint64_t state_sequence_stride;                 ///< of `state`, bytes
    uint64_t head_stride, column_stride, element_stride;  ///< of both, bytes
    uint64_t new_sequence_stride, snapshot_stride;  ///< of `new_state`, bytes

    uint32_t length;               ///< a multiple of 4
    uint32_t columns;
    uint32_t tokens;               ///< of a sequence
    uint32_t snapshots;            ///< state 0 is the last one, state k that of k tokens before; min(tokens, snapshots) are written
    fast_divisor columns_a_scalar; ///< SSM: columns that share a scalar and its constants
    float scale;                   ///< of the result
};

constexpr uint32_t recurrence_block = 256;    ///< work-items a workgroup
constexpr uint32_t recurrence_tokens = 16;    ///< most tokens that are staged at a time

}  // namespace strata
