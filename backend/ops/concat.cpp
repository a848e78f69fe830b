// CONCAT: two tensors of one type, one behind the other along a dimension; quantized ones with contiguous rows. One launch.
// REPEAT: a tensor repeated along all its dimensions.
#include "ops/bit_copy.h"

namespace strata {

namespace {

// The part of the result that a source fills.
ggml_tensor part_of(const ggml_tensor * op, int source) {
    ggml_tensor part = *op;
    const int dim = op->op_params[0];
    part.ne[dim] = op->src[source]->ne[dim];
    if (source == 1) {
        const int64_t before = op->src[0]->ne[dim] / (dim == 0 ? ggml_blck_size(op->type) : 1);
        part.data = static_cast<char *>(part.data) + std::size_t(before) * part.nb[dim];
    }
    return part;
}

std::optional<bit_copy> copy_of(const ggml_tensor * op, int source) {
    const ggml_tensor part = part_of(op, source);
    return find_bit_copy(&part, op->src[source]);
}

const char * concat_refusal(const device_caps &, const ggml_tensor * op) {
    for (int i = 0; i < 2; i++) {
        const ggml_tensor * source = op->src[i];
        if (source->type != op->type) {
            return "different types";
        }
        if (source->ne[0] % ggml_blck_size(op->type)) {
            return "rows that end within a block";
        }
        if (ggml_nelements(source) > 0) {
            if (const char * reason = bit_copy_refusal(copy_of(op, i))) {
                return reason;
            }
        }
    }
    return nullptr;
}

void plan_concat(planner & plan, const ggml_tensor * op) {
    if (ggml_is_empty(op->src[0])) {
        plan_bit_copy(plan, *copy_of(op, 1));
        return;
    }
    const auto first = copy_of(op, 0);
    if (ggml_is_empty(op->src[1])) {
        plan_bit_copy(plan, *first);
        return;
    }
    const auto second = copy_of(op, 1);
    if (first->dst.size == second->dst.size) {
        plan_bit_copies(plan, *first, *second);
    } else {
        plan_bit_copy(plan, *first);
        plan_bit_copy(plan, *second);
    }
}

const char * repeat_refusal(const device_caps &, const ggml_tensor * op) {
    if (ggml_is_empty(op)) {
        return nullptr;
    }
    if (ggml_blck_size(op->type) != 1) {
        return "quantized";
    }
    return bit_copy_refusal(find_bit_repeat(op, op->src[0]));
}

void plan_repeat(planner & plan, const ggml_tensor * op) {
    plan_bit_copy(plan, *find_bit_repeat(op, op->src[0]));
}

}  // namespace

extern const op_entry concat_op, repeat_op;
const op_entry concat_op = {GGML_OP_CONCAT, concat_refusal, plan_concat};
const op_entry repeat_op = {GGML_OP_REPEAT, repeat_refusal, plan_repeat};

}  // namespace strata
