// ACC, SET: a copy of the first operand, to a region of which the second is added (f32) or written (any type); without the copy if the
// result has taken the place of the first operand.
#include "ops/bit_copy.h"

namespace strata {

namespace {

// The region of a tensor of the result's layout that the second operand covers.
ggml_tensor region_of(const ggml_tensor * op, const ggml_tensor * whole) {
    ggml_tensor region = *op->src[1];
    region.type = op->type;
    region.nb[0] = ggml_type_size(op->type);
    for (int i = 1; i < 4; i++) {
        region.nb[i] = uint32_t(op->op_params[i - 1]);
    }
    region.data = static_cast<char *>(whole->data) + uint32_t(op->op_params[3]);
    return region;
}

const char * refusal(const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    const ggml_tensor * part = op->src[1];
    if (src->type != op->type || part->type != op->type) {
        return "different types";
    }
    if (!ggml_are_same_shape(src, op) || !ggml_is_contiguous(op) || !ggml_is_contiguous(src)) {
        return "first operand or result not contiguous";
    }
    if (ggml_blck_size(op->type) != 1) {
        return "quantized";
    }
    if (ggml_is_empty(part)) {
        return nullptr;
    }
    // Each element of the region is met once, and lies within the result.
    const ggml_tensor region = region_of(op, op);
    std::size_t extent = region.nb[0];
    for (int i = 0; i < 4; i++) {
        if (region.ne[i] > 1) {
            if (region.nb[i] < extent) {
                return "a region that overlaps itself";
            }
            extent += std::size_t(region.ne[i] - 1) * region.nb[i];
        }
    }
    if (uint32_t(op->op_params[3]) + extent > ggml_nbytes(op)) {
        return "a region beyond the result";
    }
    return nullptr;
}

void plan_rest(planner & plan, const ggml_tensor * op) {
    if (op->data != op->src[0]->data) {
        plan.copy(op->data, op->src[0]->data, ggml_nbytes(op));
    }
}

const char * acc_refusal(const device_caps &, const ggml_tensor * op) {
    if (op->type != GGML_TYPE_F32) {
        return "not f32";
    }
    if (const char * reason = refusal(op)) {
        return reason;
    }
    const ggml_tensor dst = region_of(op, op), src = region_of(op, op->src[0]);
    return pointwise_refusal(pointwise_operand(&dst), {pointwise_operand(&src), pointwise_operand(op->src[1])});
}

void plan_acc(planner & plan, const ggml_tensor * op) {
    plan_rest(plan, op);
    if (!ggml_is_empty(op->src[1])) {
        const ggml_tensor dst = region_of(op, op), src = region_of(op, op->src[0]);
        plan_pointwise(plan, "binary", "add_f32_f32", pointwise_operand(&dst), {pointwise_operand(&src), pointwise_operand(op->src[1])});
    }
}

const char * set_refusal(const device_caps &, const ggml_tensor * op) {
    if (const char * reason = refusal(op)) {
        return reason;
    }
    if (ggml_is_empty(op->src[1])) {
        return nullptr;
    }
    const ggml_tensor dst = region_of(op, op);
    return bit_copy_refusal(find_bit_copy(&dst, op->src[1]));
}

void plan_set(planner & plan, const ggml_tensor * op) {
    plan_rest(plan, op);
    if (!ggml_is_empty(op->src[1])) {
        const ggml_tensor dst = region_of(op, op);
        plan_bit_copy(plan, *find_bit_copy(&dst, op->src[1]));
    }
}

}  // namespace

extern const op_entry acc_op, set_op;
const op_entry acc_op = {GGML_OP_ACC, acc_refusal, plan_acc};
const op_entry set_op = {GGML_OP_SET, set_refusal, plan_set};

}  // namespace strata
