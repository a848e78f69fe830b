// WIN_PART, WIN_UNPART (f32), GET_REL_POS (f16, bf16): any strides of the source. ADD_REL_POS (f32, contiguous), as two sums with
// repeated operands.
#include "ops/pointwise.h"
#include "strata/args/windows.h"

namespace strata {

namespace {

constexpr int64_t limit = int64_t(1) << 31;

const char * size_refusal(const ggml_tensor * op) {
    if (!ggml_is_contiguous(op)) {
        return "result not contiguous";
    }
    return ggml_nelements(op) >= limit || ggml_nelements(op->src[0]) >= limit ? "2^31 elements or more" : nullptr;
}

const char * refusal(const device_caps &, const ggml_tensor * op) {
    if (op->type != GGML_TYPE_F32 || op->src[0]->type != GGML_TYPE_F32) {
        return "not f32";
    }
    return size_refusal(op);
}

void plan_windows(planner & plan, const ggml_tensor * op, const char * kernel, const ggml_tensor * image, int64_t side) {
    const ggml_tensor * src = op->src[0];
    windows_args args = {};
    args.dst = static_cast<float *>(op->data);
    args.src = src->data;
    args.count = uint32_t(ggml_nelements(op));
    args.channels = make_divisor(uint32_t(op->ne[0]));
    args.side = make_divisor(uint32_t(side));
    args.across = make_divisor(uint32_t((image->ne[1] + side - 1) / side));
    args.image_w = make_divisor(uint32_t(image->ne[1]));
    args.image_h = uint32_t(image->ne[2]);
    for (int i = 0; i < 4; i++) {
        args.src_step[i] = src->nb[i];
    }
    plan.launch("windows", kernel, {(args.count + windows_block - 1) / windows_block}, {windows_block}, args);
}

void plan_part(planner & plan, const ggml_tensor * op) { plan_windows(plan, op, "win_part", op->src[0], op->op_params[2]); }
void plan_unpart(planner & plan, const ggml_tensor * op) { plan_windows(plan, op, "win_unpart", op, op->op_params[0]); }

const char * get_refusal(const device_caps &, const ggml_tensor * op) {
    if (op->src[0]->type != op->type || ggml_type_size(op->type) != sizeof(uint16_t)) {
        return "different types, or elements of other than 2 bytes";
    }
    return size_refusal(op);
}

void plan_get(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    const uint32_t count = uint32_t(ggml_nelements(op));
    const rel_pos_args args = {static_cast<uint16_t *>(op->data), src->data, count, make_divisor(uint32_t(op->ne[0])),
                               make_divisor(uint32_t(op->ne[1])), {src->nb[0], src->nb[1]}};
    plan.launch("windows", "get_rel_pos", {(count + windows_block - 1) / windows_block}, {windows_block}, args);
}

// The result with keys as (w, h, queries), and the two operands as they are added to it.
struct rel_pos_sums {
    pointwise_operand dst, src, across, down;

    explicit rel_pos_sums(const ggml_tensor * op) : dst(op), src(op->src[0]), across(op->src[1]), down(op->src[2]) {
        const int64_t side = op->src[1]->ne[0], queries = ggml_nrows(op->src[1]);
        shape(dst, side, side, queries);
        shape(src, side, side, queries);
        shape(across, side, 1, queries);
        shape(down, 1, side, queries);
    }

private:
    static void shape(pointwise_operand & o, int64_t w, int64_t h, int64_t queries) {
        const int64_t ne[4] = {w, h, queries, 1};
        std::size_t nb = sizeof(float);
        for (int i = 0; i < 4; i++) {
            o.ne[i] = ne[i];
            o.nb[i] = nb;
            nb *= std::size_t(ne[i]);
        }
    }
};

const char * add_refusal(const device_caps &, const ggml_tensor * op) {
    for (const ggml_tensor * source : {op->src[0], op->src[1], op->src[2]}) {
        if (source->type != GGML_TYPE_F32 || !ggml_is_contiguous(source)) {
            return "not contiguous f32";
        }
    }
    if (op->type != GGML_TYPE_F32) {
        return "not f32";
    }
    if (const char * reason = size_refusal(op)) {
        return reason;
    }
    const rel_pos_sums s(op);
    return pointwise_refusal(s.dst, {s.src, s.across});
}

void plan_add(planner & plan, const ggml_tensor * op) {
    const rel_pos_sums s(op);
    plan_pointwise(plan, "binary", "add_f32_f32", s.dst, {s.src, s.down});
    plan_pointwise(plan, "binary", "add_f32_f32", s.dst, {s.dst, s.across});
}

}  // namespace

extern const op_entry win_part_op, win_unpart_op, get_rel_pos_op, add_rel_pos_op;
const op_entry win_part_op = {GGML_OP_WIN_PART, refusal, plan_part};
const op_entry win_unpart_op = {GGML_OP_WIN_UNPART, refusal, plan_unpart};
const op_entry get_rel_pos_op = {GGML_OP_GET_REL_POS, get_refusal, plan_get};
const op_entry add_rel_pos_op = {GGML_OP_ADD_REL_POS, add_refusal, plan_add};

}  // namespace strata
