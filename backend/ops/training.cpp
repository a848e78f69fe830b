// CROSS_ENTROPY_LOSS, CROSS_ENTROPY_LOSS_BACK, OPT_STEP_ADAMW, OPT_STEP_SGD: contiguous f32.
#include "ops/op.h"
#include "strata/args/backward.h"
#include "strata/args/reduce.h"

namespace strata {

namespace {

constexpr int64_t limit = int64_t(1) << 31;

const char * refusal(const device_caps & caps, const ggml_tensor * op) {
    if (caps.wave_size != 32) {
        return "wave size";
    }
    if (op->type != GGML_TYPE_F32 || !ggml_is_contiguous(op)) {
        return "result not contiguous f32";
    }
    for (int i = 0; i < GGML_MAX_SRC && op->src[i]; i++) {
        if (op->src[i]->type != GGML_TYPE_F32 || !ggml_is_contiguous(op->src[i])) {
            return "operand not contiguous f32";
        }
        if (ggml_nelements(op->src[i]) >= limit) {
            return "2^31 elements or more";
        }
    }
    return nullptr;
}

uint32_t blocks_for(uint32_t items, uint32_t items_a_block) { return (items + items_a_block - 1) / items_a_block; }

float * data_of(const ggml_tensor * t) { return static_cast<float *>(t->data); }

cross_entropy_args loss_args(const ggml_tensor * logits, const ggml_tensor * labels) {
    return {nullptr, data_of(logits), data_of(labels), nullptr, uint32_t(logits->ne[0]), uint32_t(ggml_nrows(logits))};
}

void plan_loss(planner & plan, const ggml_tensor * op) {
    cross_entropy_args args = loss_args(op->src[0], op->src[1]);
    args.dst = static_cast<float *>(plan.scratch(std::size_t(args.rows) * sizeof(float)));
    plan.launch("training", "cross_entropy_loss", {blocks_for(args.rows, backward_block / 32)}, {backward_block}, args);
    sum_all_args total = {};
    total.dst = op->data;
    total.a = args.dst;
    total.count = total.chunk = args.rows;
    total.dim_count = 1;
    total.dims[0] = {make_divisor(args.rows), sizeof(float), 0};
    plan.launch("sum", "sum_f32_f32", {1}, {sum_block}, total);
}

void plan_loss_back(planner & plan, const ggml_tensor * op) {
    cross_entropy_args args = loss_args(op->src[1], op->src[2]);
    args.dst = data_of(op);
    args.gradient = data_of(op->src[0]);
    plan.launch("training", "cross_entropy_loss_back", {blocks_for(args.rows, backward_block / 32)}, {backward_block}, args);
}

const char * loss_refusal(const device_caps & caps, const ggml_tensor * op) {
    const bool backward = op->op == GGML_OP_CROSS_ENTROPY_LOSS_BACK;
    return ggml_is_empty(op->src[backward]) ? "empty operand" : refusal(caps, op);
}

void plan_step(planner & plan, const ggml_tensor * op, bool adamw) {
    opt_step_args args = {};
    args.weights = data_of(op->src[0]);
    args.gradient = data_of(op->src[1]);
    if (adamw) {
        args.mean = data_of(op->src[2]);
        args.square = data_of(op->src[3]);
    }
    args.params = data_of(op->src[adamw ? 4 : 2]);
    args.count = uint32_t(ggml_nelements(op->src[0]));
    plan.launch("training", adamw ? "opt_step_adamw" : "opt_step_sgd", {blocks_for(args.count, backward_block)}, {backward_block}, args);
}

}  // namespace

extern const op_entry cross_entropy_loss_op, cross_entropy_loss_back_op, opt_step_adamw_op, opt_step_sgd_op;
const op_entry cross_entropy_loss_op = {GGML_OP_CROSS_ENTROPY_LOSS, loss_refusal, plan_loss};
const op_entry cross_entropy_loss_back_op = {GGML_OP_CROSS_ENTROPY_LOSS_BACK, loss_refusal, plan_loss_back};
const op_entry opt_step_adamw_op = {GGML_OP_OPT_STEP_ADAMW, refusal, [](planner & plan, const ggml_tensor * op) { plan_step(plan, op, true); }};
const op_entry opt_step_sgd_op = {GGML_OP_OPT_STEP_SGD, refusal, [](planner & plan, const ggml_tensor * op) { plan_step(plan, op, false); }};

}  // namespace strata
