// New states of convolutions on their way into a cache: copies of windows of what is convolved.
#pragma once

#include "plan/fusion.h"

namespace strata {

/// The window that `copy`, a CPY, keeps: its source, or what that is a contiguous copy of.
inline const ggml_tensor * kept_window(const ggml_tensor * copy) {
    const ggml_tensor * from = copy->src[0];
    return from->op == GGML_OP_CONT ? from->src[0] : from;
}

/// True if `copy` keeps a view of `source`.
inline bool keeps_window(const ggml_tensor * copy, const ggml_tensor * source) {
    return copy->op == GGML_OP_CPY && kept_window(copy)->op == GGML_OP_VIEW && kept_window(copy)->src[0] == source;
}

/// Adds such a copy to a match: its nodes, the place of the view, and what it writes into as the next operand.
inline void take_copy(const graph_index & graph, const ggml_tensor * copy, fusion_match & match) {
    if (copy->src[0]->op == GGML_OP_CONT) {
        match.nodes.push_back(copy->src[0]);
    }
    match.taken.push_back(graph.find(kept_window(copy)));
    match.nodes.push_back(copy);
    match.written.push_back(copy);
    match.operands.push_back(copy->src[1]);
}

}  // namespace strata
