// Products of one column of activations with several matrices of one type, in one launch: q, k and v, or what a linear layer projects, with
// the gates of its delta net. Each is summed as the mat-vec does alone.
#include <algorithm>
#include <string>

#include "ops/mul_mat.h"
#include "plan/delta_net_gates.h"
#include "plan/fusion.h"
#include "strata/args/mul_mat_group.h"

namespace strata {

namespace {

constexpr int search = 48;   // nodes before the last one in which others are looked for

bool is_product_of_column(const ggml_tensor * node) {
    if (node->op != GGML_OP_MUL_MAT) {
        return false;
    }
    const ggml_tensor * w = node->src[0];
    const ggml_tensor * x = node->src[1];
    return ggml_is_quantized(w->type) && x->type == GGML_TYPE_F32 && ggml_nrows(x) == 1 && w->ne[2] == 1 && w->ne[3] == 1;
}

/// The products stand in the order of the graph; operand 0 is x, the others are their matrices. All wait for the last one.
bool find_group(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    if (!is_product_of_column(last)) {
        return false;
    }
    const ggml_tensor * x = last->src[1];
    const int place = graph.find(last);
    for (int i = place; i >= 0 && i >= place - search && match.nodes.size() < most_in_group; --i) {
        const ggml_tensor * node = graph.graph->nodes[i];
        if (is_product_of_column(node) && node->src[1] == x && node->src[0]->type == last->src[0]->type && !graph.fused(i) &&
            !read_before(graph, i, place)) {
            match.nodes.insert(match.nodes.begin(), node);
            match.taken.push_back(i);
        }
    }
    if (match.nodes.size() < 2) {
        return false;
    }
    match.operands = {x};
    for (const ggml_tensor * node : match.nodes) {
        match.operands.push_back(node->src[0]);
    }
    match.written = match.nodes;
    return true;
}

// --- with the gates of a delta net, whose nodes and operands come behind those of the products

constexpr std::size_t gate_nodes = 6, gate_operands = 5;

fusion_match products_of(const fusion_match & match) {
    return match.part(0, match.nodes.size() - gate_nodes, 0, match.operands.size() - gate_operands);
}

fusion_match gates_of(const fusion_match & match) {
    return match.part(match.nodes.size() - gate_nodes, gate_nodes, match.operands.size() - gate_operands, gate_operands);
}

/// Both wait for what stands last.
bool find_group_and_gates(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    fusion_match gates;
    const bool group_is_last = find_group(graph, last, match);
    if (!group_is_last && !find_gates(graph, last, gates)) {
        return false;
    }
    const int place = graph.find(last);
    bool found = false;
    for (int i = place - 1; i >= std::max(0, place - search) && !found; --i) {
        fusion_match & other = group_is_last ? gates : match;
        const fusion_pattern * const pattern = other.pattern;
        other = {};
        other.pattern = pattern;
        found = !graph.fused(i) && (group_is_last ? find_gates : find_group)(graph, graph.graph->nodes[i], other) &&
                gates.operands[0] == match.operands[0];
    }
    if (!found) {
        return false;
    }
    match.append(gates);
    return std::none_of(match.written.begin(), match.written.end(),
                        [&](const ggml_tensor * node) { return read_before(graph, graph.find(node), place); });
}

bool guard(const fusion_target & target, const fusion_match & match) {
    return !target.disabled("mul_mat_vec") && std::all_of(match.nodes.begin(), match.nodes.end(), [](const ggml_tensor * node) {
        return node->type == GGML_TYPE_F32 && ggml_is_contiguous(node);
    });
}

bool guard_with_gates(const fusion_target & target, const fusion_match & match) {
    return guard(target, products_of(match)) && gates_guard(target, gates_of(match));
}

/// `gates`: null if there are none.
void launch_group(planner & plan, const fusion_match & match, const gates_args * gates) {
    const ggml_tensor * w = match.operands[1];
    int64_t rows = 0;
    for (const ggml_tensor * node : match.nodes) {
        rows += node->ne[0];
    }
    const ggml_tensor * x = match.operands[0];
    if (gates == nullptr && mat_vec_quantizes(plan, w->type, x, rows, int(match.nodes.size()))) {
        plan_quantizing_mat_vec(plan, x, match.nodes);
        return;
    }
    const quantized_activations q = plan_quantize(plan, x);
    mul_mat_group_args args = {};
    args.values = q.values;
    args.meta = q.meta;
    args.k = uint32_t(w->ne[0]);
    const uint32_t wave_rows = mat_vec_rows(w->type, rows, 1, args.k);
    add_members(args, match.nodes, 4 * wave_rows);
    uint32_t blocks = args.end;
    if (gates != nullptr) {
        args.gates = *gates;
        blocks += gate_blocks(*gates);
    }
    const std::string type = weight_name(w->type);
    const std::string kernel = "mul_mat_vec_group_" + type + "_r" + std::to_string(wave_rows);
    plan.launch(("mul_mat_vec_" + type).c_str(), kernel.c_str(), {blocks}, {128}, args);
}

void plan_group(planner & plan, const fusion_match & match) { launch_group(plan, match, nullptr); }

void plan_with_gates(planner & plan, const fusion_match & match) {
    const gates_args gates = make_gates_args(gates_of(match));
    launch_group(plan, products_of(match), &gates);
}

}  // namespace

extern const fusion_pattern product_group_fusion;
const fusion_pattern product_group_fusion = {
    .name = "mul_mat_group",
    .steps = {},
    .guard = guard,
    .plan = plan_group,
    .find = find_group,
};

extern const fusion_pattern product_group_gates_fusion;
const fusion_pattern product_group_gates_fusion = {
    .name = "mul_mat_group_delta_net_gates",
    .steps = {},
    .guard = guard_with_gates,
    .plan = plan_with_gates,
    .find = find_group_and_gates,
};

}  // namespace strata
