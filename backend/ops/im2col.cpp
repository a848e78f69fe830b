// IM2COL (one and two dimensions), IM2COL_3D: f32 to f32 or f16, f16 to f16; any strides of the source.
// COL2IM_1D: f32, f16, bf16; contiguous.
#include "ops/convolution.h"
#include "ops/pointwise.h"

namespace strata {

namespace {

// What is the same in all forms; the caller has filled in windows and strides.
void plan_im2col(planner & plan, const ggml_tensor * op, im2col_args & args, int64_t channels, const int64_t (&out)[3]) {
    args.dst = op->data;
    args.src = op->src[1]->data;
    args.count = uint32_t(ggml_nelements(op));
    args.channels = make_divisor(uint32_t(channels));
    for (int i = 0; i < 3; i++) {
        args.window_size[i] = make_divisor(args.windows[i].extent);
        args.out[i] = make_divisor(uint32_t(out[i]));
    }
    const std::string kernel = std::string("im2col_") + float_type_name(op->src[1]->type) + "_" + float_type_name(op->type);
    plan.launch("im2col", kernel.c_str(), {conv_blocks(args.count)}, {conv_block}, args);
}

const char * refusal(const device_caps &, const ggml_tensor * op) {
    const ggml_type from = op->src[1]->type, to = op->type;
    if (!(from == GGML_TYPE_F32 && (to == GGML_TYPE_F32 || to == GGML_TYPE_F16)) && !(from == GGML_TYPE_F16 && to == GGML_TYPE_F16)) {
        return "types other than f32 to f32 or f16, or f16 to f16";
    }
    if (!ggml_is_contiguous(op)) {
        return "result not contiguous";
    }
    if (ggml_nelements(op) >= conv_limit || ggml_nelements(op->src[1]) >= conv_limit) {
        return "2^31 elements or more";
    }
    return nullptr;
}

void plan_planes(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * kernel = op->src[0];
    const ggml_tensor * src = op->src[1];
    const int32_t * p = op->op_params;  // strides, pads, dilations of w and h; two dimensions
    const bool two = p[6] == 1;
    im2col_args args = {};
    args.windows[0] = {uint32_t(src->ne[0]), uint32_t(kernel->ne[0]), p[0], p[2], p[4]};
    args.windows[1] = two ? window{uint32_t(src->ne[1]), uint32_t(kernel->ne[1]), p[1], p[3], p[5]} : window{1, 1, 1, 0, 1};
    args.windows[2] = {1, 1, 1, 0, 1};
    args.src_step[0] = src->nb[0];
    args.src_step[1] = two ? src->nb[1] : 0;
    args.src_step[3] = src->nb[two ? 2 : 1];
    args.src_step[4] = src->nb[two ? 3 : 2];
    plan_im2col(plan, op, args, src->ne[two ? 2 : 1], {op->ne[1], two ? op->ne[2] : 1, 1});
}

void plan_volumes(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * kernel = op->src[0];
    const ggml_tensor * src = op->src[1];
    const int32_t * p = op->op_params;  // strides, pads, dilations of w, h and d; channels
    const int64_t channels = p[9], images = src->ne[3] / channels;
    im2col_args args = {};
    for (int i = 0; i < 3; i++) {
        args.windows[i] = {uint32_t(src->ne[i]), uint32_t(kernel->ne[i]), p[i], p[3 + i], p[6 + i]};
        args.src_step[i] = src->nb[i];
    }
    args.src_step[3] = src->nb[3];
    args.src_step[4] = src->nb[3] * std::size_t(channels);
    plan_im2col(plan, op, args, channels, {op->ne[1], op->ne[2], op->ne[3] / images});
}

const char * col2im_refusal(const device_caps &, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    if (!float_type_name(op->type) || src->type != op->type) {
        return "operand or result not f32, f16 or bf16, or of different types";
    }
    if (!ggml_is_contiguous(op) || !ggml_is_contiguous(src)) {
        return "not contiguous";
    }
    if (op->op_params[0] <= 0 || op->op_params[1] <= 0 || op->op_params[2] < 0 || ggml_is_empty(src)) {
        return "shape";
    }
    if (ggml_nelements(op) >= conv_limit || ggml_nelements(src) >= conv_limit) {
        return "2^31 elements or more";
    }
    return nullptr;
}

void plan_col2im(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    const int32_t * p = op->op_params;  // stride, channels, pad
    col2im_args args = {};
    args.dst = op->data;
    args.src = src->data;
    args.count = uint32_t(ggml_nelements(op));
    args.out = make_divisor(uint32_t(op->ne[0]));
    args.stride = make_divisor(uint32_t(p[0]));
    args.kernel = uint32_t(src->ne[0] / p[1]);
    args.columns = uint32_t(src->ne[1]);
    args.column_size = uint32_t(src->ne[0]);
    args.pad = uint32_t(p[2]);
    plan.launch("im2col", (std::string("col2im_") + float_type_name(op->type)).c_str(), {conv_blocks(args.count)}, {conv_block}, args);
}

}  // namespace

extern const op_entry im2col_op, im2col_3d_op, col2im_1d_op;
const op_entry im2col_op = {GGML_OP_IM2COL, refusal, plan_planes};
const op_entry im2col_3d_op = {GGML_OP_IM2COL_3D, refusal, plan_volumes};
const op_entry col2im_1d_op = {GGML_OP_COL2IM_1D, col2im_refusal, plan_col2im};

}  // namespace strata
