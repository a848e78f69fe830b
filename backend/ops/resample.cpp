// POOL_1D, POOL_2D (maximum, average; f32, f16) and UPSCALE (nearest, bilinear, bicubic, antialiased; f32): any strides of the source.
#include <algorithm>

#include "ops/convolution.h"
#include "ops/pointwise.h"

namespace strata {

namespace {

const char * shape_refusal(const ggml_tensor * op) {
    if (op->type != GGML_TYPE_F32 || !ggml_is_contiguous(op)) {
        return "result not contiguous f32";
    }
    if (ggml_is_empty(op->src[0])) {
        return "empty operand";
    }
    return ggml_nelements(op) >= conv_limit || ggml_nelements(op->src[0]) >= conv_limit ? "2^31 elements or more" : nullptr;
}

const char * pool_refusal(const device_caps &, const ggml_tensor * op) {
    const ggml_type type = op->src[0]->type;
    if (type != GGML_TYPE_F32 && type != GGML_TYPE_F16) {
        return "operand neither f32 nor f16";
    }
    if (op->op_params[0] != GGML_OP_POOL_MAX && op->op_params[0] != GGML_OP_POOL_AVG) {
        return "no kernel for this pooling";
    }
    return shape_refusal(op);
}

// `average`: what an average is taken of.
void plan_pool(planner & plan, const ggml_tensor * op, const window & across, const window & down, pool_kind average) {
    const ggml_tensor * src = op->src[0];
    pool_args args = {};
    args.dst = static_cast<float *>(op->data);
    args.src = src->data;
    args.count = uint32_t(ggml_nelements(op));
    args.kind = op->op_params[0] == GGML_OP_POOL_MAX ? pool_max : average;
    args.windows[0] = across;
    args.windows[1] = down;
    args.out[0] = make_divisor(uint32_t(op->ne[0]));
    args.out[1] = make_divisor(uint32_t(op->ne[1]));
    args.channels = make_divisor(uint32_t(op->ne[2]));
    for (int i = 0; i < 4; i++) {
        args.src_step[i] = src->nb[i];
    }
    plan.launch("resample", (std::string("pool_") + float_type_name(src->type)).c_str(), {conv_blocks(args.count)}, {conv_block}, args);
}

void plan_pool_1d(planner & plan, const ggml_tensor * op) {
    const int32_t * p = op->op_params;  // kind, extent, stride, pad
    const ggml_tensor * src = op->src[0];
    plan_pool(plan, op, {uint32_t(src->ne[0]), uint32_t(p[1]), p[2], p[3], 1}, {uint32_t(src->ne[1]), 1, 1, 0, 1}, pool_average_inside);
}

void plan_pool_2d(planner & plan, const ggml_tensor * op) {
    const int32_t * p = op->op_params;  // kind, extents, strides, pads
    const ggml_tensor * src = op->src[0];
    plan_pool(plan, op, {uint32_t(src->ne[0]), uint32_t(p[1]), p[3], p[5], 1}, {uint32_t(src->ne[1]), uint32_t(p[2]), p[4], p[6], 1},
              pool_average);
}

const char * upscale_refusal(const device_caps &, const ggml_tensor * op) {
    if (op->src[0]->type != GGML_TYPE_F32) {
        return "operand not f32";
    }
    const int32_t mode = op->op_params[0] & 0xff;
    if (mode != GGML_SCALE_MODE_NEAREST && mode != GGML_SCALE_MODE_BILINEAR && mode != GGML_SCALE_MODE_BICUBIC) {
        return "no kernel for this mode";
    }
    if (std::any_of(op->ne, op->ne + 4, [](int64_t n) { return n >= 1 << 24; }) ||
        std::any_of(op->src[0]->ne, op->src[0]->ne + 4, [](int64_t n) { return n >= 1 << 24; })) {
        return "2^24 pixels a line or more";
    }
    return shape_refusal(op);
}

void plan_upscale(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    const int32_t flags = op->op_params[0], mode = flags & 0xff;
    upscale_args args = {};
    args.dst = static_cast<float *>(op->data);
    args.src = static_cast<const float *>(src->data);
    args.count = uint32_t(ggml_nelements(op));
    args.kind = mode == GGML_SCALE_MODE_NEAREST ? upscale_nearest
              : mode == GGML_SCALE_MODE_BICUBIC ? upscale_bicubic
              : flags & GGML_SCALE_FLAG_ANTIALIAS ? upscale_antialias
                                                  : upscale_bilinear;
    args.offset = flags & GGML_SCALE_FLAG_ALIGN_CORNERS ? 0.0f : 0.5f;
    for (int i = 0; i < 4; i++) {
        args.size[i] = uint32_t(src->ne[i]);
        args.src_step[i] = src->nb[i];
        args.scale[i] = float(op->ne[i]) / float(src->ne[i]);
        if ((flags & GGML_SCALE_FLAG_ALIGN_CORNERS) && i < 2 && op->ne[i] > 1 && src->ne[i] > 1) {
            args.scale[i] = float(op->ne[i] - 1) / float(src->ne[i] - 1);
        }
        if (i < 3) {
            args.out[i] = make_divisor(uint32_t(op->ne[i]));
        }
    }
    plan.launch("resample", "upscale", {conv_blocks(args.count)}, {conv_block}, args);
}

}  // namespace

extern const op_entry pool_1d_op, pool_2d_op, upscale_op;
const op_entry pool_1d_op = {GGML_OP_POOL_1D, pool_refusal, plan_pool_1d};
const op_entry pool_2d_op = {GGML_OP_POOL_2D, pool_refusal, plan_pool_2d};
const op_entry upscale_op = {GGML_OP_UPSCALE, upscale_refusal, plan_upscale};

}  // namespace strata
