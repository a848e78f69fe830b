// RMS_NORM, NORM, L2_NORM: f32 rows of any length and strides; in place. GROUP_NORM: f32, groups of channels that are contiguous.
#include "strata/args/norm.h"

#include "ops/op.h"

namespace strata {

namespace {

constexpr int64_t max_row = int64_t(1) << 30;
constexpr int64_t max_rows = int64_t(1) << 24;

const char * type_refusal(const device_caps & caps, const ggml_tensor * op) {
    if (caps.wave_size != 32) {
        return "wave size";
    }
    return op->type != GGML_TYPE_F32 || op->src[0]->type != GGML_TYPE_F32 ? "operand or result not f32" : nullptr;
}

const char * size_refusal(int64_t row, int64_t rows) {
    return row >= max_row || rows >= max_rows ? "rows of 2^30 elements or 2^24 rows or more" : nullptr;
}

const char * refusal(const device_caps & caps, const ggml_tensor * op) {
    const char * reason = type_refusal(caps, op);
    return reason ? reason : size_refusal(op->ne[0], ggml_nrows(op));
}

bool contiguous_elements(const ggml_tensor * t) { return t->nb[0] == sizeof(float) || t->ne[0] == 1; }

void launch_norm(planner & plan, const norm_args & args) {
    const bool fours = args.row % 4 == 0;
    if (args.dst_step != sizeof(float) || args.src_step != sizeof(float)) {
        plan.launch("norm", "norm_any", {args.rows}, {norm_block}, args);
    } else if (args.row <= norm_wave_row) {
        const uint32_t rows_a_block = norm_block / 32;
        const uint32_t blocks = (args.rows + rows_a_block - 1) / rows_a_block;
        plan.launch("norm", fours ? "norm_wave4" : "norm_wave", {blocks}, {norm_block}, args);
    } else {
        plan.launch("norm", fours ? "norm_row4" : "norm_row", {args.rows}, {norm_block}, args);
    }
}

void plan_norm(planner & plan, const ggml_tensor * op, norm_kind kind) {
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
    args.dst_step = contiguous_elements(op) ? sizeof(float) : op->nb[0];
    args.src_step = contiguous_elements(src) ? sizeof(float) : src->nb[0];
    args.kind = kind;
    std::memcpy(&args.eps, op->op_params, sizeof(float));
    launch_norm(plan, args);
}

bool contiguous_channel(const ggml_tensor * t) {
    return t->nb[0] == sizeof(float) && t->nb[1] == t->nb[0] * std::size_t(t->ne[0]) && t->nb[2] == t->nb[1] * std::size_t(t->ne[1]);
}

const char * group_norm_refusal(const device_caps & caps, const ggml_tensor * op) {
    if (const char * reason = type_refusal(caps, op)) {
        return reason;
    }
    if (op->op_params[0] < 1) {
        return "no groups";
    }
    if (!contiguous_channel(op) || !contiguous_channel(op->src[0])) {
        return "channels not contiguous";
    }
    return size_refusal(op->ne[0] * op->ne[1] * op->ne[2], op->op_params[0] * op->ne[3]);
}

// A group is a row; the last group may be shorter than the others and is then a launch of its own.
void plan_group_norm(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    const int64_t groups = op->op_params[0];
    const int64_t channels = op->ne[2], channels_a_group = (channels + groups - 1) / groups;
    const int64_t full_groups = channels / channels_a_group;

    norm_args args = {};
    args.dst_stride[0] = op->nb[2] * std::size_t(channels_a_group);
    args.src_stride[0] = src->nb[2] * std::size_t(channels_a_group);
    args.dst_stride[1] = op->nb[3];
    args.src_stride[1] = src->nb[3];
    args.dst_step = args.src_step = sizeof(float);
    args.kind = norm_kind::mean;
    std::memcpy(&args.eps, op->op_params + 1, sizeof(float));

    const auto launch_groups = [&](int64_t begin, int64_t count, int64_t group_channels) {
        args.dst = static_cast<char *>(op->data) + std::size_t(begin) * args.dst_stride[0];
        args.src = static_cast<const char *>(src->data) + std::size_t(begin) * args.src_stride[0];
        args.row = uint32_t(op->ne[0] * op->ne[1] * group_channels);
        args.rows = uint32_t(count * op->ne[3]);
        args.ne1 = make_divisor(uint32_t(count));
        args.ne2 = make_divisor(uint32_t(op->ne[3]));
        launch_norm(plan, args);
    };
    launch_groups(0, full_groups, channels_a_group);
    if (channels % channels_a_group) {
        launch_groups(full_groups, 1, channels % channels_a_group);
    }
}

template <norm_kind Kind>
void plan_kind(planner & plan, const ggml_tensor * op) {
    plan_norm(plan, op, Kind);
}

}  // namespace

extern const op_entry rms_norm_op, norm_op, l2_norm_op, group_norm_op;
const op_entry rms_norm_op = {GGML_OP_RMS_NORM, refusal, plan_kind<norm_kind::rms>};
const op_entry norm_op = {GGML_OP_NORM, refusal, plan_kind<norm_kind::mean>};
const op_entry l2_norm_op = {GGML_OP_L2_NORM, refusal, plan_kind<norm_kind::l2>};
const op_entry group_norm_op = {GGML_OP_GROUP_NORM, group_norm_refusal, plan_group_norm};

}  // namespace strata
