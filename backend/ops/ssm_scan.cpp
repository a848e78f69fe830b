// SSM_SCAN: f32; states of up to 256 numbers; Mamba-2 (one decay a head; the states of the last K tokens) and Mamba-1 (a decay each).
#include "ops/recurrence.h"

namespace strata {

namespace {

bool decay_each(const ggml_tensor * op) { return op->src[3]->ne[0] != 1; }

const char * refusal(const device_caps &, const ggml_tensor * op) {
    const ggml_tensor * state = op->src[0];
    const ggml_tensor * x = op->src[1];
    const ggml_tensor * b = op->src[4];
    for (int i : {0, 1, 2, 3, 4, 5}) {
        const int token_dimension[] = {0, 2, 1, 0, 2, 2};
        if (const char * reason = recurrence_operand_refusal(op->src[i], token_dimension[i])) {
            return reason;
        }
    }
    if (b->ne[1] < 1 || x->ne[1] % b->ne[1]) {
        return "heads not a multiple of groups";
    }
    return recurrence_refusal(state->ne[0], 256, x->ne[0] * x->ne[1] / b->ne[1], b->ne[1], x->ne[3]);
}

void plan_ssm_scan(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * state = op->src[0];
    const ggml_tensor * x = op->src[1];
    const ggml_tensor * dt = op->src[2];
    const ggml_tensor * a = op->src[3];
    const uint64_t dim = uint64_t(x->ne[0]), heads = uint64_t(x->ne[1]), tokens = uint64_t(x->ne[2]), sequences = uint64_t(x->ne[3]);
    const uint64_t groups = uint64_t(op->src[4]->ne[1]), group_heads = heads / groups, columns = group_heads * dim;
    const uint64_t length = uint64_t(state->ne[0]);

    recurrence_args args = {};
    for (int i = 0; i < 2; i++) {
        const ggml_tensor * t = op->src[4 + i];
        args.rows[i] = {{t->data, t->nb[1], t->nb[2], t->nb[3]}, make_divisor(uint32_t(groups)), make_divisor(1)};
    }
    args.column = {x->data, columns * sizeof(float), x->nb[2], x->nb[3]};
    args.scalars[0] = {dt->data, group_heads * sizeof(float), dt->nb[1], dt->nb[2]};
    args.constants = {a->data, group_heads * a->nb[1], 0, 0};
    args.out = {op->data, columns * sizeof(float), heads * dim * sizeof(float), heads * dim * tokens * sizeof(float)};

    args.state = state->data;
    args.sequence_ids = static_cast<const int32_t *>(op->src[6]->data);
    args.new_state = static_cast<float *>(op->data) + heads * dim * tokens * sequences;
    args.column_stride = length * sizeof(float);
    args.element_stride = sizeof(float);
    args.head_stride = columns * args.column_stride;
    args.state_sequence_stride = state->nb[3];
    args.new_sequence_stride = heads * dim * args.column_stride;
    args.snapshot_stride = args.new_sequence_stride * sequences;
    args.length = uint32_t(length);
    args.columns = uint32_t(columns);
    args.tokens = uint32_t(tokens);
    args.snapshots = uint32_t(op->op_params[0]);
    args.columns_a_scalar = make_divisor(uint32_t(dim));
    args.scale = 1.0f;
    if (!decay_each(op)) {
        launch_recurrence(plan, "ssm_scan", "ssm_scan", {32, 64, 128, 256}, args, int64_t(groups), int64_t(sequences));
    } else if (length <= 16) {
        launch_recurrence(plan, "ssm_scan", "ssm_scan_each", {16}, args, int64_t(groups), int64_t(sequences), 4);
    } else {
        launch_recurrence(plan, "ssm_scan", "ssm_scan_each", {128, 256}, args, int64_t(groups), int64_t(sequences));
    }
}

}  // namespace

extern const op_entry ssm_scan_op;
const op_entry ssm_scan_op = {GGML_OP_SSM_SCAN, refusal, plan_ssm_scan};

}  // namespace strata
