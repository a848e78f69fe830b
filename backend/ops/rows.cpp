// GET_ROWS, SET_ROWS.
#include "ops/rows.h"

#include <string>

#include "ops/pointwise.h"
#include "ops/quantized_types.h"
#include "strata/args/rows.h"

namespace strata {

namespace {

constexpr int64_t limit = int64_t(1) << 31;

// Rows shorter than this are converted an element a work-item.
constexpr int64_t min_row = 32;

// `rows` is the one of the two whose rows are run through; of the other only the number of rows matters.
const char * shape_refusal(const ggml_tensor * dst, const ggml_tensor * src, const ggml_tensor * rows) {
    if (dst->nb[0] != ggml_type_size(dst->type) || src->nb[0] != ggml_type_size(src->type)) {
        return "rows not contiguous";
    }
    if (src->ne[1] >= limit || dst->ne[1] >= limit || ggml_nelements(rows) >= limit) {
        return "2^31 rows or elements or more";
    }
    return nullptr;
}

// `rows` is the tensor whose rows are run through.
void plan_rows(planner & plan, const std::string & kernel, const ggml_tensor * dst, const ggml_tensor * src, const ggml_tensor * index,
               const ggml_tensor * rows, bool flat) {
    rows_args args = {};
    args.dst = dst->data;
    args.src = src->data;
    args.index = index ? index->data : nullptr;
    args.row = uint32_t(dst->ne[0]);
    args.ne1 = make_divisor(uint32_t(rows->ne[1]));
    args.ne2 = make_divisor(uint32_t(rows->ne[2]));
    args.index_ne1 = make_divisor(index ? uint32_t(index->ne[1]) : 1);
    args.index_ne2 = make_divisor(index ? uint32_t(index->ne[2]) : 1);
    for (int i = 0; i < 3; i++) {
        args.dst_stride[i] = dst->nb[i + 1];
        args.src_stride[i] = src->nb[i + 1];
        args.index_stride[i] = index ? index->nb[i] : 0;
    }
    const uint32_t row_count = uint32_t(ggml_nrows(rows));
    if (flat) {
        args.parts = make_divisor(args.row);
        args.count = row_count * args.row;
        plan.launch("rows", (kernel + "_flat").c_str(), {(args.count + rows_block - 1) / rows_block}, {rows_block}, args);
    } else {
        const uint32_t tiles = (args.row + rows_tile - 1) / rows_tile;
        args.parts = make_divisor(tiles);
        args.count = row_count * tiles;
        const uint32_t waves_a_block = rows_block / 32;
        plan.launch("rows", (kernel + "_rows").c_str(), {(args.count + waves_a_block - 1) / waves_a_block}, {rows_block}, args);
    }
}

}  // namespace

const char * gather_refusal(const ggml_tensor * dst, const ggml_tensor * src) {
    if (dst->type != GGML_TYPE_F32 || (!float_type_name(src->type) && !quantized_type_name(src->type))) {
        return "no conversion between these types";
    }
    return shape_refusal(dst, src, dst);
}

void plan_gather(planner & plan, const ggml_tensor * dst, const ggml_tensor * src, const ggml_tensor * index) {
    const char * quantized = quantized_type_name(src->type);
    plan_rows(plan, std::string("get_") + (quantized ? quantized : float_type_name(src->type)), dst, src, index, dst,
              !quantized && dst->ne[0] < min_row);
}

const char * scatter_refusal(const ggml_tensor * dst, const ggml_tensor * src) {
    if ((src->type != GGML_TYPE_F32 && src->type != GGML_TYPE_F16) || (!float_type_name(dst->type) && dst->type != GGML_TYPE_Q8_0)) {
        return "no conversion between these types";
    }
    // Values of 11 bits often lie halfway between two quantized ones, and ggml's own back ends round those differently.
    if (src->type == GGML_TYPE_F16 && dst->type == GGML_TYPE_Q8_0) {
        return "no conversion between these types: f16 to q8_0 is ambiguous";
    }
    return shape_refusal(dst, src, src);
}

void plan_scatter(planner & plan, const ggml_tensor * dst, const ggml_tensor * src, const ggml_tensor * index) {
    const bool quantized = dst->type == GGML_TYPE_Q8_0;
    const std::string kernel = std::string("set_") + float_type_name(src->type) + "_" + (quantized ? "q8_0" : float_type_name(dst->type));
    plan_rows(plan, kernel, dst, src, index, src, !quantized && src->ne[0] < min_row);
}

static const char * get_rows_refusal(const device_caps &, const ggml_tensor * op) {
    if (op->src[1]->type != GGML_TYPE_I32) {
        return "index not i32";
    }
    if (op->src[0]->type == GGML_TYPE_I32 && op->type == GGML_TYPE_I32) {
        return shape_refusal(op, op->src[0], op);
    }
    return gather_refusal(op, op->src[0]);
}

static void plan_get_rows(planner & plan, const ggml_tensor * op) {
    if (op->type == GGML_TYPE_I32) {
        plan_rows(plan, "get_bits32", op, op->src[0], op->src[1], op, op->ne[0] < min_row);
    } else {
        plan_gather(plan, op, op->src[0], op->src[1]);
    }
}

static const char * set_rows_refusal(const device_caps &, const ggml_tensor * op) {
    if (op->src[1]->type != GGML_TYPE_I32 && op->src[1]->type != GGML_TYPE_I64) {
        return "index neither i32 nor i64";
    }
    return scatter_refusal(op, op->src[0]);
}

static void plan_set_rows(planner & plan, const ggml_tensor * op) {
    if (ggml_nelements(op->src[0]) > 0) {
        plan_scatter(plan, op, op->src[0], op->src[1]);
    }
}

extern const op_entry get_rows_op, set_rows_op;
const op_entry get_rows_op = {GGML_OP_GET_ROWS, get_rows_refusal, plan_get_rows};
const op_entry set_rows_op = {GGML_OP_SET_ROWS, set_rows_refusal, plan_set_rows};

}  // namespace strata
