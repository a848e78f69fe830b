// RMS_NORM: f32 rows of any length, contiguous each; in place.
#include "strata/args/norm.h"

#include "ops/op.h"

namespace strata {

static const char * refusal(const device_caps &, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    if (op->type != GGML_TYPE_F32 || src->type != GGML_TYPE_F32) {
        return "operand or result not f32";
    }
    if (op->nb[0] != sizeof(float) || src->nb[0] != sizeof(float)) {
        return "rows not contiguous";
    }
    if (op->ne[0] >= int64_t(1) << 30 || ggml_nrows(op) >= int64_t(1) << 24) {
        return "rows of 2^30 elements or 2^24 rows or more";
    }
    return nullptr;
}

static void plan_rms_norm(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    norm_args args = {};
    args.dst = op->data;
    args.src = src->data;
    args.row = uint32_t(op->ne[0]);
    args.rows = uint32_t(ggml_nrows(op));
    args.ne1 = make_divisor(uint32_t(op->ne[1]));
    args.ne2 = make_divisor(uint32_t(op->ne[2]));
    for (int i = 0; i < 3; i++) {
        args.dst_stride[i] = op->nb[i + 1];
        args.src_stride[i] = src->nb[i + 1];
    }
    std::memcpy(&args.eps, op->op_params, sizeof(float));

    const bool fours = args.row % 4 == 0;
    if (args.row <= norm_wave_row) {
        const uint32_t rows_a_block = norm_block / 32;
        const uint32_t blocks = (args.rows + rows_a_block - 1) / rows_a_block;
        plan.launch("norm", fours ? "rms_norm_wave4" : "rms_norm_wave", {blocks}, {norm_block}, args);
    } else {
        plan.launch("norm", fours ? "rms_norm_block4" : "rms_norm_block", {args.rows}, {norm_block}, args);
    }
}

extern const op_entry rms_norm_op;
const op_entry rms_norm_op = {GGML_OP_RMS_NORM, refusal, plan_rms_norm};

}  // namespace strata
