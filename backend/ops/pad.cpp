// PAD (zeros, or around as on a torus), PAD_REFLECT_1D, ROLL: types of 2 or 4 bytes, any strides of the source.
#include "ops/op.h"
#include "strata/args/pad.h"

namespace strata {

namespace {

const char * refusal(const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    const std::size_t size = ggml_type_size(op->type);
    if (op->type != src->type || ggml_blck_size(op->type) != 1 || (size != 2 && size != 4)) {
        return "different types, or elements of neither 2 nor 4 bytes";
    }
    if (!ggml_is_contiguous(op)) {
        return "result not contiguous";
    }
    if (ggml_nelements(op) >= int64_t(1) << 30 || ggml_nelements(src) >= int64_t(1) << 30) {
        return "2^30 elements or more";
    }
    for (std::size_t step : src->nb) {
        if (step >= std::size_t(1) << 32) {
            return "a stride of 4 GiB or more";
        }
    }
    return nullptr;
}

// `before` holds the elements in front of the source, one a dimension.
void plan_pad(planner & plan, const ggml_tensor * op, pad_kind kind, const int32_t (&before)[4]) {
    const ggml_tensor * src = op->src[0];
    pad_args args = {};
    args.dst = op->data;
    args.src = src->data;
    args.count = uint32_t(ggml_nelements(op));
    args.kind = kind;
    for (int i = 0; i < 4; i++) {
        const int32_t size = int32_t(src->ne[i]);
        const int32_t shift = kind == pad_around ? ((before[i] % size) + size) % size : before[i];
        args.dims[i] = {make_divisor(uint32_t(op->ne[i])), make_divisor(uint32_t(size)), uint32_t(src->nb[i]), shift};
    }
    plan.launch("pad", ggml_type_size(op->type) == 4 ? "pad_bits32" : "pad_bits16", {(args.count + pad_block - 1) / pad_block},
                {pad_block}, args);
}

const char * pad_refusal(const device_caps &, const ggml_tensor * op) {
    if (ggml_is_empty(op->src[0])) {
        return "empty source";
    }
    return refusal(op);
}

void plan_pad_op(planner & plan, const ggml_tensor * op) {
    const int32_t * p = op->op_params;  // before and behind for each dimension, around
    plan_pad(plan, op, p[8] ? pad_around : pad_zeros, {p[0], p[2], p[4], p[6]});
}

const char * reflect_refusal(const device_caps &, const ggml_tensor * op) {
    const int32_t * p = op->op_params;
    if (p[0] < 0 || p[1] < 0 || p[0] >= op->src[0]->ne[0] || p[1] >= op->src[0]->ne[0]) {
        return "more than there is to mirror";
    }
    return refusal(op);
}

void plan_reflect(planner & plan, const ggml_tensor * op) { plan_pad(plan, op, pad_mirror, {op->op_params[0], 0, 0, 0}); }

const char * roll_refusal(const device_caps &, const ggml_tensor * op) { return refusal(op); }

void plan_roll(planner & plan, const ggml_tensor * op) {
    const int32_t * p = op->op_params;
    plan_pad(plan, op, pad_around, {p[0], p[1], p[2], p[3]});
}

}  // namespace

extern const op_entry pad_op, pad_reflect_1d_op, roll_op;
const op_entry pad_op = {GGML_OP_PAD, pad_refusal, plan_pad_op};
const op_entry pad_reflect_1d_op = {GGML_OP_PAD_REFLECT_1D, reflect_refusal, plan_reflect};
const op_entry roll_op = {GGML_OP_ROLL, roll_refusal, plan_roll};

}  // namespace strata
