// Backward passes in f32: SILU_BACK, RMS_NORM_BACK, SOFT_MAX_BACK, REPEAT_BACK, GET_ROWS_BACK (gradients of f32 or f16).
#include "ops/pointwise.h"
#include "strata/args/backward.h"

namespace strata {

namespace {

constexpr int64_t limit = int64_t(1) << 31;

uint32_t blocks_for(uint32_t items, uint32_t items_a_block) { return (items + items_a_block - 1) / items_a_block; }

bool all_f32(const ggml_tensor * op, int sources) {
    bool yes = op->type == GGML_TYPE_F32;
    for (int i = 0; i < sources; i++) {
        yes = yes && op->src[i]->type == GGML_TYPE_F32;
    }
    return yes;
}

const char * silu_refusal(const device_caps &, const ggml_tensor * op) {
    if (!all_f32(op, 2)) {
        return "not f32";
    }
    return pointwise_refusal(pointwise_operand(op), {pointwise_operand(op->src[0]), pointwise_operand(op->src[1])});
}

void plan_silu(planner & plan, const ggml_tensor * op) {
    plan_pointwise(plan, "backward", "silu_back_f32", pointwise_operand(op), {pointwise_operand(op->src[0]), pointwise_operand(op->src[1])});
}

const char * rows_refusal(const device_caps & caps, const ggml_tensor * op) {
    if (caps.wave_size != 32) {
        return "wave size";
    }
    if (!all_f32(op, 2)) {
        return "not f32";
    }
    if (!ggml_are_same_shape(op, op->src[0]) || !ggml_are_same_shape(op, op->src[1])) {
        return "different shapes";
    }
    if (op->nb[0] != sizeof(float) || op->src[0]->nb[0] != sizeof(float) || op->src[1]->nb[0] != sizeof(float)) {
        return "rows not contiguous";
    }
    return op->ne[0] >= 1 << 30 || ggml_nrows(op) >= limit ? "2^30 elements a row or 2^31 rows or more" : nullptr;
}

const char * soft_max_refusal(const device_caps & caps, const ggml_tensor * op) {
    float params[2];  // scale, max_bias
    std::memcpy(params, op->op_params, sizeof(params));
    return params[1] != 0.0f ? "ALiBi" : rows_refusal(caps, op);
}

// Both ops have their parameter (eps, scale) in front.
void plan_rows(planner & plan, const ggml_tensor * op, const char * kernel) {
    row_back_args args = {};
    args.dst = op->data;
    args.gradient = op->src[0]->data;
    args.forward = op->src[1]->data;
    args.row = uint32_t(op->ne[0]);
    args.rows = uint32_t(ggml_nrows(op));
    args.ne1 = make_divisor(uint32_t(op->ne[1]));
    args.ne2 = make_divisor(uint32_t(op->ne[2]));
    for (int i = 0; i < 3; i++) {
        args.dst_stride[i] = op->nb[i + 1];
        args.gradient_stride[i] = op->src[0]->nb[i + 1];
        args.forward_stride[i] = op->src[1]->nb[i + 1];
    }
    std::memcpy(&args.param, op->op_params, sizeof(args.param));
    plan.launch("backward", kernel, {blocks_for(args.rows, backward_block / 32)}, {backward_block}, args);
}

const char * repeat_refusal(const device_caps &, const ggml_tensor * op) {
    if (!all_f32(op, 1) || !ggml_is_contiguous(op)) {
        return "not f32, or result not contiguous";
    }
    return ggml_nelements(op) >= limit || ggml_nelements(op->src[0]) >= limit ? "2^31 elements or more" : nullptr;
}

void plan_repeat(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    repeat_back_args args = {};
    args.dst = static_cast<float *>(op->data);
    args.src = src->data;
    args.count = uint32_t(ggml_nelements(op));
    for (int i = 0; i < 4; i++) {
        if (i < 3) {
            args.size[i] = make_divisor(uint32_t(op->ne[i]));
        }
        args.repeats[i] = uint32_t(src->ne[i] / op->ne[i]);
        args.step[i] = src->nb[i];
        args.repeat_step[i] = src->nb[i] * std::size_t(op->ne[i]);
    }
    plan.launch("backward", "repeat_back", {blocks_for(args.count, backward_block)}, {backward_block}, args);
}

const char * get_rows_refusal(const device_caps &, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    const ggml_tensor * index = op->src[1];
    if ((src->type != GGML_TYPE_F32 && src->type != GGML_TYPE_F16) || op->type != GGML_TYPE_F32) {
        return "gradient neither f32 nor f16, or result not f32";
    }
    if (src->nb[0] != ggml_type_size(src->type) || !ggml_is_contiguous(op)) {
        return "not contiguous";
    }
    if (index->type != GGML_TYPE_I32 || !ggml_is_contiguous(index) || ggml_nelements(index) > src->ne[1]) {
        return "index not contiguous i32, or longer than the gradient";
    }
    return ggml_nelements(op) >= limit || ggml_nelements(src) >= limit ? "2^31 elements or more" : nullptr;
}

void plan_get_rows(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    get_rows_back_args args = {};
    args.dst = static_cast<float *>(op->data);
    args.src = src->data;
    args.index = static_cast<const int32_t *>(op->src[1]->data);
    args.count = uint32_t(ggml_nelements(op));
    args.rows = uint32_t(ggml_nelements(op->src[1]));
    args.row = make_divisor(uint32_t(op->ne[0]));
    args.src_stride = src->nb[1];
    plan.launch("backward", src->type == GGML_TYPE_F32 ? "get_rows_back_f32" : "get_rows_back_f16",
                {blocks_for(args.count, backward_block)}, {backward_block}, args);
}

}  // namespace

extern const op_entry silu_back_op, rms_norm_back_op, soft_max_back_op, repeat_back_op, get_rows_back_op;
const op_entry silu_back_op = {GGML_OP_SILU_BACK, silu_refusal, plan_silu};
const op_entry rms_norm_back_op = {GGML_OP_RMS_NORM_BACK, rows_refusal,
                                   [](planner & plan, const ggml_tensor * op) { plan_rows(plan, op, "rms_norm_back"); }};
const op_entry soft_max_back_op = {GGML_OP_SOFT_MAX_BACK, soft_max_refusal,
                                   [](planner & plan, const ggml_tensor * op) { plan_rows(plan, op, "soft_max_back"); }};
const op_entry repeat_back_op = {GGML_OP_REPEAT_BACK, repeat_refusal, plan_repeat};
const op_entry get_rows_back_op = {GGML_OP_GET_ROWS_BACK, get_rows_refusal, plan_get_rows};

}  // namespace strata
