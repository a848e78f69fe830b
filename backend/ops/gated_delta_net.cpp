// GATED_DELTA_NET: f32; a decay a head or a decay an element (KDA); heads of up to 256 elements; any strides of q, k and v between heads,
// tokens and sequences; the states of the last K tokens.
#include "ops/gated_delta_net.h"

#include <cmath>

#include "ops/recurrence.h"

namespace strata {

namespace {

const char * refusal(const device_caps &, const ggml_tensor * op) {
    const ggml_tensor * q = op->src[0];
    const ggml_tensor * k = op->src[1];
    const ggml_tensor * v = op->src[2];
    for (int i = 0; i < 6; i++) {
        // gate, beta and state are contiguous
        if (const char * reason = recurrence_operand_refusal(op->src[i], i < 5 ? 2 : 0)) {
            return reason;
        }
    }
    if (q->ne[0] != v->ne[0] || k->ne[0] != v->ne[0]) {
        return "keys and values of different sizes";
    }
    if (q->ne[2] != v->ne[2] || k->ne[2] != v->ne[2] || v->ne[3] % q->ne[3] || v->ne[3] % k->ne[3]) {
        return "other tokens in queries or keys, or sequences not a multiple of theirs";
    }
    for (int i : {3, 4}) {
        if (op->src[i]->ne[1] != v->ne[1] || op->src[i]->ne[2] != v->ne[2] || op->src[i]->ne[3] != v->ne[3]) {
            return "gates of another shape";
        }
    }
    return recurrence_refusal(v->ne[0], 256, v->ne[0], v->ne[1], v->ne[3]);
}

recurrence_tensor tensor(const ggml_tensor * t) { return {t->data, t->nb[1], t->nb[2], t->nb[3]}; }

}  // namespace

void plan_gated_delta_net(planner & plan, const ggml_tensor * op, const delta_net_states & states) {
    const ggml_tensor * v = op->src[2];
    const ggml_tensor * gate = op->src[3];
    const ggml_tensor * state = op->src[5];
    const uint64_t size = uint64_t(v->ne[0]), heads = uint64_t(v->ne[1]), tokens = uint64_t(v->ne[2]);
    const bool kda = gate->ne[0] != 1;

    recurrence_args args = {};
    for (int i = 0; i < 2; i++) {
        const ggml_tensor * t = op->src[i];
        args.rows[i] = {tensor(t), make_divisor(uint32_t(t->ne[1])), make_divisor(uint32_t(v->ne[3] / t->ne[3]))};
    }
    args.rows[2] = {tensor(gate), make_divisor(uint32_t(heads)), make_divisor(1)};
    args.column = tensor(v);
    args.scalars[0] = tensor(gate);
    args.scalars[1] = tensor(op->src[4]);
    args.out = {op->data, size * sizeof(float), size * heads * sizeof(float), size * heads * tokens * sizeof(float)};

    args.state = states.from;
    args.sequence_ids = states.rows;
    args.new_state = states.to;
    args.column_stride = state->nb[1];
    args.element_stride = sizeof(float);
    args.head_stride = state->nb[2];
    args.state_sequence_stride = states.from_stride;
    args.new_sequence_stride = states.to_stride;
    args.snapshot_stride = states.snapshot_stride;
    args.length = args.columns = uint32_t(size);
    args.tokens = uint32_t(tokens);
    args.snapshots = uint32_t(op->op_params[0]);
    args.columns_a_scalar = make_divisor(1);
    args.scale = 1.0f / std::sqrt(float(size));
    launch_recurrence(plan, "gated_delta_net", kda ? "gated_delta_net_kda" : "gated_delta_net", {32, 64, 128, 256}, args, v->ne[1],
                      v->ne[3]);
}

/// The states are the last operand, and the end of the result.
static void plan_op(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * v = op->src[2];
    const ggml_tensor * state = op->src[5];
    const int64_t results = ggml_nelements(v);
    plan_gated_delta_net(plan, op, {state->data, nullptr, state->nb[3], static_cast<float *>(op->data) + results, state->nb[3],
                                    state->nb[3] * uint64_t(v->ne[3])});
}

extern const op_entry gated_delta_net_op;
const op_entry gated_delta_net_op = {GGML_OP_GATED_DELTA_NET, refusal, plan_op};

}  // namespace strata
