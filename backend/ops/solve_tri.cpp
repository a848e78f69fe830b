// SOLVE_TRI: f32, lower triangular matrices of up to 512 rows on the left, any number of columns.
#include <initializer_list>

#include "ops/op.h"
#include "strata/args/solve_tri.h"

namespace strata {

namespace {

const char * refusal(const device_caps & caps, const ggml_tensor * op) {
    if (caps.wave_size != 32) {
        return "wave size";
    }
    for (const ggml_tensor * t : {op, static_cast<const ggml_tensor *>(op->src[0]), static_cast<const ggml_tensor *>(op->src[1])}) {
        if (t->type != GGML_TYPE_F32) {
            return "operand or result not f32";
        }
        if (t->nb[0] != sizeof(float)) {
            return "rows not contiguous";
        }
    }
    if (op->ne[1] > solve_tri_rows) {
        return "more than 512 rows";
    }
    if (op->ne[0] >= int64_t(1) << 29 || op->ne[2] * op->ne[3] > 65535) {
        return "2^29 columns or 2^16 matrices or more";
    }
    return nullptr;
}

void plan_solve_tri(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * a = op->src[0];
    const ggml_tensor * b = op->src[1];
    solve_tri_args args = {};
    args.x = op->data;
    args.a = a->data;
    args.b = b->data;
    for (int i = 0; i < 3; i++) {
        args.x_stride[i] = op->nb[i + 1];
        args.a_stride[i] = a->nb[i + 1];
        args.b_stride[i] = b->nb[i + 1];
    }
    args.n = uint32_t(op->ne[1]);
    args.columns = uint32_t(op->ne[0]);
    args.channels = make_divisor(uint32_t(op->ne[2]));
    plan.launch("solve_tri", "solve_tri", {(args.columns + 31) / 32, uint32_t(op->ne[2] * op->ne[3])}, {32}, args, args.n * 32 * sizeof(float));
}

}  // namespace

extern const op_entry solve_tri_op;
const op_entry solve_tri_op = {GGML_OP_SOLVE_TRI, refusal, plan_solve_tri};

}  // namespace strata
