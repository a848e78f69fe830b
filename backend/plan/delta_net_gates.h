// The gates of a delta net, for fusions with them.
#pragma once

#include "plan/fusion.h"
#include "strata/args/gates.h"

namespace strata {

/// Fills all of a match but its pattern; `last` is the node of the two gates that stands last. Nodes: the four of the decay, then the two of
/// beta. Operands: x, alpha, bias, factor, beta. Written: decay, beta.
bool find_gates(const graph_index & graph, const ggml_tensor * last, fusion_match & match);

bool gates_guard(const fusion_target & target, const fusion_match & match);

gates_args make_gates_args(const fusion_match & match);

/// Workgroups of gates_block for one token.
uint32_t gate_blocks(const gates_args & args);

}  // namespace strata
