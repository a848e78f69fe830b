// CONT, CPY, DUP: copies in the order of the elements. Between equal types (of quantized ones contiguous rows),
// between f32, f16, bf16 and i32, from f32, f16 and bf16 to the quantized types that ggml's CPU code quantizes to, from quantized types to
// f32.
#include <algorithm>
#include <optional>

#include "ops/bit_copy.h"
#include "ops/rows.h"
#include "strata/args/transpose.h"

namespace strata {

namespace {

// Launches a transposing copy if src is contiguous along another loop than dst is, and both loops are long enough.
bool plan_transpose(planner & plan, const bit_copy & copy) {
    constexpr int64_t shortest = 8;
    const std::size_t size = copy.dst.size;
    const pointwise_loops & loops = copy.loops;
    std::size_t other = 0;
    for (std::size_t i = 1; i < loops.size(); i++) {
        if (loops[i].step[1] == size) {
            other = i;
        }
    }
    if ((size != 4 && size != 2) || loops[0].step[0] != size || other == 0 || loops[0].size < shortest || loops[other].size < shortest || loops.size() > 8) {
        return false;
    }
    transpose_args args = {};
    args.dst = const_cast<void *>(copy.dst.data);
    args.src = copy.src.data;
    args.n0 = uint32_t(loops[0].size);
    args.n1 = uint32_t(loops[other].size);
    args.src_step0 = uint32_t(loops[0].step[1]);
    args.dst_step1 = uint32_t(loops[other].step[0]);
    const uint32_t tiles0 = (args.n0 + transpose_tile - 1) / transpose_tile, tiles1 = (args.n1 + transpose_tile - 1) / transpose_tile;
    args.tiles0 = make_divisor(tiles0);
    args.tiles1 = make_divisor(tiles1);
    uint64_t blocks = uint64_t(tiles0) * tiles1;
    for (std::size_t i = 1; i < loops.size(); i++) {
        if (i != other) {
            const pointwise_loop & l = loops[i];
            args.outer[args.outer_count++] = {make_divisor(uint32_t(l.size)), uint32_t(l.step[0]), uint32_t(l.step[1]), 0};
            blocks *= uint64_t(l.size);
        }
    }
    if (blocks >= uint64_t(1) << 24) {
        return false;
    }
    plan.launch("copy", size == 4 ? "transpose_bits32" : "transpose_bits16", {uint32_t(blocks)}, {transpose_block}, args);
    return true;
}

// The kernel that converts elements, or nullptr.
const char * conversion(ggml_type dst, ggml_type src) {
    struct entry {
        ggml_type src, dst;
        const char * kernel;
    };
    static const entry entries[] = {
        {GGML_TYPE_F32, GGML_TYPE_F16, "copy_f32_f16"},   {GGML_TYPE_F32, GGML_TYPE_BF16, "copy_f32_bf16"},
        {GGML_TYPE_F32, GGML_TYPE_I32, "copy_f32_i32"},   {GGML_TYPE_F16, GGML_TYPE_F32, "copy_f16_f32"},
        {GGML_TYPE_F16, GGML_TYPE_BF16, "copy_f16_bf16"}, {GGML_TYPE_BF16, GGML_TYPE_F32, "copy_bf16_f32"},
        {GGML_TYPE_BF16, GGML_TYPE_F16, "copy_bf16_f16"}, {GGML_TYPE_I32, GGML_TYPE_F32, "copy_i32_f32"},
    };
    for (const entry & e : entries) {
        if (e.src == src && e.dst == dst) {
            return e.kernel;
        }
    }
    return nullptr;
}

// Copies in which one side is quantized go row by row; tensors of different sizes are taken as one row.
struct row_copy {
    ggml_tensor dst, src;
};

std::optional<row_copy> find_row_copy(const ggml_tensor * dst, const ggml_tensor * src) {
    row_copy c = {*dst, *src};
    if (!ggml_are_same_shape(dst, src)) {
        if (!ggml_is_contiguous(dst) || !ggml_is_contiguous(src)) {
            return std::nullopt;
        }
        for (ggml_tensor * t : {&c.dst, &c.src}) {
            t->ne[0] = ggml_nelements(t);
            t->ne[1] = t->ne[2] = t->ne[3] = 1;
        }
    }
    return c;
}

bool to_quantized(const ggml_tensor * op) { return ggml_is_quantized(op->type); }

const char * refusal(const device_caps &, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    if (ggml_nelements(op) == 0) {
        return nullptr;
    }
    if (op->type == src->type) {
        return bit_copy_refusal(find_bit_copy(op, src));
    }
    if (conversion(op->type, src->type)) {
        const pointwise_operand d(op), s(src);
        const pointwise_loops loops = make_copy_loops(d, s);
        return loops.empty() ? "sizes that do not fit into each other" : pointwise_refusal(d, loops);
    }
    const auto copy = find_row_copy(op, src);
    if (!copy) {
        return "quantized copy between different sizes";
    }
    return to_quantized(op) ? scatter_refusal(&copy->dst, &copy->src) : gather_refusal(&copy->dst, &copy->src);
}

void plan_copy(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    if (op->type == src->type) {
        const auto copy = find_bit_copy(op, src);
        if (!plan_transpose(plan, *copy)) {
            plan_bit_copy(plan, *copy);
        }
    } else if (const char * kernel = conversion(op->type, src->type)) {
        const pointwise_operand d(op), s(src);
        plan_pointwise(plan, "copy", kernel, d, {s}, make_copy_loops(d, s));
    } else {
        const auto copy = find_row_copy(op, src);
        if (to_quantized(op)) {
            plan_scatter(plan, &copy->dst, &copy->src, nullptr);
        } else {
            plan_gather(plan, &copy->dst, &copy->src, nullptr);
        }
    }
}

}  // namespace

extern const op_entry cont_op, cpy_op, dup_op;
const op_entry cont_op = {GGML_OP_CONT, refusal, plan_copy};
const op_entry cpy_op = {GGML_OP_CPY, refusal, plan_copy};
const op_entry dup_op = {GGML_OP_DUP, refusal, plan_copy};

}  // namespace strata
