// TRI, DIAG, DIAG_MASK_INF, DIAG_MASK_ZERO: f32 matrices with contiguous rows. FILL: f32, f16, contiguous rows. All but DIAG in place too.
#include <cstdint>

#include "ops/op.h"
#include "strata/args/band.h"

namespace strata {

namespace {

bool contiguous_rows(const ggml_tensor * t) { return t->nb[0] == ggml_type_size(t->type) || t->ne[0] == 1; }

int64_t parts(const ggml_tensor * op) { return (op->ne[0] + 3) / 4; }

const char * size_refusal(const ggml_tensor * op) {
    if (!contiguous_rows(op)) {
        return "rows not contiguous";
    }
    if (op->ne[0] >= int64_t(1) << 30 || op->ne[1] >= int64_t(1) << 30 || parts(op) * ggml_nrows(op) >= int64_t(1) << 31) {
        return "rows of 2^30 elements or 2^31 elements or more";
    }
    return nullptr;
}

const char * refusal(const device_caps &, const ggml_tensor * op) {
    if (op->type != GGML_TYPE_F32 || op->src[0]->type != GGML_TYPE_F32) {
        return "operand or result not f32";
    }
    return contiguous_rows(op->src[0]) ? size_refusal(op) : "rows not contiguous";
}

const char * fill_refusal(const device_caps &, const ggml_tensor * op) {
    return op->type != GGML_TYPE_F32 && op->type != GGML_TYPE_F16 ? "result not f32 or f16" : size_refusal(op);
}

struct band {
    int32_t low, high;  // of i0 - i1
};

constexpr int32_t endless = INT32_MAX;

void plan_band(planner & plan, const ggml_tensor * op, band kept, uint32_t value) {
    const ggml_tensor * src = op->src[0];
    band_args args = {};
    args.dst = op->data;
    args.src = src->data;
    for (int i = 0; i < 3; i++) {
        args.dst_stride[i] = op->nb[i + 1];
        args.src_stride[i] = src->ne[i + 1] == 1 ? 0 : src->nb[i + 1];  // DIAG's one row serves all
    }
    args.row = uint32_t(op->ne[0]);
    args.count = uint32_t(parts(op) * ggml_nrows(op));
    args.parts = make_divisor(uint32_t(parts(op)));
    args.ne1 = make_divisor(uint32_t(op->ne[1]));
    args.ne2 = make_divisor(uint32_t(op->ne[2]));
    args.low = kept.low;
    args.high = kept.high;
    args.value = value;
    plan.launch("band", op->type == GGML_TYPE_F32 ? "band_bits32" : "band_bits16", {(args.count + band_block - 1) / band_block}, {band_block}, args);
}

void plan_tri(planner & plan, const ggml_tensor * op) {
    switch (ggml_tri_type(op->op_params[0])) {
        case GGML_TRI_TYPE_LOWER: return plan_band(plan, op, {-endless, -1}, 0);
        case GGML_TRI_TYPE_LOWER_DIAG: return plan_band(plan, op, {-endless, 0}, 0);
        case GGML_TRI_TYPE_UPPER: return plan_band(plan, op, {1, endless}, 0);
        case GGML_TRI_TYPE_UPPER_DIAG: return plan_band(plan, op, {0, endless}, 0);
    }
}

void plan_diag(planner & plan, const ggml_tensor * op) { plan_band(plan, op, {0, 0}, 0); }

constexpr uint32_t minus_infinity = 0xff800000;

template <uint32_t Value>
void plan_mask(planner & plan, const ggml_tensor * op) {
    plan_band(plan, op, {-endless, op->op_params[0]}, Value);
}

void plan_fill(planner & plan, const ggml_tensor * op) {
    uint32_t value;
    std::memcpy(&value, op->op_params, sizeof(value));
    if (op->type == GGML_TYPE_F16) {
        float number;
        std::memcpy(&number, op->op_params, sizeof(number));
        value = ggml_fp32_to_fp16(number);
    }
    plan_band(plan, op, {1, 0}, value);
}

}  // namespace

extern const op_entry tri_op, diag_op, diag_mask_inf_op, diag_mask_zero_op, fill_op;
const op_entry tri_op = {GGML_OP_TRI, refusal, plan_tri};
const op_entry diag_op = {GGML_OP_DIAG, refusal, plan_diag};
const op_entry diag_mask_inf_op = {GGML_OP_DIAG_MASK_INF, refusal, plan_mask<minus_infinity>};
const op_entry diag_mask_zero_op = {GGML_OP_DIAG_MASK_ZERO, refusal, plan_mask<0>};
const op_entry fill_op = {GGML_OP_FILL, fill_refusal, plan_fill};

}  // namespace strata
