// Hyper-connections: what a block gives to the residual streams, with the weights of the streams before it and the norm of the next block behind.
#include <cstring>
#include <string>

#include "ops/hyper_connection.h"
#include "ops/mul_mat.h"
#include "plan/fusion.h"
#include "plan/row_operands.h"

namespace strata {

namespace {

// Steps: SCALE, SIGMOID, SCALE of the weights, DSV4_HC_POST, and RMS_NORM and MUL. Operands: weights, what is added, streams, weight of the norm.
enum : int { weights_operand, x_operand, residual_operand, norm_weight_operand };
enum : std::size_t { in_step, sigmoid_step, out_step, post_step, norm_step };

constexpr int64_t max_row = int64_t(1) << 30;
constexpr int64_t max_rows = int64_t(1) << 24;

hyper_weights gated_weights(const fusion_match & match) {
    hyper_weights weights = hyper_weights_of(match.operands[weights_operand]);
    weights.gated = 1;
    std::memcpy(weights.in, match.nodes[in_step]->op_params, sizeof(weights.in));   // scale, bias
    std::memcpy(weights.out, match.nodes[out_step]->op_params, sizeof(weights.out));
    return weights;
}

/// The op's refusal has looked at all but the weights.
bool guard(const fusion_target &, const fusion_match & match) {
    const ggml_tensor * weights = match.operands[weights_operand];
    for (const std::size_t step : {in_step, sigmoid_step, out_step}) {
        if (match.nodes[step]->type != GGML_TYPE_F32 || !ggml_are_same_shape(match.nodes[step], weights)) {
            return false;
        }
    }
    return weights->type == GGML_TYPE_F32;
}

void plan_post(planner & plan, const fusion_match & match) { plan_hyper_post(plan, match.nodes[post_step], gated_weights(match)); }

bool norm_guard(const fusion_target & target, const fusion_match & match) {
    const ggml_tensor * sum = match.nodes[post_step];
    if (target.caps.wave_size != 32 || sum->ne[0] >= max_row || ggml_nrows(sum) >= max_rows || sum->ne[3] != 1 || !guard(target, match)) {
        return false;
    }
    for (std::size_t i = post_step; i < match.nodes.size(); ++i) {
        if (!is_f32_rows(match.nodes[i]) || !ggml_are_same_shape(match.nodes[i], sum)) {
            return false;
        }
    }
    return is_f32_rows(match.operands[x_operand]) && is_f32_rows(match.operands[residual_operand]) &&
           repeats_to(match.operands[norm_weight_operand], sum);
}

/// If a product with quantized weights reads the normed streams, these are quantized on the way; STRATA_DISABLE=rms_norm_q8_1: not.
void plan_post_norm(planner & plan, const fusion_match & match) {
    const ggml_tensor * sum = match.nodes[post_step];
    const ggml_tensor * result = match.nodes.back();
    hyper_norm_args args = {};
    args.dst = rows_of(result);
    args.sum = rows_of(match.written.front());   // if nobody else reads the sum, the result is written over it
    args.residual = rows_of(match.operands[residual_operand]);
    args.norm_weight = rows_of(match.operands[norm_weight_operand]);
    args.x = match.operands[x_operand]->data;
    args.x_stride = match.operands[x_operand]->nb[1];
    args.weights = gated_weights(match);
    args.row = uint32_t(sum->ne[0]);
    args.rows = uint32_t(ggml_nrows(sum));
    args.streams = make_divisor(uint32_t(sum->ne[1]));
    args.eps = eps_of(match.nodes[norm_step]);
    if (args.row % 32 == 0 && ggml_is_contiguous(result) && plan.quantizes_result("rms_norm_q8_1", result)) {
        const quantized_activations q = room_for_quantized(plan, result);
        args.values = q.values;
        args.meta = q.meta;
    }
    const bool in_wave = args.row <= norm_wave_row;
    const uint32_t rows_a_block = in_wave ? norm_block / 32 : 1;
    const std::string kernel = std::string("hyper_post_norm") + (in_wave ? "_wave" : "_row") + (args.row % 4 == 0 ? "4" : "");
    plan.launch("hyper_connection", kernel.c_str(), {(args.rows + rows_a_block - 1) / rows_a_block}, {norm_block}, args);
}

const std::vector<fusion_step> post_steps = {
    {GGML_OP_SCALE, {operand(weights_operand)}},
    {.op = GGML_OP_UNARY, .sources = {result_of(in_step)}, .kind = GGML_UNARY_OP_SIGMOID},
    {GGML_OP_SCALE, {result_of(sigmoid_step)}},
    {.op = GGML_OP_DSV4_HC_POST, .sources = {operand(x_operand), operand(residual_operand), result_of(out_step)}, .written = true},
};

const std::vector<fusion_step> post_norm_steps = [] {
    std::vector<fusion_step> steps = post_steps;
    steps.push_back({GGML_OP_RMS_NORM, {result_of(post_step)}});
    steps.push_back({GGML_OP_MUL, {result_of(norm_step), operand(norm_weight_operand)}});
    return steps;
}();

/// The streams are written unless only the norm reads them, as the last ones: the allocator then has the norm's result in their place.
bool find_post_norm(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    if (last->op != GGML_OP_MUL || !match_steps(graph, post_norm_steps, last, match)) {
        return false;
    }
    const ggml_tensor * sum = match.nodes[post_step];
    if ((sum->flags & GGML_TENSOR_FLAG_OUTPUT) == 0 && sum->view_src == nullptr && ggml_node_get_use_count(graph.graph, graph.find(sum)) == 1) {
        match.written = {last};
    }
    return true;
}

}  // namespace

/// residual + x * (scale sigmoid(scale w))
extern const fusion_pattern hyper_post_fusion;
const fusion_pattern hyper_post_fusion = {
    .name = "sigmoid_hc_post",
    .steps = post_steps,
    .in_place = operand_bits({residual_operand}),
    .guard = guard,
    .plan = plan_post,
};

/// That, s, and s / rms(s) * v
extern const fusion_pattern hyper_post_norm_fusion;
const fusion_pattern hyper_post_norm_fusion = {
    .name = "sigmoid_hc_post_rms_norm_mul",
    .steps = {},
    .in_place = operand_bits({residual_operand}),
    .guard = norm_guard,
    .plan = plan_post_norm,
    .find = find_post_norm,
};

}  // namespace strata
