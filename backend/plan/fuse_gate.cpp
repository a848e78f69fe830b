// Activations with what they are multiplied by, and with what they are taken of.
#include "ops/mul_mat.h"
#include "ops/pointwise.h"
#include "ops/ssm_conv.h"
#include "plan/fusion.h"
#include "strata/args/gate_rows.h"

namespace strata {

namespace {

/// `t` with the shape of `like`, of which it has as many elements; contiguous.
pointwise_operand shaped_as(const ggml_tensor * t, const ggml_tensor * like) {
    pointwise_operand shaped(t);
    std::size_t step = shaped.size;
    for (int i = 0; i < GGML_MAX_DIMS; ++i) {
        shaped.ne[i] = like->ne[i];
        shaped.nb[i] = step;
        step *= std::size_t(like->ne[i]);
    }
    return shaped;
}

// Operands: gate, x. The steps may begin with a CONT of the gate.

bool has_copy(const fusion_match & match) { return match.nodes.front()->op == GGML_OP_CONT; }

bool guard_product(const fusion_target &, const fusion_match & match) {
    const ggml_tensor * gate = match.operands[0];
    const ggml_tensor * x = match.operands[1];
    const ggml_tensor * result = match.nodes.back();
    for (const ggml_tensor * each : {gate, x, result}) {
        if (each->type != GGML_TYPE_F32) {
            return false;
        }
    }
    if (!ggml_are_same_shape(x, result) || ggml_nelements(gate) != ggml_nelements(result)) {
        return false;
    }
    if (has_copy(match)) {
        return ggml_is_contiguous(x) && ggml_is_contiguous(result) &&
               !pointwise_refusal(shaped_as(result, gate), {pointwise_operand(gate), shaped_as(x, gate)});
    }
    return ggml_are_same_shape(gate, result) && !pointwise_refusal(pointwise_operand(result), {pointwise_operand(gate), pointwise_operand(x)});
}

/// Whole heads whose gates are copied, and whose rows can be quantized on the way.
bool are_heads(const ggml_tensor * gate, const ggml_tensor * result) {
    return gate->nb[0] == sizeof(float) && gate->ne[0] % 4 == 0 && gate->ne[3] == 1 && result->ne[0] == gate->ne[0] * gate->ne[1] &&
           result->ne[1] == gate->ne[2] && result->ne[1] <= 65535 && result->ne[0] % 32 == 0;
}

void plan_heads(planner & plan, const ggml_tensor * gate, const ggml_tensor * x, const ggml_tensor * result) {
    const quantized_activations q = room_for_quantized(plan, result);
    const gate_rows_args args = {static_cast<float *>(result->data), static_cast<const float *>(x->data), gate->data, gate->nb[1], gate->nb[2],
                                 uint32_t(result->ne[0]), make_divisor(uint32_t(gate->ne[0] / 4)), q.values, q.meta};
    plan.launch("gated", "sigmoid_mul_q8_1", {tiles(args.row, 4 * gate_rows_block), uint32_t(result->ne[1])}, {gate_rows_block}, args);
}

/// If a product with quantized weights reads gated heads, these are quantized on the way; STRATA_DISABLE=gate_q8_1: not.
void plan_product(planner & plan, const fusion_match & match) {
    const ggml_tensor * gate = match.operands[0];
    const ggml_tensor * x = match.operands[1];
    const ggml_tensor * result = match.nodes.back();
    const ggml_tensor * activation = match.nodes[match.nodes.size() - 2];
    if (has_copy(match) && ggml_get_unary_op(activation) == GGML_UNARY_OP_SIGMOID && are_heads(gate, result) &&
        plan.quantizes_result("gate_q8_1", result)) {
        plan_heads(plan, gate, x, result);
        return;
    }
    const char * kernel = ggml_get_unary_op(activation) == GGML_UNARY_OP_SIGMOID    ? "sigmoid_mul"
                          : ggml_get_unary_op(activation) == GGML_UNARY_OP_SOFTPLUS ? "softplus_mul"
                                                                                    : "silu_mul";
    if (has_copy(match)) {
        plan_pointwise(plan, "gated", kernel, shaped_as(result, gate), {pointwise_operand(gate), shaped_as(x, gate)});
    } else {
        plan_pointwise(plan, "gated", kernel, pointwise_operand(result), {pointwise_operand(gate), pointwise_operand(x)});
    }
}

/// activation(gate) * x
fusion_pattern product_pattern(const char * name, ggml_unary_op activation, bool copied) {
    std::vector<fusion_step> steps;
    if (copied) {
        steps.push_back({GGML_OP_CONT, {operand(0)}});
    }
    steps.push_back({.op = GGML_OP_UNARY, .sources = {copied ? reshaped(0) : operand(0)}, .kind = int(activation)});
    steps.push_back({GGML_OP_MUL, {copied ? reshaped(1) : result_of(0), operand(1)}});
    return {.name = name, .steps = steps, .in_place = operand_bits({0, 1}), .guard = guard_product, .plan = plan_product};
}

// Operands: source, weights, bias.

bool guard_convolution(const fusion_target &, const fusion_match & match) {
    const ggml_tensor * conv = match.nodes.front();
    for (const ggml_tensor * node : match.nodes) {
        if (node->type != GGML_TYPE_F32 || !ggml_is_contiguous(node) || !ggml_are_same_shape(node, conv)) {
            return false;
        }
    }
    const ggml_tensor * bias = match.operands.size() > 2 ? match.operands[2] : nullptr;
    return bias == nullptr || (bias->type == GGML_TYPE_F32 && ggml_is_contiguous(bias) && bias->ne[0] == conv->ne[0] &&
                               ggml_nelements(bias) == conv->ne[0]);
}

void plan_convolution(planner & plan, const fusion_match & match) {
    plan_ssm_conv(plan, match.nodes.front(), match.operands.size() > 2 ? match.operands[2] : nullptr, match.nodes.back(), true);
}

}  // namespace

extern const fusion_pattern sigmoid_copy_mul_fusion, sigmoid_mul_fusion, softplus_mul_fusion, silu_mul_fusion;
const fusion_pattern sigmoid_copy_mul_fusion = product_pattern("cont_sigmoid_mul", GGML_UNARY_OP_SIGMOID, true);
const fusion_pattern sigmoid_mul_fusion = product_pattern("sigmoid_mul", GGML_UNARY_OP_SIGMOID, false);
const fusion_pattern softplus_mul_fusion = product_pattern("softplus_mul", GGML_UNARY_OP_SOFTPLUS, false);
const fusion_pattern silu_mul_fusion = product_pattern("silu_mul", GGML_UNARY_OP_SILU, false);

/// silu(conv(x))
extern const fusion_pattern conv_silu_fusion;
const fusion_pattern conv_silu_fusion = {
    .name = "ssm_conv_silu",
    .steps = {{GGML_OP_SSM_CONV, {operand(0), operand(1)}}, {.op = GGML_OP_UNARY, .sources = {result_of(0)}, .kind = GGML_UNARY_OP_SILU}},
    .guard = guard_convolution,
    .plan = plan_convolution,
};

/// silu(conv(x) + bias)
extern const fusion_pattern conv_bias_silu_fusion;
const fusion_pattern conv_bias_silu_fusion = {
    .name = "ssm_conv_add_silu",
    .steps = {{GGML_OP_SSM_CONV, {operand(0), operand(1)}},
              {GGML_OP_ADD, {result_of(0), operand(2)}},
              {.op = GGML_OP_UNARY, .sources = {result_of(1)}, .kind = GGML_UNARY_OP_SILU}},
    .guard = guard_convolution,
    .plan = plan_convolution,
};

}  // namespace strata
