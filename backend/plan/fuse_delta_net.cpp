// The gates of a delta net: two small products of the same activations and what is made of them.
#include <algorithm>

#include "ops/mul_mat.h"
#include "plan/delta_net_gates.h"
#include "plan/row_operands.h"

namespace strata {

namespace {

constexpr int search = 32;   // nodes before the last one in which the other gate is looked for

/// One of the gates: its nodes in order, the last one being the gate.
struct gate {
    std::vector<const ggml_tensor *> nodes;
    std::vector<const ggml_tensor *> operands;   ///< without the activations
    std::vector<int> taken;

    const ggml_tensor * activations() const { return nodes.front()->src[1]; }
};

/// MUL(SOFTPLUS(ADD(MUL_MAT(alpha, x), bias)), factor)
bool find_decay(const graph_index & graph, const ggml_tensor * last, gate & found) {
    const ggml_tensor * softplus = last->op == GGML_OP_MUL ? last->src[0] : nullptr;
    if (softplus == nullptr || softplus->op != GGML_OP_UNARY || ggml_get_unary_op(softplus) != GGML_UNARY_OP_SOFTPLUS) {
        return false;
    }
    const ggml_tensor * add = softplus->src[0];
    const ggml_tensor * product = add->op == GGML_OP_ADD ? behind_reshapes(graph, add->src[0], found.taken) : nullptr;
    if (product == nullptr || product->op != GGML_OP_MUL_MAT) {
        return false;
    }
    found.nodes = {product, add, softplus, last};
    found.operands = {product->src[0], add->src[1], last->src[1]};
    return true;
}

/// SIGMOID(MUL_MAT(beta, x))
bool find_beta(const graph_index & graph, const ggml_tensor * last, gate & found) {
    if (last->op != GGML_OP_UNARY || ggml_get_unary_op(last) != GGML_UNARY_OP_SIGMOID) {
        return false;
    }
    const ggml_tensor * product = behind_reshapes(graph, last->src[0], found.taken);
    if (product->op != GGML_OP_MUL_MAT) {
        return false;
    }
    found.nodes = {product, last};
    found.operands = {product->src[0]};
    return true;
}

}  // namespace

bool find_gates(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    gate decay, beta;
    const bool decay_is_last = find_decay(graph, last, decay);
    if (!decay_is_last && !find_beta(graph, last, beta)) {
        return false;
    }
    const int place = graph.find(last);
    bool found = false;
    for (int i = place - 1; i >= std::max(0, place - search) && !found; --i) {
        gate & other = decay_is_last ? beta : decay;
        other = {};
        found = (decay_is_last ? find_beta : find_decay)(graph, graph.graph->nodes[i], other) && decay.activations() == beta.activations();
    }
    if (!found) {
        return false;
    }
    match.operands = {decay.activations(), decay.operands[0], decay.operands[1], decay.operands[2], beta.operands[0]};
    match.nodes = decay.nodes;
    match.nodes.insert(match.nodes.end(), beta.nodes.begin(), beta.nodes.end());
    match.written = {decay.nodes.back(), beta.nodes.back()};
    match.taken = decay.taken;
    match.taken.insert(match.taken.end(), beta.taken.begin(), beta.taken.end());
    return add_places(graph, match);
}

bool gates_guard(const fusion_target & target, const fusion_match & match) {
    const ggml_tensor * x = match.operands[0];
    const ggml_tensor * alpha = match.operands[1];
    const ggml_tensor * beta = match.operands[4];
    const int64_t heads = alpha->ne[1];
    // As many columns as the mat-vec takes, and rows for which it takes a whole wave.
    if (target.caps.wave_size != 32 || target.disabled("mul_mat_vec") || !f32_matrix(x) || !f32_matrix(alpha) || !f32_matrix(beta) ||
        x->ne[1] > max_mat_vec_columns || mat_vec_lanes(alpha->ne[0]) != 32 || beta->ne[1] != heads) {
        return false;
    }
    for (const ggml_tensor * each : {match.operands[2], match.operands[3]}) {   // one number a head, which come first
        if (!f32_matrix(each) || each->ne[0] != heads || ggml_nelements(each) != heads) {
            return false;
        }
    }
    for (const ggml_tensor * node : match.nodes) {
        if (node->type != GGML_TYPE_F32 || !ggml_is_contiguous(node) || ggml_nelements(node) != heads * x->ne[1]) {
            return false;
        }
    }
    return match.nodes[1]->ne[0] == heads;
}

gates_args make_gates_args(const fusion_match & match) {
    const ggml_tensor * x = match.operands[0];
    const ggml_tensor * alpha = match.operands[1];
    const ggml_tensor * beta = match.operands[4];
    return {static_cast<float *>(match.written[0]->data), static_cast<float *>(match.written[1]->data), alpha->data, beta->data,
            match.operands[2]->data, match.operands[3]->data, x->data, alpha->nb[1], beta->nb[1], x->nb[1],
            uint32_t(alpha->ne[1]), uint32_t(alpha->ne[0])};
}

uint32_t gate_blocks(const gates_args & args) { return tiles(2 * int64_t(args.heads), gates_block / 32); }

static void plan_gates(planner & plan, const fusion_match & match) {
    const gates_args args = make_gates_args(match);
    plan.launch("gates", "delta_net_gates", {gate_blocks(args), uint32_t(match.operands[0]->ne[1])}, {gates_block}, args);
}

extern const fusion_pattern delta_net_gates_fusion;
const fusion_pattern delta_net_gates_fusion = {
    .name = "delta_net_gates",
    .steps = {},
    .guard = gates_guard,
    .plan = plan_gates,
    .find = find_gates,
};

}  // namespace strata
