// RWKV_WKV6, RWKV_WKV7, GATED_LINEAR_ATTN: f32, contiguous operands, heads of up to 128 elements.
#include "ops/recurrence.h"

namespace strata {

namespace {

// Which sources of an op are what; those not named are the vectors, in the order of the kernel.
struct form {
    const char * kernel;
    int value;
    int constants;        // source of the constant vector, or -1
    int state;
    bool scattered;       // a column's elements lie apart
};

form form_of(const ggml_tensor * op) {
    switch (op->op) {
        case GGML_OP_RWKV_WKV6: return {"rwkv6", 1, 3, 5, true};
        case GGML_OP_RWKV_WKV7: return {"rwkv7", 3, -1, 6, false};
        default: return {"gated_linear", 1, -1, 4, true};
    }
}

const char * refusal(const device_caps &, const ggml_tensor * op) {
    const form f = form_of(op);
    for (int i = 0; i <= f.state; i++) {
        if (const char * reason = recurrence_operand_refusal(op->src[i], i == f.constants || i == f.state ? 0 : 2)) {
            return reason;
        }
    }
    const ggml_tensor * value = op->src[f.value];
    const int64_t sequences = op->src[f.state]->ne[1];
    if (sequences < 1 || value->ne[2] % sequences) {
        return "tokens not a multiple of sequences";
    }
    return recurrence_refusal(value->ne[0], 128, value->ne[0], value->ne[1], sequences);
}

void plan_linear_attention(planner & plan, const ggml_tensor * op) {
    const form f = form_of(op);
    const ggml_tensor * value = op->src[f.value];
    const ggml_tensor * state = op->src[f.state];
    const uint64_t size = uint64_t(value->ne[0]), heads = uint64_t(value->ne[1]), sequences = uint64_t(state->ne[1]);
    const uint64_t tokens = uint64_t(value->ne[2]) / sequences;  // of a sequence
    const auto tensor = [&](void * data) {
        return recurrence_tensor{data, size * sizeof(float), size * heads * sizeof(float), size * heads * tokens * sizeof(float)};
    };

    recurrence_args args = {};
    int rows = 0;
    for (int i = 0; i < f.state; i++) {
        if (i != f.value && i != f.constants) {
            args.rows[rows++] = {tensor(op->src[i]->data), make_divisor(uint32_t(heads)), make_divisor(1)};
        }
    }
    args.column = tensor(value->data);
    args.out = tensor(op->data);
    if (f.constants >= 0) {
        args.constants = {op->src[f.constants]->data, size * sizeof(float), 0, 0};
    }

    const uint64_t number = sizeof(float), run = size * sizeof(float);
    args.state = state->data;
    args.new_state = static_cast<float *>(op->data) + size * heads * tokens * sequences;
    args.column_stride = f.scattered ? number : run;
    args.element_stride = f.scattered ? run : number;
    args.head_stride = size * run;
    args.state_sequence_stride = args.new_sequence_stride = heads * args.head_stride;
    args.length = args.columns = uint32_t(size);
    args.tokens = uint32_t(tokens);
    args.snapshots = 1;
    args.columns_a_scalar = make_divisor(1);
    args.scale = 1.0f;
    if (op->op == GGML_OP_GATED_LINEAR_ATTN) {
        std::memcpy(&args.scale, op->op_params, sizeof(float));
    }
    launch_recurrence(plan, "linear_attention", f.kernel, {64, 128}, args, value->ne[1], int64_t(sequences));
}

}  // namespace

extern const op_entry rwkv_wkv6_op, rwkv_wkv7_op, gated_linear_attn_op;
const op_entry rwkv_wkv6_op = {GGML_OP_RWKV_WKV6, refusal, plan_linear_attention};
const op_entry rwkv_wkv7_op = {GGML_OP_RWKV_WKV7, refusal, plan_linear_attention};
const op_entry gated_linear_attn_op = {GGML_OP_GATED_LINEAR_ATTN, refusal, plan_linear_attention};

}  // namespace strata
