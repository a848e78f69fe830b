// RMS_NORM of f32 rows with what stands before and behind it: one read of the row instead of one for each node.
#include <cstring>
#include <string>

#include "ops/mul_mat.h"
#include "plan/fusion.h"
#include "plan/row_operands.h"

namespace strata {

namespace {

constexpr int64_t max_row = int64_t(1) << 30;
constexpr int64_t max_rows = int64_t(1) << 24;

/// All nodes are of one shape, and all operands are or can be repeated to it.
bool guard(const fusion_target & target, const fusion_match & match) {
    const ggml_tensor * last = match.nodes.back();
    if (target.caps.wave_size != 32 || last->ne[0] >= max_row || ggml_nrows(last) >= max_rows) {
        return false;
    }
    for (const ggml_tensor * node : match.nodes) {
        if (!is_f32_rows(node) || !ggml_are_same_shape(node, last)) {
            return false;
        }
    }
    for (const ggml_tensor * each : match.operands) {
        if (!repeats_to(each, last)) {
            return false;
        }
    }
    return true;
}

norm_chain_args make_args(const ggml_tensor * dst, const ggml_tensor * src, const ggml_tensor * norm) {
    norm_chain_args args = {};
    args.dst = rows_of(dst);
    args.src = rows_of(src);
    args.row = uint32_t(dst->ne[0]);
    args.rows = uint32_t(ggml_nrows(dst));
    args.ne1 = make_divisor(uint32_t(dst->ne[1]));
    args.ne2 = make_divisor(uint32_t(dst->ne[2]));
    args.eps = eps_of(norm);
    return args;
}

std::string kernel_of(const char * what, const norm_chain_args & args) {
    return std::string("norm_") + what + (args.row <= norm_wave_row ? "_wave" : "_row") + (args.row % 4 == 0 ? "4" : "");
}

dims grid_of(const norm_chain_args & args) {
    const uint32_t rows_a_block = args.row <= norm_wave_row ? norm_block / 32 : 1;
    return {(args.rows + rows_a_block - 1) / rows_a_block};
}

/// The chain named `what`. If products with quantized weights read `result`, it is quantized on the way; STRATA_DISABLE=rms_norm_q8_1: not.
void launch(planner & plan, const char * what, norm_chain_args args, const ggml_tensor * result) {
    if (args.row % 32 == 0 && ggml_is_contiguous(result) && plan.quantizes_result("rms_norm_q8_1", result)) {
        const quantized_activations q = room_for_quantized(plan, result);
        args.values = q.values;
        args.meta = q.meta;
    }
    plan.launch("norm_chain", kernel_of(what, args).c_str(), grid_of(args), {norm_block}, args);
}

void plan_norm_mul(planner & plan, const fusion_match & m) {
    norm_chain_args args = make_args(m.nodes.back(), m.operands[0], m.nodes[0]);
    args.weight = rows_of(m.operands[1]);
    launch(plan, "mul", args, m.nodes.back());
}

void plan_norm_mul_add(planner & plan, const fusion_match & m) {
    norm_chain_args args = make_args(m.nodes.back(), m.operands[0], m.nodes[0]);
    args.weight = rows_of(m.operands[1]);
    args.other = rows_of(m.operands[2]);
    launch(plan, "mul_add", args, m.nodes.back());
}

void plan_gated_norm(planner & plan, const fusion_match & m) {
    norm_chain_args args = make_args(m.nodes.back(), m.operands[0], m.nodes[0]);
    args.weight = rows_of(m.operands[1]);
    args.other = rows_of(m.operands[2]);
    launch(plan, ggml_get_unary_op(m.nodes[2]) == GGML_UNARY_OP_SILU ? "mul_silu" : "mul_sigmoid", args, m.nodes.back());
}

norm_chain_args make_scale_args(const fusion_match & m) {
    norm_chain_args args = make_args(m.nodes[1], m.operands[0], m.nodes[0]);
    std::memcpy(&args.scale, m.nodes[1]->op_params, sizeof(float));
    std::memcpy(&args.bias, m.nodes[1]->op_params + 1, sizeof(float));
    return args;
}

void plan_norm_scale(planner & plan, const fusion_match & m) { launch(plan, "scale", make_scale_args(m), m.nodes.back()); }

/// Nodes: norm and scale of the first, then of the second. Both have the same shape and parameters.
void plan_norm_scale_pair(planner & plan, const fusion_match & m) {
    norm_chain_args args = make_scale_args(m);
    args.other = rows_of(m.operands[1]);
    args.sum = rows_of(m.nodes[3]);
    dims grid = grid_of(args);
    grid.y = 2;
    plan.launch("norm_chain", kernel_of("scale", args).c_str(), grid, {norm_block}, args);
}

constexpr int search = 16;   // nodes before the last one in which its like is looked for

bool find_norm_scale_pair(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    const auto is_scaled_norm = [](const ggml_tensor * t) { return t->op == GGML_OP_SCALE && t->src[0]->op == GGML_OP_RMS_NORM; };
    if (!is_scaled_norm(last)) {
        return false;
    }
    const int place = graph.find(last);
    for (int i = place - 1; i >= 0 && i >= place - search; --i) {
        const ggml_tensor * first = graph.graph->nodes[i];
        if (is_scaled_norm(first) && first->src[0] != last->src[0] && ggml_are_same_shape(first, last) &&
            std::memcmp(first->op_params, last->op_params, sizeof(last->op_params)) == 0 &&
            std::memcmp(first->src[0]->op_params, last->src[0]->op_params, sizeof(last->op_params)) == 0) {
            match.nodes = {first->src[0], first, last->src[0], last};
            match.operands = {first->src[0]->src[0], last->src[0]->src[0]};
            match.written = {first, last};
            match.taken = {graph.find(first->src[0]), i, graph.find(last->src[0]), place};
            return match.taken[0] >= 0 && match.taken[2] >= 0;
        }
    }
    return false;
}

/// The sum is written unless only the norm reads it: the allocator then has the norm's result in its place.
bool find_add_norm(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    static const std::vector<fusion_step> steps = {{.op = GGML_OP_ADD, .sources = {operand(0), operand(1)}, .written = true},
                                                   {GGML_OP_RMS_NORM, {result_of(0)}},
                                                   {GGML_OP_MUL, {result_of(1), operand(2)}}};
    if (!match_steps(graph, steps, last, match)) {
        return false;
    }
    const ggml_tensor * sum = match.nodes.front();
    if ((sum->flags & GGML_TENSOR_FLAG_OUTPUT) == 0 && sum->view_src == nullptr && ggml_node_get_use_count(graph.graph, graph.find(sum)) == 1) {
        match.written = {last};
    }
    return true;
}

void plan_add_norm(planner & plan, const fusion_match & m) {
    norm_chain_args args = make_args(m.nodes.back(), m.operands[0], m.nodes[1]);
    args.other = rows_of(m.operands[1]);
    args.sum = rows_of(m.written.front());   // if nobody reads the sum, the result is written over it
    args.weight = rows_of(m.operands[2]);
    launch(plan, "of_sum", args, m.nodes.back());
}

void plan_norm_add_norm(planner & plan, const fusion_match & m) {
    norm_chain_args args = make_args(m.nodes.back(), m.operands[0], m.nodes[0]);
    args.weight = rows_of(m.operands[1]);
    args.other = rows_of(m.operands[2]);
    args.sum = rows_of(m.nodes[2]);
    args.eps2 = eps_of(m.nodes[3]);
    args.weight2 = rows_of(m.operands[3]);
    launch(plan, "twice", args, m.nodes.back());
}

}  // namespace

/// x / rms(x) * w
extern const fusion_pattern norm_mul_fusion;
const fusion_pattern norm_mul_fusion = {
    .name = "rms_norm_mul",
    .steps = {{GGML_OP_RMS_NORM, {operand(0)}}, {GGML_OP_MUL, {result_of(0), operand(1)}}},
    .in_place = operand_bits({0}),
    .guard = guard,
    .plan = plan_norm_mul,
};

/// x / rms(x) * w + y
extern const fusion_pattern norm_mul_add_fusion;
const fusion_pattern norm_mul_add_fusion = {
    .name = "rms_norm_mul_add",
    .steps = {{GGML_OP_RMS_NORM, {operand(0)}}, {GGML_OP_MUL, {result_of(0), operand(1)}}, {GGML_OP_ADD, {result_of(1), operand(2)}}},
    .in_place = operand_bits({0, 2}),
    .guard = guard,
    .plan = plan_norm_mul_add,
};

/// x / rms(x) * w * silu(z): the norm behind a delta net.
extern const fusion_pattern gated_norm_fusion;
const fusion_pattern gated_norm_fusion = {
    .name = "gated_rms_norm",
    .steps = {{GGML_OP_RMS_NORM, {operand(0)}},
              {GGML_OP_MUL, {result_of(0), operand(1)}},
              {.op = GGML_OP_UNARY, .sources = {operand(2)}, .kind = GGML_UNARY_OP_SILU},
              {GGML_OP_MUL, {result_of(1), result_of(2)}}},
    .in_place = operand_bits({0, 2}),
    .guard = guard,
    .plan = plan_gated_norm,
};

/// x / rms(x) * w * sigmoid(z)
extern const fusion_pattern sigmoid_norm_fusion;
const fusion_pattern sigmoid_norm_fusion = {
    .name = "sigmoid_gated_rms_norm",
    .steps = {{GGML_OP_RMS_NORM, {operand(0)}},
              {GGML_OP_MUL, {result_of(0), operand(1)}},
              {.op = GGML_OP_UNARY, .sources = {operand(2)}, .kind = GGML_UNARY_OP_SIGMOID},
              {GGML_OP_MUL, {result_of(1), result_of(2)}}},
    .in_place = operand_bits({0, 2}),
    .guard = guard,
    .plan = plan_gated_norm,
};

/// x / rms(x) * s: how llama.cpp normalizes q and k of a delta net.
extern const fusion_pattern norm_scale_fusion;
const fusion_pattern norm_scale_fusion = {
    .name = "rms_norm_scale",
    .steps = {{GGML_OP_RMS_NORM, {operand(0)}}, {GGML_OP_SCALE, {result_of(0)}}},
    .in_place = operand_bits({0}),
    .guard = guard,
    .plan = plan_norm_scale,
};

/// Two of those, of the same shape.
extern const fusion_pattern norm_scale_pair_fusion;
const fusion_pattern norm_scale_pair_fusion = {
    .name = "rms_norm_scale_pair",
    .steps = {},
    .guard = guard,
    .plan = plan_norm_scale_pair,
    .find = find_norm_scale_pair,
};

/// s = x + y, and s / rms(s) * w: a residual and the norm of the next block.
extern const fusion_pattern add_norm_fusion;
const fusion_pattern add_norm_fusion = {
    .name = "add_rms_norm_mul",
    .steps = {},
    .in_place = operand_bits({0, 1}),
    .guard = guard,
    .plan = plan_add_norm,
    .find = find_add_norm,
};

/// s = x / rms(x) * w + y, and s / rms(s) * v: the norm behind a block, the residual, and the norm of the next one.
extern const fusion_pattern norm_add_norm_fusion;
const fusion_pattern norm_add_norm_fusion = {
    .name = "rms_norm_mul_add_rms_norm_mul",
    .steps = {{GGML_OP_RMS_NORM, {operand(0)}},
              {GGML_OP_MUL, {result_of(0), operand(1)}},
              {.op = GGML_OP_ADD, .sources = {result_of(1), operand(2)}, .written = true},
              {GGML_OP_RMS_NORM, {result_of(2)}},
              {GGML_OP_MUL, {result_of(3), operand(3)}}},
    .in_place = operand_bits({0, 2}),
    .guard = guard,
    .plan = plan_norm_add_norm,
};

}  // namespace strata
