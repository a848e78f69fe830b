// CONV_2D, CONV_3D, CONV_2D_DW, CONV_TRANSPOSE_1D, CONV_TRANSPOSE_2D: f32 with weights of f32 or f16, any strides of both operands.
#include <algorithm>

#include "ops/convolution.h"
#include "ops/op.h"

namespace strata {

namespace {

const char * kernel_of(const ggml_tensor * op, const char * f32, const char * f16) {
    return op->src[0]->type == GGML_TYPE_F32 ? f32 : f16;
}

const char * types_refusal(const ggml_tensor * op) {
    const ggml_tensor * kernel = op->src[0];
    if (kernel->type != GGML_TYPE_F32 && kernel->type != GGML_TYPE_F16) {
        return "weights neither f32 nor f16";
    }
    if (op->src[1]->type != GGML_TYPE_F32 || op->type != GGML_TYPE_F32) {
        return "operand or result not f32";
    }
    if (ggml_nelements(op) >= conv_limit || ggml_nelements(op->src[1]) >= conv_limit || ggml_nelements(kernel) >= conv_limit) {
        return "2^31 elements or more";
    }
    if (ggml_is_empty(op->src[1])) {
        return "empty operand";
    }
    return nullptr;
}

const char * refusal(const device_caps & caps, const ggml_tensor * op) {
    if (caps.wave_size != 32) {
        return "wave size";
    }
    if (const char * reason = types_refusal(op)) {
        return reason;
    }
    const int64_t channels_out = op->op == GGML_OP_CONV_3D ? op->op_params[11] : op->ne[2];
    if (channels_out > int64_t(conv_channels) * 65535) {
        return "too many channels";
    }
    return ggml_is_contiguous(op) ? nullptr : "result not contiguous";
}

void plan_conv(planner & plan, const ggml_tensor * op, conv_args & args, const int64_t (&out)[3], int64_t images) {
    args.dst = static_cast<float *>(op->data);
    args.src = static_cast<const float *>(op->src[1]->data);
    args.kernel = op->src[0]->data;
    args.pixels = uint32_t(images);
    for (int i = 0; i < 3; i++) {
        args.out[i] = make_divisor(uint32_t(out[i]));
        args.pixels *= uint32_t(out[i]);
    }
    const uint32_t groups = (args.channels_out + conv_channels - 1) / conv_channels;
    plan.launch("conv", kernel_of(op, "conv_f32", "conv_f16"), {conv_blocks(args.pixels), groups}, {conv_block}, args);
}

void plan_conv_2d(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * kernel = op->src[0];
    const ggml_tensor * src = op->src[1];
    const int32_t * p = op->op_params;  // strides, pads, dilations of w and h
    conv_args args = {};
    for (int i = 0; i < 2; i++) {
        args.windows[i] = {uint32_t(src->ne[i]), uint32_t(kernel->ne[i]), p[i], p[2 + i], p[4 + i]};
        args.src_step[i] = src->nb[i];
        args.kernel_step[i] = kernel->nb[i];
        args.src_step[3 + i] = src->nb[2 + i];
        args.kernel_step[3 + i] = kernel->nb[2 + i];
    }
    args.windows[2] = {1, 1, 1, 0, 1};
    args.channels_in = uint32_t(src->ne[2]);
    args.channels_out = uint32_t(kernel->ne[3]);
    plan_conv(plan, op, args, {op->ne[0], op->ne[1], 1}, op->ne[3]);
}

void plan_conv_3d(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * kernel = op->src[0];
    const ggml_tensor * src = op->src[1];
    const int32_t * p = op->op_params;  // strides, pads, dilations of w, h and d; input channels, images, output channels
    conv_args args = {};
    for (int i = 0; i < 3; i++) {
        args.windows[i] = {uint32_t(src->ne[i]), uint32_t(kernel->ne[i]), p[i], p[3 + i], p[6 + i]};
        args.src_step[i] = src->nb[i];
        args.kernel_step[i] = kernel->nb[i];
    }
    args.channels_in = uint32_t(p[9]);
    args.channels_out = uint32_t(p[11]);
    args.src_step[3] = src->nb[3];
    args.src_step[4] = src->nb[3] * args.channels_in;
    args.kernel_step[3] = kernel->nb[3];
    args.kernel_step[4] = kernel->nb[3] * args.channels_in;
    plan_conv(plan, op, args, {op->ne[0], op->ne[1], op->ne[2]}, p[10]);
}

const char * dw_refusal(const device_caps &, const ggml_tensor * op) {
    if (const char * reason = types_refusal(op)) {
        return reason;
    }
    for (int i = 0; i < 4; i++) {
        if (op->nb[i] >= std::size_t(conv_limit) || op->src[1]->nb[i] >= std::size_t(conv_limit) || op->src[0]->nb[i] >= std::size_t(conv_limit)) {
            return "a stride of 2 GiB or more";
        }
    }
    return nullptr;
}

void plan_dw(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * kernel = op->src[0];
    const ggml_tensor * src = op->src[1];
    const int32_t * p = op->op_params;  // strides, pads, dilations of w and h
    conv_dw_args args = {};
    args.dst = static_cast<float *>(op->data);
    args.src = static_cast<const float *>(src->data);
    args.kernel = kernel->data;
    args.count = uint32_t(ggml_nelements(op));
    for (int i = 0; i < 2; i++) {
        args.windows[i] = {uint32_t(src->ne[i]), uint32_t(kernel->ne[i]), p[i], p[2 + i], p[4 + i]};
        args.src_step[i] = src->nb[i];
        args.kernel_step[i] = kernel->nb[i];
    }
    // The loops over the outputs in the order of memory, so that neighbouring work-items write neighbours.
    int order[4] = {0, 1, 2, 3};
    std::sort(order, order + 4, [op](int a, int b) { return op->nb[a] != op->nb[b] ? op->nb[a] < op->nb[b] : a < b; });
    for (int i = 0; i < 4; i++) {
        const int d = order[i];
        args.dims[i] = {make_divisor(uint32_t(op->ne[d])), uint32_t(op->nb[d]), d >= 2 ? uint32_t(src->nb[d]) : 0,
                        d == 2 ? uint32_t(kernel->nb[3]) : 0, d == 0 ? p[0] : 0, d == 1 ? p[1] : 0};
    }
    plan.launch("conv", kernel_of(op, "conv_dw_f32", "conv_dw_f16"), {conv_blocks(args.count)}, {conv_block}, args);
}

const char * transpose_refusal(const device_caps &, const ggml_tensor * op) {
    if (const char * reason = types_refusal(op)) {
        return reason;
    }
    if (op->op_params[0] <= 0) {
        return "stride";
    }
    return ggml_is_contiguous(op) ? nullptr : "result not contiguous";
}

void plan_transpose(planner & plan, const ggml_tensor * op, conv_transpose_args & args, int64_t lines, int64_t channels_out) {
    args.dst = static_cast<float *>(op->data);
    args.src = static_cast<const float *>(op->src[1]->data);
    args.kernel = op->src[0]->data;
    args.count = uint32_t(ggml_nelements(op));
    args.out[0] = make_divisor(uint32_t(op->ne[0]));
    args.out[1] = make_divisor(uint32_t(lines));
    args.channels_out = make_divisor(uint32_t(channels_out));
    args.stride = make_divisor(uint32_t(op->op_params[0]));
    plan.launch("conv", kernel_of(op, "conv_transpose_f32", "conv_transpose_f16"), {conv_blocks(args.count)}, {conv_block}, args);
}

// A line of height 1.
void plan_transpose_1d(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * kernel = op->src[0];  // w, output channels, input channels
    const ggml_tensor * src = op->src[1];     // w, channels
    conv_transpose_args args = {};
    args.size[0] = uint32_t(src->ne[0]);
    args.extent[0] = uint32_t(kernel->ne[0]);
    args.size[1] = args.extent[1] = 1;
    args.src_step[0] = src->nb[0];
    args.src_step[2] = src->nb[1];
    args.src_step[3] = src->nb[2];
    args.kernel_step[0] = kernel->nb[0];
    args.kernel_step[2] = kernel->nb[2];
    args.kernel_step[3] = kernel->nb[1];
    args.channels_in = uint32_t(src->ne[1]);
    plan_transpose(plan, op, args, 1, op->ne[1]);
}

void plan_transpose_2d(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * kernel = op->src[0];  // w, h, output channels, input channels
    const ggml_tensor * src = op->src[1];     // w, h, channels, images
    conv_transpose_args args = {};
    for (int i = 0; i < 2; i++) {
        args.size[i] = uint32_t(src->ne[i]);
        args.extent[i] = uint32_t(kernel->ne[i]);
        args.src_step[i] = src->nb[i];
        args.kernel_step[i] = kernel->nb[i];
    }
    args.src_step[2] = src->nb[2];
    args.src_step[3] = src->nb[3];
    args.kernel_step[2] = kernel->nb[3];
    args.kernel_step[3] = kernel->nb[2];
    args.channels_in = uint32_t(src->ne[2]);
    plan_transpose(plan, op, args, op->ne[1], op->ne[2]);
}

}  // namespace

extern const op_entry conv_2d_op, conv_3d_op, conv_2d_dw_op, conv_transpose_1d_op, conv_transpose_2d_op;
const op_entry conv_2d_op = {GGML_OP_CONV_2D, refusal, plan_conv_2d};
const op_entry conv_3d_op = {GGML_OP_CONV_3D, refusal, plan_conv_3d};
const op_entry conv_2d_dw_op = {GGML_OP_CONV_2D_DW, dw_refusal, plan_dw};
const op_entry conv_transpose_1d_op = {GGML_OP_CONV_TRANSPOSE_1D, transpose_refusal, plan_transpose_1d};
const op_entry conv_transpose_2d_op = {GGML_OP_CONV_TRANSPOSE_2D, transpose_refusal, plan_transpose_2d};

}  // namespace strata
