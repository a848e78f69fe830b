// SCALE: x * scale + bias. f32, f16, bf16; any strides; in place.
#include "ops/pointwise.h"

namespace strata {

static const char * refusal(const device_caps &, const ggml_tensor * op) {
    if (!float_type_name(op->type) || op->src[0]->type != op->type) {
        return "operand or result not f32, f16 or bf16, or of different types";
    }
    return pointwise_refusal(pointwise_operand(op), {pointwise_operand(op->src[0])});
}

static void plan_scale(planner & plan, const ggml_tensor * op) {
    float params[2];  // scale, bias
    std::memcpy(params, op->op_params, sizeof(params));
    plan_pointwise(plan, "scale", std::string("scale_") + float_type_name(op->type), pointwise_operand(op),
                   {pointwise_operand(op->src[0])}, {params[0], params[1]});
}

extern const op_entry scale_op;
const op_entry scale_op = {GGML_OP_SCALE, refusal, plan_scale};

}  // namespace strata
