// DSV4_HC_PRE (plain and gated), DSV4_HC_POST (with and without a mixing matrix), DSV4_HC_COMB: f32.
#include <initializer_list>

#include "ops/hyper_connection.h"
#include "ops/mul_mat.h"

namespace strata {

namespace {

constexpr int64_t limit = int64_t(1) << 31;

const char * operand_refusal(std::initializer_list<const ggml_tensor *> rows, std::initializer_list<const ggml_tensor *> numbers) {
    for (const ggml_tensor * t : rows) {
        if (t->type != GGML_TYPE_F32 || (t->nb[0] != sizeof(float) && t->ne[0] != 1)) {
            return "operand not f32 or its rows not contiguous";
        }
    }
    for (const ggml_tensor * t : numbers) {
        if (t && t->type != GGML_TYPE_F32) {
            return "operand not f32";
        }
    }
    return nullptr;
}

uint32_t parts(int64_t width) { return uint32_t((width + 3) / 4); }

dims grid(uint32_t items) { return {(items + hyper_block - 1) / hyper_block}; }

const char * pre_refusal(const device_caps &, const ggml_tensor * op) {
    const ggml_tensor * x = op->src[0];
    const ggml_tensor * weights = op->src[1];
    const bool gated = op->op_params[1] != 0;
    if (ggml_nelements(x) >= limit) {
        return "2^31 elements or more";
    }
    return gated ? operand_refusal({op, x, weights}, {}) : operand_refusal({op, x}, {weights});
}

void plan_pre(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * x = op->src[0];
    const ggml_tensor * weights = op->src[1];
    hyper_pre_args args = {};
    args.dst = op->data;
    args.x = x->data;
    args.weights = weights->data;
    args.gated = op->op_params[1] != 0;
    const int first = args.gated ? 1 : 0;  // dimension of the streams in the weights
    for (int i = 0; i < 2; i++) {
        args.x_stride[i] = x->nb[1 + i];
        args.weight_stride[i] = weights->nb[first + i];
    }
    args.width = uint32_t(x->ne[0]);
    args.streams = uint32_t(x->ne[1]);
    args.parts = make_divisor(parts(x->ne[0]));
    args.count = parts(x->ne[0]) * uint32_t(x->ne[2]);
    std::memcpy(&args.scale, op->op_params, sizeof(float));
    if (op->ne[0] % 32 == 0 && ggml_is_contiguous(op) && plan.quantizes_result("hc_pre_q8_1", op)) {
        const quantized_activations q = room_for_quantized(plan, op);
        args.values = q.values;
        args.meta = q.meta;
    }
    plan.launch("hyper_connection", "hyper_pre", grid(args.count), {hyper_block}, args);
}

const char * post_refusal(const device_caps &, const ggml_tensor * op) {
    if (ggml_nelements(op) >= limit) {
        return "2^31 elements or more";
    }
    return operand_refusal({op, op->src[0], op->src[1]}, {op->src[2], op->src[3]});
}

void plan_post(planner & plan, const ggml_tensor * op) { plan_hyper_post(plan, op, hyper_weights_of(op->src[2])); }

const char * comb_refusal(const device_caps &, const ggml_tensor * op) {
    if (op->ne[0] != hyper_streams || op->ne[1] != hyper_streams) {
        return "not four streams";
    }
    return op->ne[2] >= limit ? "2^31 tokens or more" : operand_refusal({op}, {op->src[0], op->src[1], op->src[2]});
}

void plan_comb(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * mixes = op->src[0];
    hyper_comb_args args = {};
    args.dst = static_cast<float *>(op->data);
    args.mixes = mixes->data;
    args.scale = op->src[1]->data;
    args.base = op->src[2]->data;
    args.mix_stride[0] = mixes->nb[0];
    args.mix_stride[1] = mixes->nb[1];
    args.scale_stride = op->src[1]->nb[0];
    args.base_stride = op->src[2]->nb[0];
    args.tokens = uint32_t(op->ne[2]);
    args.iterations = uint32_t(op->op_params[1]);
    std::memcpy(&args.eps, op->op_params, sizeof(float));
    plan.launch("hyper_connection", "hyper_comb", grid(args.tokens), {hyper_block}, args);
}

}  // namespace

hyper_weights hyper_weights_of(const ggml_tensor * weights) {
    return {weights->data, {weights->nb[0], weights->nb[1]}, 0, {1.0f, 0.0f}, {1.0f, 0.0f}};
}

void plan_hyper_post(planner & plan, const ggml_tensor * op, const hyper_weights & weights) {
    const ggml_tensor * x = op->src[0];
    const ggml_tensor * residual = op->src[1];
    const ggml_tensor * comb = op->src[3];
    hyper_post_args args = {};
    args.dst = op->data;
    args.x = x->data;
    args.residual = residual->data;
    args.weights = weights;
    args.comb = comb ? comb->data : nullptr;
    args.x_stride = x->nb[1];
    for (int i = 0; i < 3; i++) {
        args.comb_stride[i] = comb ? comb->nb[i] : 0;
    }
    for (int i = 0; i < 2; i++) {
        args.residual_stride[i] = residual->nb[1 + i];
    }
    args.width = uint32_t(op->ne[0]);
    args.streams = uint32_t(op->ne[1]);
    args.parts = make_divisor(parts(op->ne[0]));
    args.stream_count = make_divisor(args.streams);
    args.count = parts(op->ne[0]) * args.streams * uint32_t(op->ne[2]);
    plan.launch("hyper_connection", "hyper_post", grid(args.count), {hyper_block}, args);
}

extern const op_entry dsv4_hc_pre_op, dsv4_hc_post_op, dsv4_hc_comb_op;
const op_entry dsv4_hc_pre_op = {GGML_OP_DSV4_HC_PRE, pre_refusal, plan_pre};
const op_entry dsv4_hc_post_op = {GGML_OP_DSV4_HC_POST, post_refusal, plan_post};
const op_entry dsv4_hc_comb_op = {GGML_OP_DSV4_HC_COMB, comb_refusal, plan_comb};

}  // namespace strata
