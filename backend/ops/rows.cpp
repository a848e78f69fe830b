// GET_ROWS, SET_ROWS. Quantized rows are written bit for bit as ggml's reference quantizes; types for which that searches a grid are not.
#include "ops/rows.h"

#include <string>

#include "ops/mul_mat.h"
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

// `rows` is the tensor whose rows are run through. `parts` and `count` are left to the kernel.
rows_args make_args(const ggml_tensor * dst, const ggml_tensor * src, const ggml_tensor * index, const ggml_tensor * rows) {
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
    return args;
}

/// Leaves the row in tiles to waves. Returns the workgroups, of `block` work-items.
uint32_t deal_out(rows_args & args, uint32_t row_count, uint32_t block = rows_block) {
    const uint32_t tiles = (args.row + rows_tile - 1) / rows_tile, waves_a_block = block / 32;
    args.parts = make_divisor(tiles);
    args.count = row_count * tiles;
    return (args.count + waves_a_block - 1) / waves_a_block;
}

void plan_rows(planner & plan, const std::string & kernel, const ggml_tensor * dst, const ggml_tensor * src, const ggml_tensor * index,
               const ggml_tensor * rows, bool flat) {
    rows_args args = make_args(dst, src, index, rows);
    const uint32_t row_count = uint32_t(ggml_nrows(rows));
    if (flat) {
        args.parts = make_divisor(args.row);
        args.count = row_count * args.row;
        plan.launch("rows", (kernel + "_flat").c_str(), {(args.count + rows_block - 1) / rows_block}, {rows_block}, args);
    } else {
        const uint32_t block = ggml_is_quantized(src->type) ? dequantize_block : rows_block;
        const uint32_t blocks = deal_out(args, row_count, block);
        plan.launch("rows", (kernel + "_rows").c_str(), {blocks}, {block}, args);
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
    const bool quantizes = lanes_of_quantizer(dst->type) > 0;
    if (!float_type_name(src->type) || (!float_type_name(dst->type) && !quantizes) || (src->type == GGML_TYPE_BF16 && !quantizes)) {
        return "no conversion between these types";
    }
    return shape_refusal(dst, src, src);
}

void plan_scatter(planner & plan, const ggml_tensor * dst, const ggml_tensor * src, const ggml_tensor * index) {
    if (const uint32_t lanes = lanes_of_quantizer(dst->type)) {
        rows_args args = make_args(dst, src, index, src);
        const uint32_t blocks = args.row / uint32_t(ggml_blck_size(dst->type));
        args.parts = make_divisor(blocks);
        args.count = uint32_t(ggml_nrows(src)) * blocks;
        args.source = src->type == GGML_TYPE_F32 ? rows_source::f32 : src->type == GGML_TYPE_F16 ? rows_source::f16 : rows_source::bf16;
        const std::string kernel = std::string("set_") + quantized_type_name(dst->type) + "_blocks";
        plan.launch("quantize_rows", kernel.c_str(), {(args.count * lanes + rows_block - 1) / rows_block}, {rows_block}, args);
        return;
    }
    const std::string kernel = std::string("set_") + float_type_name(src->type) + "_" + float_type_name(dst->type);
    plan_rows(plan, kernel, dst, src, index, src, src->ne[0] < min_row);
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

/// If a product with quantized weights reads the rows, they are quantized on the way; STRATA_DISABLE=get_rows_q8_1: not.
static void plan_get_rows(planner & plan, const ggml_tensor * op) {
    if (op->src[0]->type == GGML_TYPE_F32 && op->ne[0] % 32 == 0 && ggml_is_contiguous(op) && plan.quantizes_result("get_rows_q8_1", op)) {
        const quantized_activations q = room_for_quantized(plan, op);
        gather_q8_1_args args = {make_args(op, op->src[0], op->src[1], op), q.values, q.meta};
        const uint32_t blocks = deal_out(args.rows, uint32_t(ggml_nrows(op)));
        plan.launch("rows", "get_f32_rows_q8_1", {blocks}, {rows_block}, args);
        return;
    }
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
