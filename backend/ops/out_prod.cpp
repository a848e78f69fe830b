// OUT_PROD: the sum of outer products. f32 operands, the second of any strides; others with contiguous rows are widened to f32 first.
#include "ops/pointwise.h"
#include "ops/rows.h"
#include "strata/args/backward.h"

namespace strata {

namespace {

constexpr int64_t limit = int64_t(1) << 31;

bool is_wide(const ggml_tensor * t) { return t->type == GGML_TYPE_F32; }

const char * refusal(const device_caps &, const ggml_tensor * op) {
    if (op->type != GGML_TYPE_F32 || !ggml_is_contiguous(op)) {
        return "result not contiguous f32";
    }
    for (int i = 0; i < 2; i++) {
        if (!is_wide(op->src[i])) {
            const ggml_tensor wide = contiguous_f32(op->src[i]);
            if (const char * reason = gather_refusal(&wide, op->src[i])) {
                return reason;
            }
        }
        if (ggml_nelements(op->src[i]) >= limit) {
            return "2^31 elements or more";
        }
    }
    if (op->src[0]->nb[0] != ggml_type_size(op->src[0]->type)) {
        return "rows of the first operand not contiguous";
    }
    if (ggml_nelements(op) >= limit || op->ne[1] > int64_t(out_prod_columns) * 65535 || op->ne[2] * op->ne[3] > 65535) {
        return "size";
    }
    return nullptr;
}

// The operand, or a copy of it as f32.
ggml_tensor widen(planner & plan, const ggml_tensor * t) {
    if (is_wide(t) || ggml_is_empty(t)) {
        return *t;
    }
    ggml_tensor wide = contiguous_f32(t);
    wide.data = plan.scratch(ggml_nbytes(&wide));
    plan_gather(plan, &wide, t, nullptr);
    return wide;
}

void plan_out_prod(planner & plan, const ggml_tensor * op) {
    const ggml_tensor a = widen(plan, op->src[0]), b = widen(plan, op->src[1]);
    out_prod_args args = {};
    args.dst = static_cast<float *>(op->data);
    args.a = static_cast<const float *>(a.data);
    args.b = static_cast<const float *>(b.data);
    args.m = uint32_t(op->ne[0]);
    args.n = uint32_t(op->ne[1]);
    args.k = uint32_t(a.ne[1]);
    args.ne2 = make_divisor(uint32_t(op->ne[2]));
    args.ratio2 = make_divisor(uint32_t(op->ne[2] / a.ne[2]));
    args.ratio3 = make_divisor(uint32_t(op->ne[3] / a.ne[3]));
    args.a_step = a.nb[1];
    for (int i = 0; i < 2; i++) {
        args.b_step[i] = b.nb[i];
        args.a_stride[i] = a.nb[i + 2];
        args.b_stride[i] = b.nb[i + 2];
    }
    plan.launch("out_prod", "out_prod_f32", {(args.m + out_prod_block - 1) / out_prod_block, (args.n + out_prod_columns - 1) / out_prod_columns,
                uint32_t(op->ne[2] * op->ne[3])}, {out_prod_block}, args);
}

}  // namespace

extern const op_entry out_prod_op;
const op_entry out_prod_op = {GGML_OP_OUT_PROD, refusal, plan_out_prod};

}  // namespace strata
