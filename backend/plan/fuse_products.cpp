// Products of one column of activations with several matrices of one type, in one launch: q, k and v, or what a linear layer projects. Each is
// summed as the mat-vec does alone.
#include <algorithm>
#include <string>

#include "ops/mul_mat.h"
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

/// True if a node that runs before `until` reads what the node at `place` computes.
bool read_before(const graph_index & graph, int place, int until) {
    const ggml_tensor * node = graph.graph->nodes[place];
    for (int i = place + 1; i < until; ++i) {
        const ggml_tensor * reader = graph.graph->nodes[i];
        if (is_empty_op(reader->op) || graph.runs_at(i) > until) {
            continue;
        }
        for (const ggml_tensor * source : reader->src) {
            if (source != nullptr && (source == node || source->view_src == node)) {
                return true;
            }
        }
    }
    return false;
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

bool guard(const fusion_target & target, const fusion_match & match) {
    return !target.disabled("mul_mat_vec") && std::all_of(match.nodes.begin(), match.nodes.end(), [](const ggml_tensor * node) {
        return node->type == GGML_TYPE_F32 && ggml_is_contiguous(node);
    });
}

void plan_group(planner & plan, const fusion_match & match) {
    const ggml_tensor * w = match.operands[1];
    int64_t rows = 0;
    for (const ggml_tensor * node : match.nodes) {
        rows += node->ne[0];
    }
    const ggml_tensor * x = match.operands[0];
    if (mat_vec_quantizes(plan, w->type, x, rows, int(match.nodes.size()))) {
        plan_quantizing_mat_vec(plan, x, match.nodes);
        return;
    }
    const quantized_activations q = plan_quantize(plan, x);
    mul_mat_group_args args = {};
    args.values = q.values;
    args.meta = q.meta;
    args.k = uint32_t(w->ne[0]);
    const uint32_t wave_rows = mat_vec_rows(rows, 1, args.k);
    uint32_t blocks = 0;
    for (std::size_t i = 0; i < match.nodes.size(); ++i) {
        const ggml_tensor * weights = match.nodes[i]->src[0];
        blocks += tiles(weights->ne[1], 4 * wave_rows);
        args.members[i] = {weights->data, static_cast<float *>(match.nodes[i]->data), uint32_t(weights->nb[1]), uint32_t(weights->ne[1]), blocks};
    }
    const std::string type = weight_name(w->type);
    const std::string kernel = "mul_mat_vec_group_" + type + "_r" + std::to_string(wave_rows);
    plan.launch(("mul_mat_vec_" + type).c_str(), kernel.c_str(), {blocks}, {128}, args);
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

}  // namespace strata
