// New states of convolutions on their way into a cache: copies of windows of what is convolved.
#pragma once

#include <algorithm>

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

/// Adds such copies, as far as they stand from the node `first` to the node `last`, to a match: their nodes, the places of the views, and what they write into
/// as the next operands.
inline void take_copies(const graph_index & graph, const ggml_tensor * source, const ggml_tensor * first, const ggml_tensor * last,
                        fusion_match & match) {
    for (int i = std::max(graph.find(first), 0), end = graph.find(last); i < end; ++i) {
        const ggml_tensor * copy = graph.graph->nodes[i];
        if (!keeps_window(copy, source)) {
            continue;
        }
        if (copy->src[0]->op == GGML_OP_CONT) {
            match.nodes.push_back(copy->src[0]);
        }
        match.taken.push_back(graph.find(kept_window(copy)));
        match.nodes.push_back(copy);
        match.written.push_back(copy);
        match.operands.push_back(copy->src[1]);
    }
}

}  // namespace strata
