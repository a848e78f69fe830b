// Functions of one argument: UNARY (all of ggml's), SQR, SQRT, SIN, COS, LOG, CLAMP, LEAKY_RELU. f32, f16, bf16; any strides; in place.
#include "ops/pointwise.h"

namespace strata {

// The kernel of a unary op, or nullptr.
static const char * unary_name(ggml_unary_op op) {
    switch (op) {
        case GGML_UNARY_OP_ABS: return "abs";
        case GGML_UNARY_OP_SGN: return "sgn";
        case GGML_UNARY_OP_NEG: return "neg";
        case GGML_UNARY_OP_STEP: return "step";
        case GGML_UNARY_OP_TANH: return "tanh";
        case GGML_UNARY_OP_ELU: return "elu";
        case GGML_UNARY_OP_RELU: return "relu";
        case GGML_UNARY_OP_SIGMOID: return "sigmoid";
        case GGML_UNARY_OP_GELU: return "gelu";
        case GGML_UNARY_OP_GELU_QUICK: return "gelu_quick";
        case GGML_UNARY_OP_GELU_ERF: return "gelu_erf";
        case GGML_UNARY_OP_SILU: return "silu";
        case GGML_UNARY_OP_HARDSWISH: return "hardswish";
        case GGML_UNARY_OP_HARDSIGMOID: return "hardsigmoid";
        case GGML_UNARY_OP_EXP: return "exp";
        case GGML_UNARY_OP_EXPM1: return "expm1";
        case GGML_UNARY_OP_SOFTPLUS: return "softplus";
        case GGML_UNARY_OP_XIELU: return "xielu";
        case GGML_UNARY_OP_FLOOR: return "floor";
        case GGML_UNARY_OP_CEIL: return "ceil";
        case GGML_UNARY_OP_ROUND: return "round";
        case GGML_UNARY_OP_TRUNC: return "trunc";
        default: return nullptr;
    }
}

static const char * refusal(const device_caps &, const ggml_tensor * op) {
    if (!float_type_name(op->type) || op->src[0]->type != op->type) {
        return "operand or result not f32, f16 or bf16, or of different types";
    }
    return pointwise_refusal(pointwise_operand(op), {pointwise_operand(op->src[0])});
}

static const char * unary_refusal(const device_caps & caps, const ggml_tensor * op) {
    return unary_name(ggml_get_unary_op(op)) ? refusal(caps, op) : "no kernel for this unary op";
}

static void plan_function(planner & plan, const ggml_tensor * op, const char * name, std::initializer_list<float> params = {}) {
    plan_pointwise(plan, "unary", std::string(name) + "_" + float_type_name(op->type), pointwise_operand(op),
                   {pointwise_operand(op->src[0])}, params);
}

static void plan_unary(planner & plan, const ggml_tensor * op) {
    float params[5];  // the op, then those of XIELU
    std::memcpy(params, op->op_params, sizeof(params));
    plan_function(plan, op, unary_name(ggml_get_unary_op(op)), {params[1], params[2], params[3], params[4]});
}

static void plan_clamp(planner & plan, const ggml_tensor * op) {
    float bounds[2];
    std::memcpy(bounds, op->op_params, sizeof(bounds));
    plan_function(plan, op, "clamp", {bounds[0], bounds[1]});
}

static void plan_leaky_relu(planner & plan, const ggml_tensor * op) {
    float slope;
    std::memcpy(&slope, op->op_params, sizeof(slope));
    plan_function(plan, op, "leaky_relu", {slope});
}

extern const op_entry unary_op, sqr_op, sqrt_op, sin_op, cos_op, log_op, clamp_op, leaky_relu_op;
const op_entry unary_op = {GGML_OP_UNARY, unary_refusal, plan_unary};
const op_entry sqr_op = {GGML_OP_SQR, refusal, [](planner & plan, const ggml_tensor * op) { plan_function(plan, op, "sqr"); }};
const op_entry sqrt_op = {GGML_OP_SQRT, refusal, [](planner & plan, const ggml_tensor * op) { plan_function(plan, op, "sqrt"); }};
const op_entry sin_op = {GGML_OP_SIN, refusal, [](planner & plan, const ggml_tensor * op) { plan_function(plan, op, "sin"); }};
const op_entry cos_op = {GGML_OP_COS, refusal, [](planner & plan, const ggml_tensor * op) { plan_function(plan, op, "cos"); }};
const op_entry log_op = {GGML_OP_LOG, refusal, [](planner & plan, const ggml_tensor * op) { plan_function(plan, op, "log"); }};
const op_entry clamp_op = {GGML_OP_CLAMP, refusal, plan_clamp};
const op_entry leaky_relu_op = {GGML_OP_LEAKY_RELU, refusal, plan_leaky_relu};

}  // namespace strata
