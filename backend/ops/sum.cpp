// SUM_ROWS, MEAN (f32), COUNT_EQUAL (i32): any strides. SUM (f32, f16, bf16): contiguous rows.
#include <algorithm>

#include "ops/pointwise.h"
#include "strata/args/reduce.h"

namespace strata {

namespace {

const char * rows_refusal(const device_caps & caps, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    if (caps.wave_size != 32) {
        return "wave size";
    }
    if (op->type != GGML_TYPE_F32 || src->type != GGML_TYPE_F32) {
        return "not f32";
    }
    if (src->ne[0] >= int64_t(1) << 30 || ggml_nrows(src) >= int64_t(1) << 31) {
        return "2^30 elements a row or 2^31 rows or more";
    }
    if (src->nb[0] >= std::size_t(1) << 32) {
        return "a stride of 4 GiB or more";
    }
    return nullptr;
}

void plan_rows(planner & plan, const ggml_tensor * op, bool mean) {
    const ggml_tensor * src = op->src[0];
    sum_rows_args args = {};
    args.dst = op->data;
    args.src = src->data;
    args.row = uint32_t(src->ne[0]);
    args.rows = uint32_t(ggml_nrows(src));
    args.step = uint32_t(src->nb[0]);
    args.mean = mean;
    args.ne1 = make_divisor(uint32_t(src->ne[1]));
    args.ne2 = make_divisor(uint32_t(src->ne[2]));
    for (int i = 0; i < 3; i++) {
        args.dst_stride[i] = op->nb[i + 1];
        args.src_stride[i] = src->nb[i + 1];
    }
    if (args.row <= sum_wave_row) {
        const uint32_t waves_a_block = sum_block / 32;
        plan.launch("sum", "sum_rows_wave", {(args.rows + waves_a_block - 1) / waves_a_block}, {sum_block}, args);
    } else {
        plan.launch("sum", "sum_rows_block", {args.rows}, {sum_block}, args);
    }
}

// Both operands as one set of loops; `b` may be null.
pointwise_loops common_loops(const ggml_tensor * a, const ggml_tensor * b) {
    return make_loops(pointwise_operand(a), {pointwise_operand(a), pointwise_operand(b ? b : a)});
}

sum_all_args make_args(const ggml_tensor * a, const ggml_tensor * b) {
    sum_all_args args = {};
    args.a = a->data;
    args.b = b ? b->data : nullptr;
    args.count = uint32_t(ggml_nelements(a));
    if (args.count > 0) {
        for (const pointwise_loop & loop : common_loops(a, b)) {
            args.dims[args.dim_count++] = {make_divisor(uint32_t(loop.size)), uint32_t(loop.step[1]), uint32_t(loop.step[2])};
        }
    }
    return args;
}

// One pass by one workgroup, or a second pass over the results of the first, which have `size` bytes each.
void plan_all(planner & plan, const ggml_tensor * op, sum_all_args args, const std::string & alone, const std::string & first,
              const std::string & second, uint32_t size) {
    const uint32_t blocks = std::clamp(args.count / sum_chunk, 1u, sum_most_blocks);
    args.chunk = (args.count + blocks - 1) / blocks;
    if (blocks == 1) {
        args.dst = op->data;
        plan.launch("sum", alone.c_str(), {1}, {sum_block}, args);
        return;
    }
    args.dst = plan.scratch(std::size_t(blocks) * size);
    plan.launch("sum", first.c_str(), {blocks}, {sum_block}, args);
    sum_all_args total = {};
    total.dst = op->data;
    total.a = args.dst;
    total.count = total.chunk = blocks;
    total.dim_count = 1;
    total.dims[0] = {make_divisor(blocks), size, 0};
    plan.launch("sum", second.c_str(), {1}, {sum_block}, total);
}

const char * sum_refusal(const device_caps & caps, const ggml_tensor * op) {
    if (caps.wave_size != 32) {
        return "wave size";
    }
    if (!float_type_name(op->type) || op->src[0]->type != op->type) {
        return "operand or result not f32, f16 or bf16, or of different types";
    }
    // ggml's CPU backend would take the elements of such a row from where they are not.
    if (op->src[0]->nb[0] != ggml_type_size(op->type)) {
        return "rows not contiguous";
    }
    return pointwise_refusal(pointwise_operand(op->src[0]), {pointwise_operand(op->src[0])});
}

void plan_sum(planner & plan, const ggml_tensor * op) {
    const std::string type = float_type_name(op->type);
    plan_all(plan, op, make_args(op->src[0], nullptr), "sum_" + type + "_" + type, "sum_" + type + "_f32", "sum_f32_" + type, sizeof(float));
}

const char * count_equal_refusal(const device_caps & caps, const ggml_tensor * op) {
    const ggml_tensor * a = op->src[0];
    const ggml_tensor * b = op->src[1];
    if (caps.wave_size != 32) {
        return "wave size";
    }
    if (a->type != GGML_TYPE_I32 || b->type != GGML_TYPE_I32 || op->type != GGML_TYPE_I64) {
        return "operands not i32 or result not i64";
    }
    return pointwise_refusal(pointwise_operand(a), {pointwise_operand(a), pointwise_operand(b)});
}

void plan_count_equal(planner & plan, const ggml_tensor * op) {
    plan_all(plan, op, make_args(op->src[0], op->src[1]), "count_equal_i32", "count_equal_i32", "count_total", sizeof(int64_t));
}

}  // namespace

extern const op_entry sum_rows_op, mean_op, sum_op, count_equal_op;
const op_entry sum_rows_op = {GGML_OP_SUM_ROWS, rows_refusal, [](planner & plan, const ggml_tensor * op) { plan_rows(plan, op, false); }};
const op_entry mean_op = {GGML_OP_MEAN, rows_refusal, [](planner & plan, const ggml_tensor * op) { plan_rows(plan, op, true); }};
const op_entry sum_op = {GGML_OP_SUM, sum_refusal, plan_sum};
const op_entry count_equal_op = {GGML_OP_COUNT_EQUAL, count_equal_refusal, plan_count_equal};

}  // namespace strata
