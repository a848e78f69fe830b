// The gated delta net, for GATED_DELTA_NET and for fusions with the states' way from and to the cache.
#pragma once

#include "ops/op.h"

namespace strata {

/// Where states are read and written: rows of a head's matrices one after another. Strides in bytes.
struct delta_net_states {
    const void * from;
    const int32_t * rows;       ///< which row of `from` each sequence has, or null: in order
    uint64_t from_stride;       ///< between rows
    void * to;                  ///< of the first sequence, after its last token
    uint64_t to_stride;         ///< between sequences
    uint64_t snapshot_stride;   ///< from a state to that of a token before
};

/// Launches the GATED_DELTA_NET `op` but for its states, which are these instead of its last operand and the end of its result.
void plan_gated_delta_net(planner & plan, const ggml_tensor * op, const delta_net_states & states);

}  // namespace strata
