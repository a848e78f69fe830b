// ARANGE, TIMESTEP_EMBEDDING: f32.
#include "strata/args/generate.h"

#include <cmath>

#include "ops/op.h"

namespace strata {

namespace {

const char * arange_refusal(const device_caps &, const ggml_tensor * op) {
    if (op->type != GGML_TYPE_F32 || !ggml_is_contiguous(op)) {
        return "not contiguous f32";
    }
    return ggml_nelements(op) >= int64_t(1) << 31 ? "2^31 elements or more" : nullptr;
}

void plan_arange(planner & plan, const ggml_tensor * op) {
    float params[3];  // start, stop, step
    std::memcpy(params, op->op_params, sizeof(params));
    const arange_args args = {op->data, uint32_t(ggml_nelements(op)), params[0], params[2]};
    plan.launch("generate", "arange", {(args.count + generate_block - 1) / generate_block}, {generate_block}, args);
}

const char * timestep_refusal(const device_caps &, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    if (op->type != GGML_TYPE_F32 || src->type != GGML_TYPE_F32) {
        return "not f32";
    }
    if (op->nb[0] != sizeof(float)) {
        return "rows not contiguous";
    }
    if (op->op_params[0] != op->ne[0] || op->ne[0] >= 1 << 24 || op->ne[1] != src->ne[0] || op->ne[1] > 65535 ||
        ggml_nelements(src) != src->ne[0]) {
        return "shape";
    }
    return nullptr;
}

void plan_timestep(planner & plan, const ggml_tensor * op) {
    timestep_args args = {};
    args.dst = op->data;
    args.src = op->src[0]->data;
    args.dst_stride = op->nb[1];
    args.src_stride = op->src[0]->nb[0];
    args.dim = uint32_t(op->ne[0]);
    args.half = args.dim / 2;
    args.exponent = -std::log(float(op->op_params[1]));
    const uint32_t items = (args.dim + 1) / 2;
    plan.launch("generate", "timestep_embedding", {(items + generate_block - 1) / generate_block, uint32_t(op->ne[1])}, {generate_block}, args);
}

}  // namespace

extern const op_entry arange_op, timestep_embedding_op;
const op_entry arange_op = {GGML_OP_ARANGE, arange_refusal, plan_arange};
const op_entry timestep_embedding_op = {GGML_OP_TIMESTEP_EMBEDDING, timestep_refusal, plan_timestep};

}  // namespace strata
