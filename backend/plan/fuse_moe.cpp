// A mixture of experts but for its gated units: the router, the weighted sum of the chosen experts, the gate of the shared one, and for a
// single token their last products with these.
#include <algorithm>
#include <cstring>
#include <string>

#include "ops/mul_mat.h"
#include "plan/fusion.h"
#include "plan/row_operands.h"
#include "strata/args/expert_output.h"
#include "strata/args/expert_sum.h"
#include "strata/args/router.h"

namespace strata {

namespace {

// --- router

/// What a match of the router is made of.
struct router {
    router_kind kind = router_kind::soft_max;
    const ggml_tensor * soft_max = nullptr;   ///< of all logits, or of those of the chosen experts
    const ggml_tensor * argsort = nullptr;
    const ggml_tensor * gather = nullptr;
    const ggml_tensor * clamp = nullptr;      ///< router_kind::soft_max_norm

    explicit router(const fusion_match & match) {
        for (const ggml_tensor * node : match.nodes) {
            switch (node->op) {
                case GGML_OP_SOFT_MAX: soft_max = node; break;
                case GGML_OP_ARGSORT: argsort = node; break;
                case GGML_OP_GET_ROWS: gather = node; break;
                case GGML_OP_CLAMP: clamp = node; break;
                default: break;
            }
        }
        kind = clamp ? router_kind::soft_max_norm : soft_max == match.nodes.back() ? router_kind::soft_max_chosen : router_kind::soft_max;
    }

    const ggml_tensor * logits() const { return kind == router_kind::soft_max_chosen ? argsort->src[0] : soft_max->src[0]; }
    const ggml_tensor * chosen() const { return gather->src[1]; }
};

/// The chosen experts are the first columns of the order, and nobody sees the others.
bool only_first_are_read(const graph_index & graph, const ggml_tensor * argsort, const ggml_tensor * chosen) {
    const int place = graph.find(argsort);
    if (place < 0 || (argsort->flags & GGML_TENSOR_FLAG_OUTPUT) != 0 || ggml_node_get_use_count(graph.graph, place) != 1 ||
        chosen->op != GGML_OP_VIEW || chosen->src[0] != argsort || chosen->view_offs != 0 || chosen->nb[1] != argsort->nb[1] ||
        chosen->ne[1] != argsort->ne[1]) {
        return false;
    }
    for (int i = 0; i < graph.graph->n_nodes; ++i) {
        const ggml_tensor * node = graph.graph->nodes[i];
        if (node->view_src == argsort && (node->ne[0] > chosen->ne[0] || node->nb[1] != chosen->nb[1] || node->view_offs != 0)) {
            return false;
        }
    }
    return true;
}

/// SOFT_MAX, ARGSORT, GET_ROWS, then SUM_ROWS, CLAMP, DIV or nothing; or ARGSORT, GET_ROWS, SOFT_MAX.
bool find_router(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    const ggml_tensor * gather = last;
    const ggml_tensor * sum = nullptr;
    const ggml_tensor * clamp = nullptr;
    if (last->op == GGML_OP_DIV) {
        clamp = last->src[1];
        sum = clamp->op == GGML_OP_CLAMP ? clamp->src[0] : nullptr;
        if (sum == nullptr || sum->op != GGML_OP_SUM_ROWS || sum->src[0] != last->src[0]) {
            return false;
        }
        gather = behind_reshapes(graph, last->src[0], match.taken);
    } else if (last->op == GGML_OP_SOFT_MAX) {
        gather = behind_reshapes(graph, last->src[0], match.taken);
    }
    if (gather->op != GGML_OP_GET_ROWS || gather->src[1]->op != GGML_OP_VIEW || gather->src[1]->src[0]->op != GGML_OP_ARGSORT) {
        return false;
    }
    const ggml_tensor * argsort = gather->src[1]->src[0];
    std::vector<int> reshapes;
    const ggml_tensor * probabilities = behind_reshapes(graph, gather->src[0], reshapes);
    if (!only_first_are_read(graph, argsort, gather->src[1]) || argsort->src[0] != probabilities) {
        return false;
    }
    match.nodes = {argsort, gather};
    if (last->op == GGML_OP_SOFT_MAX) {
        match.nodes.push_back(last);
        match.operands = {probabilities};   // logits: how they are reshaped is nothing that is computed
    } else {
        if (probabilities->op != GGML_OP_SOFT_MAX || probabilities->src[1] != nullptr || probabilities->src[2] != nullptr) {
            return false;
        }
        match.nodes.insert(match.nodes.begin(), probabilities);
        match.taken.insert(match.taken.end(), reshapes.begin(), reshapes.end());
        match.operands = {probabilities->src[0]};
        if (clamp != nullptr) {
            match.nodes.insert(match.nodes.end(), {sum, clamp, last});
        }
    }
    match.written = {argsort, last};
    return add_places(graph, match);
}

bool router_guard(const fusion_target & target, const fusion_match & match) {
    const router r(match);
    const ggml_tensor * logits = r.logits();
    const ggml_tensor * weights = match.nodes.back();
    const int64_t used = r.chosen()->ne[0], tokens = logits->ne[1];
    const bool sums_are_of_tokens = r.clamp == nullptr || weights->ne[0] == used;   // a reshape may have made one row of them
    const bool last_soft_max_is_plain = r.kind != router_kind::soft_max_chosen ||
                                        (r.soft_max->src[1] == nullptr && r.soft_max->src[2] == nullptr && r.soft_max->ne[0] == used);
    return target.caps.wave_size == 32 && f32_matrix(logits) && logits->ne[0] <= router_experts && used <= router_used &&
           used <= logits->ne[0] && tokens <= (int64_t(1) << 24) && r.argsort->op_params[0] == GGML_SORT_ORDER_DESC &&
           r.gather->ne[0] == 1 && weights->type == GGML_TYPE_F32 && ggml_is_contiguous(weights) &&
           ggml_nelements(weights) == used * tokens && ggml_is_contiguous(r.argsort) && last_soft_max_is_plain && sums_are_of_tokens;
}

void plan_router(planner & plan, const fusion_match & match) {
    const router r(match);
    const ggml_tensor * logits = r.logits();
    router_args args = {};
    args.logits = logits->data;
    args.ids = static_cast<int32_t *>(r.argsort->data);
    args.weights = static_cast<float *>(match.nodes.back()->data);
    args.logits_stride = logits->nb[1];
    args.ids_stride = r.argsort->nb[1];
    args.experts = uint32_t(logits->ne[0]);
    args.used = uint32_t(r.chosen()->ne[0]);
    args.tokens = uint32_t(logits->ne[1]);
    args.kind = r.kind;
    std::memcpy(&args.scale, r.soft_max->op_params, sizeof(float));
    if (r.clamp != nullptr) {
        std::memcpy(&args.lowest_sum, r.clamp->op_params, sizeof(float));
        std::memcpy(&args.highest_sum, r.clamp->op_params + 1, sizeof(float));
    }
    const char * kernel = args.experts <= 128 ? "router_128" : args.experts <= 512 ? "router_512" : "router_1024";
    plan.launch("router", kernel, {tiles(args.tokens, router_block / 32)}, {router_block}, args);
}

// --- sum of the experts

/// MUL, a view of each slot, and ADDs from left to right. The last node is the last ADD.
bool find_expert_sum(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    std::vector<const ggml_tensor *> views, adds;
    const ggml_tensor * rest = last;
    for (; rest->op == GGML_OP_ADD; rest = rest->src[0]) {
        adds.push_back(rest);
        views.push_back(rest->src[1]);
    }
    views.push_back(rest);
    const ggml_tensor * product = rest->op == GGML_OP_VIEW ? rest->src[0] : nullptr;
    if (adds.empty() || product == nullptr || product->op != GGML_OP_MUL || product->ne[1] != int64_t(views.size())) {
        return false;
    }
    std::reverse(views.begin(), views.end());
    for (std::size_t slot = 0; slot < views.size(); ++slot) {
        const ggml_tensor * view = views[slot];
        if (view->op != GGML_OP_VIEW || view->src[0] != product || view->view_offs != slot * product->nb[1] || view->ne[0] != product->ne[0] ||
            view->ne[1] != product->ne[2] || view->nb[0] != product->nb[0] || view->nb[1] != product->nb[2] || view->ne[2] != 1 ||
            view->ne[3] != 1) {
            return false;
        }
        match.taken.push_back(graph.find(view));
    }
    match.nodes = {product};
    match.nodes.insert(match.nodes.end(), adds.rbegin(), adds.rend());
    match.operands = {product->src[0], product->src[1]};
    match.written = {last};
    return add_places(graph, match);
}

/// `sum` is that of these experts, whose products with their weights are `product`.
bool kernels_sum(const ggml_tensor * experts, const ggml_tensor * weights, const ggml_tensor * product, const ggml_tensor * sum) {
    return experts->type == GGML_TYPE_F32 && weights->type == GGML_TYPE_F32 && sum->type == GGML_TYPE_F32 &&
           experts->nb[0] == sizeof(float) && ggml_are_same_shape(experts, product) && experts->ne[3] == 1 && weights->ne[0] == 1 &&
           weights->ne[1] == experts->ne[1] && weights->ne[2] == experts->ne[2] && weights->ne[3] == 1 && ggml_is_contiguous(sum) &&
           sum->ne[0] < (int64_t(1) << 30) && sum->ne[1] <= 65535;
}

bool expert_sum_guard(const fusion_target &, const fusion_match & match) {
    return kernels_sum(match.operands[0], match.operands[1], match.nodes.front(), match.nodes.back());
}

expert_sum_args make_expert_sum_args(const ggml_tensor * experts, const ggml_tensor * weights, void * dst) {
    return {static_cast<float *>(dst), experts->data, weights->data, experts->nb[1], experts->nb[2], weights->nb[1], weights->nb[2],
            uint32_t(experts->ne[0]), uint32_t(experts->ne[1])};
}

void plan_expert_sum(planner & plan, const fusion_match & match) {
    const ggml_tensor * sum = match.nodes.back();
    const expert_sum_args args = make_expert_sum_args(match.operands[0], match.operands[1], sum->data);
    plan.launch("expert_sum", args.columns % 4 == 0 ? "expert_sum_rows4" : "expert_sum_rows",
                {tiles(args.columns, 4 * expert_sum_block), uint32_t(sum->ne[1])}, {expert_sum_block}, args);
}

// --- gate of the shared expert

// Operands: gate, x, shared, what the other experts gave, residual or null; then, with the sum of these experts, their weights.
enum : int { gate_operand, x_operand, shared_operand, routed_operand, residual_operand, weights_operand };

/// shared * sigmoid(gate x) + routed
const std::vector<fusion_step> gate_steps = {
    {GGML_OP_MUL_MAT, {operand(gate_operand), operand(x_operand)}},
    {.op = GGML_OP_UNARY, .sources = {result_of(0)}, .kind = GGML_UNARY_OP_SIGMOID},
    {GGML_OP_MUL, {operand(shared_operand), result_of(1)}},
    {GGML_OP_ADD, {result_of(2), operand(routed_operand)}},
};

/// shared * sigmoid(gate x) + routed + residual
const std::vector<fusion_step> gate_add_steps = [] {
    std::vector<fusion_step> steps = gate_steps;
    steps.push_back({GGML_OP_ADD, {result_of(3), operand(residual_operand)}});
    return steps;
}();

/// What the experts gave is their weighted sum, which comes first among the nodes.
bool find_gate_and_sum(const graph_index & graph, const std::vector<fusion_step> & steps, const ggml_tensor * last, fusion_match & match) {
    fusion_match sum;
    if (!match_steps(graph, steps, last, match) || !find_expert_sum(graph, match.operands[routed_operand], sum)) {
        return false;
    }
    match.operands.resize(weights_operand + 1);
    match.operands[routed_operand] = sum.operands[0];
    match.operands[weights_operand] = sum.operands[1];
    match.nodes.insert(match.nodes.begin(), sum.nodes.begin(), sum.nodes.end());
    match.taken.insert(match.taken.end(), sum.taken.begin(), sum.taken.end());
    return true;
}

/// Nodes of the gate: the last four, or five with a residual.
std::size_t gate_node_count(const fusion_match & match) {
    const bool residual = match.operands.size() > residual_operand && match.operands[residual_operand] != nullptr;
    return residual ? gate_add_steps.size() : gate_steps.size();
}

bool shared_gate_guard(const fusion_target & target, const fusion_match & match) {
    const ggml_tensor * gate = match.operands[gate_operand];
    const ggml_tensor * x = match.operands[x_operand];
    const ggml_tensor * sum = match.nodes.back();
    const std::size_t first = match.nodes.size() - gate_node_count(match);
    // As many columns as the mat-vec takes, and rows for which it takes a whole wave.
    if (target.caps.wave_size != 32 || target.disabled("mul_mat_vec") || !f32_matrix(gate) || gate->ne[1] != 1 || !f32_matrix(x) ||
        x->ne[1] > max_mat_vec_columns || mat_vec_lanes(gate->ne[0]) != 32 || match.nodes[first]->ne[0] != 1) {
        return false;
    }
    std::vector<const ggml_tensor *> rows(match.nodes.begin() + std::ptrdiff_t(first) + 2, match.nodes.end());
    rows.push_back(match.operands[shared_operand]);
    if (match.operands.size() > weights_operand) {
        const ggml_tensor * experts_sum = match.nodes[first - 1];
        if (!kernels_sum(match.operands[routed_operand], match.operands[weights_operand], match.nodes.front(), experts_sum)) {
            return false;
        }
        rows.push_back(experts_sum);
    } else {
        rows.push_back(match.operands[routed_operand]);
    }
    if (gate_node_count(match) == gate_add_steps.size()) {
        rows.push_back(match.operands[residual_operand]);
    }
    for (const ggml_tensor * each : rows) {
        if (!f32_matrix(each) || !ggml_are_same_shape(each, sum)) {
            return false;
        }
    }
    return ggml_is_contiguous(sum) && sum->ne[0] <= shared_gate_columns && sum->ne[1] == x->ne[1];
}

void plan_shared_gate(planner & plan, const fusion_match & match) {
    const ggml_tensor * gate = match.operands[gate_operand];
    const ggml_tensor * x = match.operands[x_operand];
    const ggml_tensor * shared = match.operands[shared_operand];
    const ggml_tensor * routed = match.operands[routed_operand];
    const ggml_tensor * residual = gate_node_count(match) == gate_add_steps.size() ? match.operands[residual_operand] : nullptr;
    const ggml_tensor * sum = match.nodes.back();
    shared_gate_args args = {static_cast<float *>(sum->data), gate->data, x->data, shared->data, routed->data,
                             residual ? residual->data : nullptr, x->nb[1], shared->nb[1], routed->nb[1],
                             residual ? residual->nb[1] : 0, uint32_t(sum->ne[0]), uint32_t(gate->ne[0]), {}};
    if (match.operands.size() > weights_operand) {
        args.experts = make_expert_sum_args(routed, match.operands[weights_operand], nullptr);
    }
    plan.launch("shared_gate", args.columns % 4 == 0 ? "shared_gate4" : "shared_gate", {uint32_t(sum->ne[1])}, {shared_gate_block}, args);
}

// --- the last products of the experts, their sum, and the gate of the shared one

// Operands behind weights_operand. In place of what the products gave stand the activations.
enum : int { down_operand = weights_operand + 1, ids_operand, shared_down_operand };

/// Nodes: the chosen experts' product, their sum, the shared expert's product, and the gate.
bool find_expert_output(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    if (!find_gate_and_sum(graph, gate_steps, last, match)) {
        return false;
    }
    const ggml_tensor * chosen = match.operands[routed_operand];
    const ggml_tensor * shared = match.operands[shared_operand];
    if (chosen->op != GGML_OP_MUL_MAT_ID || shared->op != GGML_OP_MUL_MAT) {
        return false;
    }
    match.nodes.insert(match.nodes.end() - std::ptrdiff_t(gate_steps.size()), shared);
    match.nodes.insert(match.nodes.begin(), chosen);
    match.operands.insert(match.operands.end(), {chosen->src[0], chosen->src[2], shared->src[0]});
    match.operands[routed_operand] = chosen->src[1];
    match.operands[shared_operand] = shared->src[1];
    for (const ggml_tensor * product : {chosen, shared}) {
        match.taken.push_back(graph.find(product));
    }
    return std::find(match.taken.begin(), match.taken.end(), -1) == match.taken.end();
}

const ggml_tensor * shared_product(const fusion_match & match) { return match.nodes[match.nodes.size() - gate_steps.size() - 1]; }

/// The match of what is behind the products.
fusion_match without_products(const fusion_match & match) {
    fusion_match rest = match;
    rest.nodes.erase(rest.nodes.end() - std::ptrdiff_t(gate_steps.size()) - 1);
    rest.nodes.erase(rest.nodes.begin());
    rest.operands.resize(down_operand);
    rest.operands[routed_operand] = match.nodes.front();
    rest.operands[shared_operand] = shared_product(match);
    return rest;
}

bool expert_output_guard(const fusion_target & target, const fusion_match & match) {
    const ggml_tensor * chosen = match.nodes.front();
    const ggml_tensor * shared = shared_product(match);
    const ggml_tensor * w = match.operands[down_operand];
    const ggml_tensor * shared_w = match.operands[shared_down_operand];
    const ggml_tensor * y = match.operands[routed_operand];
    const ggml_tensor * shared_y = match.operands[shared_operand];
    if (!shared_gate_guard(target, without_products(match)) || match.nodes.back()->ne[1] != 1 || chosen->ne[1] > expert_output_used) {
        return false;
    }
    return ggml_is_quantized(w->type) && w->type == shared_w->type && y->type == GGML_TYPE_F32 && shared_y->type == GGML_TYPE_F32 &&
           chosen->type == GGML_TYPE_F32 && shared->type == GGML_TYPE_F32 && expert_product_is_mat_vec(target.caps, chosen) &&
           ggml_nrows(shared_y) == 1 && shared_w->ne[2] == 1 && shared_w->ne[3] == 1;
}

void plan_expert_output(planner & plan, const fusion_match & match) {
    const ggml_tensor * chosen = match.nodes.front();
    const ggml_tensor * w = match.operands[down_operand];
    const ggml_tensor * shared_w = match.operands[shared_down_operand];
    const ggml_tensor * weights = match.operands[weights_operand];
    const ggml_tensor * gate = match.operands[gate_operand];
    const quantized_activations q = plan_quantize(plan, match.operands[routed_operand]);
    const quantized_activations shared_q = plan_quantize(plan, match.operands[shared_operand]);
    const expert_choice choice = choice_of_experts(chosen);
    const expert_output_args args = {
        {w->data, q.values, q.meta, static_cast<float *>(match.nodes.back()->data), {w->nb[2], 0, make_divisor(1), make_divisor(1), make_divisor(1)},
         uint32_t(w->nb[1]), uint32_t(w->ne[1]), 1, uint32_t(w->ne[0]), choice, {}},
        weights->data, weights->nb[1], shared_w->data, shared_q.values, shared_q.meta, uint32_t(shared_w->nb[1]), uint32_t(shared_w->ne[0]),
        gate->data, match.operands[x_operand]->data, uint32_t(gate->ne[0])};
    const std::string type = weight_name(w->type);
    plan.launch(("mul_mat_vec_" + type).c_str(), ("mul_mat_vec_experts_" + type).c_str(), {tiles(w->ne[1], expert_output_rows)},
                {32 * (choice.used.divisor + 2)}, args);
}

bool one_token(const fusion_match & match) { return match.nodes.back()->ne[1] == 1; }

bool one_token_is_routed(const fusion_match & match) { return router(match).logits()->ne[1] == 1; }

}  // namespace

extern const fusion_pattern router_fusion;
const fusion_pattern router_fusion = {
    .name = "top_k_router",
    .steps = {},
    .reads_first = one_token_is_routed,
    .guard = router_guard,
    .plan = plan_router,
    .find = find_router,
};

extern const fusion_pattern expert_sum_fusion;
const fusion_pattern expert_sum_fusion = {
    .name = "expert_sum",
    .steps = {},
    .guard = expert_sum_guard,
    .plan = plan_expert_sum,
    .find = find_expert_sum,
};

extern const fusion_pattern shared_gate_fusion, shared_gate_add_fusion;
const fusion_pattern shared_gate_fusion = {
    .name = "shared_expert_gate",
    .steps = gate_steps,
    .in_place = operand_bits({x_operand, shared_operand, routed_operand}),
    .reads_first = one_token,
    .guard = shared_gate_guard,
    .plan = plan_shared_gate,
};
const fusion_pattern shared_gate_add_fusion = {
    .name = "shared_expert_gate_add",
    .steps = gate_add_steps,
    .in_place = operand_bits({x_operand, shared_operand, routed_operand, residual_operand}),
    .reads_first = one_token,
    .guard = shared_gate_guard,
    .plan = plan_shared_gate,
};

/// shared * sigmoid(gate x) + the weighted sum of the other experts, with the products that made all of them.
extern const fusion_pattern expert_output_fusion;
const fusion_pattern expert_output_fusion = {
    .name = "expert_output",
    .steps = {},
    .guard = expert_output_guard,
    .plan = plan_expert_output,
    .find = find_expert_output,
};

/// The same with the weighted sum of the other experts.
extern const fusion_pattern sum_gate_fusion, sum_gate_add_fusion;
const fusion_pattern sum_gate_fusion = {
    .name = "expert_sum_shared_gate",
    .steps = {},
    .in_place = operand_bits({x_operand, shared_operand}),
    .reads_first = one_token,
    .guard = shared_gate_guard,
    .plan = plan_shared_gate,
    .find = [](const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
        return find_gate_and_sum(graph, gate_steps, last, match);
    },
};
const fusion_pattern sum_gate_add_fusion = {
    .name = "expert_sum_shared_gate_add",
    .steps = {},
    .in_place = operand_bits({x_operand, shared_operand, residual_operand}),
    .reads_first = one_token,
    .guard = shared_gate_guard,
    .plan = plan_shared_gate,
    .find = [](const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
        return find_gate_and_sum(graph, gate_add_steps, last, match);
    },
};

}  // namespace strata
