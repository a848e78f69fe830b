// Arguments of the rotary embedding, for ROPE and for fusions with it.
#pragma once

#include "ops/op.h"
#include "strata/args/rope.h"

namespace strata {

/// All that follows from a ROPE or ROPE_BACK node; how its heads are dealt out (lane_shift, heads_a_block) is left to the caller.
rope_args make_rope_args(const ggml_tensor * op);

/// True if the members of a pair are neighbouring channels.
bool rotates_neighbours(const ggml_tensor * op);

}  // namespace strata
