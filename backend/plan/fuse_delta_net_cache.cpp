// GATED_DELTA_NET for any number of tokens with the states' way from and to the cache: they are written where they are kept, and those of a
// single sequence also read there.
#include <algorithm>

#include "ops/gated_delta_net.h"
#include "plan/fusion.h"
#include "plan/row_operands.h"

namespace strata {

namespace {

enum : int { from_operand, to_operand };   // then the other operands of GATED_DELTA_NET, and which row of the cache the state is

const ggml_tensor * delta_of(const fusion_match & match) { return match.nodes[match.nodes.size() - 2]; }

/// Bytes of the result before the states.
std::size_t result_bytes(const ggml_tensor * delta) { return std::size_t(ggml_nelements(delta->src[2])) * sizeof(float); }

/// Nobody but `kept` sees the states behind the result.
bool only_kept_sees_states(const graph_index & graph, const ggml_tensor * delta, const ggml_tensor * kept) {
    if ((delta->flags & GGML_TENSOR_FLAG_OUTPUT) != 0) {
        return false;
    }
    for (int i = graph.find(delta) + 1; i < graph.graph->n_nodes; ++i) {
        const ggml_tensor * node = graph.graph->nodes[i];
        const bool reads = std::find(std::begin(node->src), std::end(node->src), delta) != std::end(node->src);
        if (node == kept || (!reads && node->view_src != delta)) {
            continue;
        }
        if (node->view_src != delta || node->view_offs + ggml_nbytes(node) > result_bytes(delta)) {
            return false;
        }
    }
    return true;
}

/// GATED_DELTA_NET, and the copy of its states.
bool find_copy(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    const ggml_tensor * kept = last->op == GGML_OP_CPY ? last->src[0] : nullptr;
    const ggml_tensor * delta = kept != nullptr && kept->op == GGML_OP_VIEW ? kept->src[0] : nullptr;
    if (delta == nullptr || delta->op != GGML_OP_GATED_DELTA_NET || graph.find(delta) < 0 || graph.find(kept) < 0 ||
        !only_kept_sees_states(graph, delta, kept)) {
        return false;
    }
    match.nodes = {delta, last};
    match.written = {delta, last};
    match.operands = {delta->src[5], last->src[1]};
    match.operands.insert(match.operands.end(), delta->src, delta->src + 5);
    match.taken = {graph.find(delta), graph.find(kept), graph.find(last)};
    return true;
}

/// The same behind GET_ROWS of the state.
bool find_in_cache(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    if (!find_copy(graph, last, match)) {
        return false;
    }
    const ggml_tensor * gather = behind_reshapes(graph, match.operands[from_operand], match.taken);
    if (gather->op != GGML_OP_GET_ROWS || graph.find(gather) < 0) {
        return false;
    }
    match.taken.push_back(graph.find(gather));
    match.nodes.insert(match.nodes.begin(), gather);
    match.operands[from_operand] = gather->src[0];
    match.operands.push_back(gather->src[1]);
    return true;
}

/// The copy is of all states that are written, and a state is a row of what they are copied into.
bool copy_guard(const fusion_target &, const fusion_match & match) {
    const ggml_tensor * delta = delta_of(match);
    const ggml_tensor * state = delta->src[5];
    const ggml_tensor * kept = match.nodes.back()->src[0];
    const ggml_tensor * to = match.operands[to_operand];
    const int64_t size = state->nb[3] / sizeof(float), sequences = delta->src[2]->ne[3];
    const int64_t written = std::min<int64_t>(delta->src[2]->ne[2], delta->op_params[0]);
    return kept->view_offs == result_bytes(delta) && ggml_is_contiguous(kept) && ggml_nelements(kept) == size * sequences * written &&
           is_f32_rows(to) && to->ne[0] == size && to->ne[1] == sequences && to->ne[2] == written && to->ne[3] == 1;
}

/// One sequence, whose state is a row of the same cache that it is copied into: each element is read before it is written.
bool in_cache_guard(const fusion_target & target, const fusion_match & match) {
    const ggml_tensor * from = match.operands[from_operand];
    const ggml_tensor * to = match.operands[to_operand];
    const ggml_tensor * row = match.operands.back();
    if (!copy_guard(target, match) || !is_f32_rows(from) || from->ne[0] != to->ne[0] || from->ne[2] != 1 || from->ne[3] != 1 ||
        row->type != GGML_TYPE_I32 || ggml_nelements(row) != 1 || owner_of(from) != owner_of(to)) {
        return false;
    }
    if (delta_of(match)->src[2]->ne[0] % 32 != 0) {   // else kernels read some columns twice
        return false;
    }
    const bool whole_rows = (to->view_offs - from->view_offs) % from->nb[1] == 0 && (to->ne[2] == 1 || to->nb[2] % from->nb[1] == 0);
    return to->view_offs >= from->view_offs && whole_rows;
}

void launch(planner & plan, const fusion_match & match, const int32_t * rows, uint64_t from_stride) {
    const ggml_tensor * to = match.operands[to_operand];
    plan_gated_delta_net(plan, delta_of(match), {match.operands[from_operand]->data, rows, from_stride, to->data, to->nb[1], to->nb[2]});
}

void plan_copy(planner & plan, const fusion_match & match) { launch(plan, match, nullptr, match.operands[from_operand]->nb[3]); }

void plan_in_cache(planner & plan, const fusion_match & match) {
    launch(plan, match, static_cast<const int32_t *>(match.operands.back()->data), match.operands[from_operand]->nb[1]);
}

}  // namespace

extern const fusion_pattern delta_net_in_cache_fusion;
const fusion_pattern delta_net_in_cache_fusion = {
    .name = "get_rows_gated_delta_net_cpy",
    .steps = {},
    .targets = operand_bits({from_operand, to_operand}),
    .guard = in_cache_guard,
    .plan = plan_in_cache,
    .find = find_in_cache,
};

extern const fusion_pattern delta_net_copy_fusion;
const fusion_pattern delta_net_copy_fusion = {
    .name = "gated_delta_net_cpy",
    .steps = {},
    .targets = operand_bits({to_operand}),
    .guard = copy_guard,
    .plan = plan_copy,
    .find = find_copy,
};

}  // namespace strata
