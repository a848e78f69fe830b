// Two products of one column of activations and the gated unit of them: gate, up and GLU of a feed-forward network in one launch, dense or of
// experts. Each product is summed as the mat-vec does alone.
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
                                             : ggml_nrows(x) == 1 && w->ne[2] == 1 && w->ne[3] == 1;
}

expert_bias bias_of(const ggml_tensor * table) { return {table->data, table->nb[1]}; }

/// If a product with quantized weights reads the result, it is quantized on the way; STRATA_DISABLE=glu_q8_1: not.
void launch(planner & plan, const fusion_match & match, expert_bias bias, expert_bias up_bias) {
    const products of(match);
    const ggml_tensor * w = of.gate->src[0];
    const ggml_tensor * glu = match.nodes.back();
    const quantized_activations q = plan_quantize(plan, of.gate->src[1]);
    const uint32_t rows = uint32_t(w->ne[1]), matrices = uint32_t(ggml_nrows(glu));

    mul_mat_glu_args args = {};
    args.product = {w->data, q.values, q.meta, static_cast<float *>(glu->data),
                    {w->nb[2], 0, make_divisor(1), make_divisor(1), make_divisor(1)},
                    uint32_t(w->nb[1]), rows, 1, uint32_t(w->ne[0]), {}, {}};
    if (of.gate->op == GGML_OP_MUL_MAT_ID) {
        args.product.experts = choice_of_experts(of.gate);
    }
    args.up = of.up->src[0]->data;
    args.bias = bias;
    args.up_bias = up_bias;
    known_kind(glu, args.kind);
    std::memcpy(&args.alpha, glu->op_params + 2, sizeof(float));
    std::memcpy(&args.limit, glu->op_params + 3, sizeof(float));

    const std::string type = weight_name(w->type);
    if (rows % 32 == 0 && plan.quantizes_result("glu_q8_1", glu)) {
        const quantized_activations result = room_for_quantized(plan, glu);
        args.values = result.values;
        args.meta = result.meta;
        const std::string kernel = "mul_mat_vec_glu_" + type + "_q8_1";
        plan.launch(("mul_mat_vec_" + type).c_str(), kernel.c_str(), {rows / 32, 1, matrices}, {512}, args);
        return;
    }
    const uint32_t wave_rows = mat_vec_rows(int64_t(rows) * matrices, 1, w->ne[0]) > 1 ? 2 : 1;
    const std::string kernel = "mul_mat_vec_glu_" + type + "_r" + std::to_string(wave_rows);
    plan.launch(("mul_mat_vec_" + type).c_str(), kernel.c_str(), {tiles(rows, 4 * wave_rows), 1, matrices}, {128}, args);
}

void plan_without_bias(planner & plan, const fusion_match & match) { launch(plan, match, {}, {}); }

void plan_with_bias(planner & plan, const fusion_match & match) { launch(plan, match, bias_of(match.operands[3]), bias_of(match.operands[5])); }

}  // namespace

/// glu(gate x, up x)
extern const fusion_pattern product_glu_fusion;
const fusion_pattern product_glu_fusion = {
    .name = "mul_mat_glu",
    .steps = {{GGML_OP_MUL_MAT, {operand(0), operand(1)}},
              {GGML_OP_MUL_MAT, {operand(2), operand(1)}},
              {GGML_OP_GLU, {result_of(0), result_of(1)}}},
    .guard = guard,
    .plan = plan_without_bias,
};

/// The same with the experts' matrices that operand 2 names.
extern const fusion_pattern expert_glu_fusion;
const fusion_pattern expert_glu_fusion = {
    .name = "mul_mat_id_glu",
    .steps = {{GGML_OP_MUL_MAT_ID, {operand(0), operand(1), operand(2)}},
              {GGML_OP_MUL_MAT_ID, {operand(3), operand(1), operand(2)}},
              {GGML_OP_GLU, {result_of(0), result_of(1)}}},
    .guard = guard,
    .plan = plan_without_bias,
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
