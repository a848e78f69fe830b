// Two products of one to eight columns of activations and the gated unit of them: gate, up and GLU of a feed-forward network in one launch,
// dense or of experts (one column each), or of experts and the one that all tokens share. Each product is summed as the mat-vec does alone.
#include <algorithm>
#include <cstring>
#include <string>

#include "ops/mul_mat.h"
#include "plan/fusion.h"
#include "strata/args/glu.h"

namespace strata {

namespace {

bool known_kind(const ggml_tensor * glu, glu_kind & kind) {
    switch (ggml_get_glu_op(glu)) {
        case GGML_GLU_OP_REGLU: kind = glu_kind::reglu; return true;
        case GGML_GLU_OP_GEGLU: kind = glu_kind::geglu; return true;
        case GGML_GLU_OP_SWIGLU: kind = glu_kind::swiglu; return true;
        case GGML_GLU_OP_SWIGLU_OAI: kind = glu_kind::swiglu_oai; return true;
        case GGML_GLU_OP_GEGLU_ERF: kind = glu_kind::geglu_erf; return true;
        case GGML_GLU_OP_GEGLU_QUICK: kind = glu_kind::geglu_quick; return true;
        case GGML_GLU_OP_SWIGLU_CLAMP: kind = glu_kind::swiglu_clamp; return true;
        default: return false;
    }
}

/// The two products of a match, in the order of its steps.
struct products {
    const ggml_tensor * gate = nullptr;
    const ggml_tensor * up = nullptr;

    explicit products(const fusion_match & match) {
        for (const ggml_tensor * node : match.nodes) {
            if (node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID) {
                (gate == nullptr ? gate : up) = node;
            }
        }
    }
};

bool guard(const fusion_target & target, const fusion_match & match) {
    const products of(match);
    const ggml_tensor * w = of.gate->src[0];
    const ggml_tensor * x = of.gate->src[1];
    const ggml_tensor * glu = match.nodes.back();
    glu_kind kind;
    if (!known_kind(glu, kind) || target.disabled("mul_mat_vec") || !ggml_is_quantized(w->type) || x->type != GGML_TYPE_F32) {
        return false;
    }
    if (!ggml_are_same_layout(w, of.up->src[0]) || !ggml_are_same_shape(glu, of.gate)) {
        return false;
    }
    for (const ggml_tensor * node : match.nodes) {
        if (node->type != GGML_TYPE_F32 || !ggml_is_contiguous(node)) {
            return false;
        }
    }
    return of.gate->op == GGML_OP_MUL_MAT_ID ? expert_product_is_mat_vec(target.caps, of.gate)
                                             : x->ne[1] <= max_mat_vec_columns && ggml_n_dims(x) <= 2 && w->ne[2] == 1 && w->ne[3] == 1;
}

expert_bias bias_of(const ggml_tensor * table) { return {table->data, table->nb[1]}; }

/// `shared`: the gated unit of the shared expert, or null. If products with quantized weights read the results, these are quantized on the
/// way; STRATA_DISABLE=glu_q8_1: not.
void launch(planner & plan, const fusion_match & match, expert_bias bias, expert_bias up_bias, const fusion_match * shared = nullptr) {
    const products of(match);
    const ggml_tensor * w = of.gate->src[0];
    const ggml_tensor * glu = match.nodes.back();
    const ggml_tensor * x = of.gate->src[1];
    const bool experts = of.gate->op == GGML_OP_MUL_MAT_ID;
    const uint32_t columns = experts ? 1 : uint32_t(ggml_nrows(glu));
    const uint32_t rows = uint32_t(w->ne[1]), matrices = uint32_t(ggml_nrows(glu)) / columns;

    const int64_t weights = 2 * w->ne[0] * (int64_t(rows) * matrices + (shared ? shared->nodes.back()->ne[0] : 0));
    const bool quantizes = columns == 1 && pairs_quantize(plan, w->type, x, weights, shared ? 4 : 2, true);
    const quantized_activations q = quantizes ? quantized_activations{} : plan_quantize(plan, x);

    mul_mat_glu_args args = {};
    args.product = {w->data, q.values, q.meta, static_cast<float *>(glu->data),
                    {w->nb[2], 0, make_divisor(1), make_divisor(1), make_divisor(1)},
                    uint32_t(w->nb[1]), rows, columns, uint32_t(w->ne[0]), {}, {}};
    if (experts) {
        args.product.experts = choice_of_experts(of.gate);
    }
    args.up = of.up->src[0]->data;
    args.bias = bias;
    args.up_bias = up_bias;
    known_kind(glu, args.kind);
    std::memcpy(&args.alpha, glu->op_params + 2, sizeof(float));
    std::memcpy(&args.limit, glu->op_params + 3, sizeof(float));
    const ggml_tensor * shared_glu = shared ? shared->nodes.back() : nullptr;
    if (shared) {
        const products of_shared(*shared);
        args.shared = {of_shared.gate->src[0]->data, of_shared.up->src[0]->data, static_cast<float *>(shared_glu->data), nullptr, nullptr,
                       uint32_t(shared_glu->ne[0]), matrices};
    }
    const uint32_t most_rows = std::max(rows, args.shared.rows), layers = shared ? matrices + 1 : matrices;

    const std::string type = weight_name(w->type), family = "mul_mat_vec_" + type;
    if (columns > 1) {
        const std::string kernel = "mul_mat_vec_glu_" + type + "_c" + std::to_string(columns);
        plan.launch(family.c_str(), kernel.c_str(), {tiles(rows, 4)}, {128}, args);
        return;
    }
    const bool quantized = rows % 32 == 0 && args.shared.rows % 32 == 0 && plan.quantizes_result("glu_q8_1", glu) &&
                           (!shared || plan.quantizes_result("glu_q8_1", shared_glu));
    if (quantized) {
        const quantized_activations result = room_for_quantized(plan, glu);
        args.values = result.values;
        args.meta = result.meta;
        if (shared) {
            const quantized_activations shared_result = room_for_quantized(plan, shared_glu);
            args.shared.values = shared_result.values;
            args.shared.meta = shared_result.meta;
        }
    }
    // How workgroups lie, once it is known how many rows each has.
    const auto grid_of = [&](uint32_t rows_a_block) -> dims {
        const uint32_t groups = tiles(most_rows, rows_a_block);
        return experts ? expert_grid(args.product.experts, of.gate->src[2], groups, layers) : dims{groups, 1, layers};
    };
    if (quantizes) {
        const dims grid = grid_of(32);
        const mul_mat_glu_quantize_args quantizing = {args, pair_activations_of(x)};
        plan.launch(family.c_str(), ("mul_mat_vec_glu_quantize_" + type).c_str(), grid, {mul_mat_quantize_waves * 32}, quantizing, mul_mat_quantize_lds(uint32_t(w->ne[0]), 1));
        return;
    }
    if (quantized) {
        const dims grid = grid_of(32);
        plan.launch(family.c_str(), ("mul_mat_vec_glu_" + type + "_q8_1").c_str(), grid, {512}, args);
        return;
    }
    const uint32_t wave_rows = mat_vec_rows(w->type, int64_t(rows) * matrices, 1, w->ne[0]) > 1 ? 2 : 1;
    const std::string kernel = "mul_mat_vec_glu_" + type + "_r" + std::to_string(wave_rows);
    const dims grid = grid_of(4 * wave_rows);
    plan.launch(family.c_str(), kernel.c_str(), grid, {128}, args);
}

void plan_without_bias(planner & plan, const fusion_match & match) { launch(plan, match, {}, {}); }

void plan_with_bias(planner & plan, const fusion_match & match) { launch(plan, match, bias_of(match.operands[3]), bias_of(match.operands[5])); }

// --- experts and the shared one

const std::vector<fusion_step> product_steps = {
    {GGML_OP_MUL_MAT, {operand(0), operand(1)}},
    {GGML_OP_MUL_MAT, {operand(2), operand(1)}},
    {GGML_OP_GLU, {result_of(0), result_of(1)}},
};
const std::vector<fusion_step> expert_steps = {
    {GGML_OP_MUL_MAT_ID, {operand(0), operand(1), operand(2)}},
    {GGML_OP_MUL_MAT_ID, {operand(3), operand(1), operand(2)}},
    {GGML_OP_GLU, {result_of(0), result_of(1)}},
};
constexpr std::size_t expert_operands = 4;   // those of the shared expert come behind them

/// Three nodes of the chosen experts, and three of the shared one.
struct both_matches {
    fusion_match chosen, shared;

    explicit both_matches(const fusion_match & match)
        : chosen(match.part(0, expert_steps.size(), 0, expert_operands)),
          shared(match.part(expert_steps.size(), product_steps.size(), expert_operands, match.operands.size() - expert_operands)) {}
};

constexpr int search = 96;   // nodes before the last one in which the chosen experts are looked for

/// The chosen experts' products wait for those of the shared one, so whatever reads them must stand behind, or wait itself.
bool find_experts_and_shared(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    fusion_match shared;
    if (last->op != GGML_OP_GLU || !match_steps(graph, product_steps, last, shared)) {
        return false;
    }
    const int place = graph.find(last);
    for (int i = place - 1; i >= std::max(0, place - search); --i) {
        const ggml_tensor * glu = graph.graph->nodes[i];
        fusion_match chosen;
        if (graph.fused(i) || glu->op != GGML_OP_GLU || !match_steps(graph, expert_steps, glu, chosen)) {
            continue;
        }
        std::vector<int> reshapes;
        if (behind_reshapes(graph, chosen.operands[1], reshapes) != behind_reshapes(graph, shared.operands[1], reshapes) ||
            read_before(graph, i, place)) {
            return false;
        }
        match.append(chosen);
        match.append(shared);
        return true;
    }
    return false;
}

bool guard_both(const fusion_target & target, const fusion_match & match) {
    const both_matches both(match);
    const ggml_tensor * w = both.chosen.operands[0];
    const ggml_tensor * shared = both.shared.operands[0];
    const ggml_tensor * x = both.chosen.operands[1];
    return guard(target, both.chosen) && guard(target, both.shared) && ggml_nrows(x) == 1 && ggml_nelements(x) == shared->ne[0] &&
           w->type == shared->type && w->ne[0] == shared->ne[0] && w->nb[1] == shared->nb[1] &&
           std::memcmp(both.chosen.nodes.back()->op_params, both.shared.nodes.back()->op_params, sizeof(w->op_params)) == 0;
}

void plan_both(planner & plan, const fusion_match & match) {
    const both_matches both(match);
    launch(plan, both.chosen, {}, {}, &both.shared);
}

}  // namespace

/// glu(gate x, up x)
extern const fusion_pattern product_glu_fusion;
const fusion_pattern product_glu_fusion = {
    .name = "mul_mat_glu",
    .steps = product_steps,
    .guard = guard,
    .plan = plan_without_bias,
};

/// The same with the experts' matrices that operand 2 names.
extern const fusion_pattern expert_glu_fusion;
const fusion_pattern expert_glu_fusion = {
    .name = "mul_mat_id_glu",
    .steps = expert_steps,
    .guard = guard,
    .plan = plan_without_bias,
};

/// That and the gated unit of the expert that all tokens share, of a single token.
extern const fusion_pattern experts_and_shared_glu_fusion;
const fusion_pattern experts_and_shared_glu_fusion = {
    .name = "mul_mat_id_glu_shared",
    .steps = {},
    .guard = guard_both,
    .plan = plan_both,
    .find = find_experts_and_shared,
};

/// And with a bias of each expert on both products.
extern const fusion_pattern expert_bias_glu_fusion;
const fusion_pattern expert_bias_glu_fusion = {
    .name = "mul_mat_id_add_id_glu",
    .steps = {{GGML_OP_MUL_MAT_ID, {operand(0), operand(1), operand(2)}},
              {GGML_OP_ADD_ID, {result_of(0), operand(3), operand(2)}},
              {GGML_OP_MUL_MAT_ID, {operand(4), operand(1), operand(2)}},
              {GGML_OP_ADD_ID, {result_of(2), operand(5), operand(2)}},
              {GGML_OP_GLU, {result_of(1), result_of(3)}}},
    .guard = guard,
    .plan = plan_with_bias,
};

}  // namespace strata
