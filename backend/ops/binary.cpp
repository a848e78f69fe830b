// ADD, SUB, MUL, DIV, ADD1: src1 repeated to the shape of src0, any strides, dst may be src0 or src1.
#include "ops/pointwise.h"

namespace strata {

static const char * refusal(const device_caps &, const ggml_tensor * op) {
    const ggml_tensor * a = op->src[0];
    const ggml_tensor * b = op->src[1];
    if (!float_type_name(a->type) || op->type != a->type) {
        return "first operand or result not f32, f16 or bf16, or of different types";
    }
    if (b->type != a->type && b->type != GGML_TYPE_F32) {
        return "second operand neither f32 nor of the type of the first";
    }
    return pointwise_refusal(pointwise_operand(op), {pointwise_operand(a), pointwise_operand(b)});
}

static void plan_binary(planner & plan, const ggml_tensor * op, const char * name) {
    const std::string kernel = std::string(name) + "_" + float_type_name(op->src[0]->type) + "_" + float_type_name(op->src[1]->type);
    plan_pointwise(plan, "binary", kernel, pointwise_operand(op), {pointwise_operand(op->src[0]), pointwise_operand(op->src[1])});
}

extern const op_entry add_op, sub_op, mul_op, div_op, add1_op;
const op_entry add_op = {GGML_OP_ADD, refusal, [](planner & plan, const ggml_tensor * op) { plan_binary(plan, op, "add"); }};
const op_entry sub_op = {GGML_OP_SUB, refusal, [](planner & plan, const ggml_tensor * op) { plan_binary(plan, op, "sub"); }};
const op_entry mul_op = {GGML_OP_MUL, refusal, [](planner & plan, const ggml_tensor * op) { plan_binary(plan, op, "mul"); }};
const op_entry div_op = {GGML_OP_DIV, refusal, [](planner & plan, const ggml_tensor * op) { plan_binary(plan, op, "div"); }};
const op_entry add1_op = {GGML_OP_ADD1, refusal, [](planner & plan, const ggml_tensor * op) { plan_binary(plan, op, "add"); }};

}  // namespace strata
