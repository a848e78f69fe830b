// GLU: an activation of one operand times another; two tensors, or the halves of the rows of one. f32, f16, bf16.
#include "ops/pointwise.h"

namespace strata {

static const char * glu_name(ggml_glu_op op) {
    switch (op) {
        case GGML_GLU_OP_REGLU: return "reglu";
        case GGML_GLU_OP_GEGLU: return "geglu";
        case GGML_GLU_OP_SWIGLU: return "swiglu";
        case GGML_GLU_OP_SWIGLU_OAI: return "swiglu_oai";
        case GGML_GLU_OP_GEGLU_ERF: return "geglu_erf";
        case GGML_GLU_OP_GEGLU_QUICK: return "geglu_quick";
        case GGML_GLU_OP_SWIGLU_CLAMP: return "swiglu_clamp";
        default: return nullptr;
    }
}

// The activated operand (first) or the one it is multiplied with.
static pointwise_operand glu_operand(const ggml_tensor * op, bool first) {
    const ggml_tensor * source = !first && op->src[1] ? op->src[1] : op->src[0];
    pointwise_operand operand(source);
    if (!op->src[1]) {
        const bool swapped = op->op_params[1] != 0;
        operand.ne[0] /= 2;
        if (first == swapped) {
            operand.data = static_cast<const char *>(operand.data) + std::size_t(operand.ne[0]) * operand.nb[0];
        }
    }
    return operand;
}

static const char * refusal(const device_caps &, const ggml_tensor * op) {
    if (!glu_name(ggml_get_glu_op(op))) {
        return "no kernel for this gated unit";
    }
    if (!float_type_name(op->type) || op->src[0]->type != op->type || (op->src[1] && op->src[1]->type != op->type)) {
        return "operand or result not f32, f16 or bf16, or of different types";
    }
    return pointwise_refusal(pointwise_operand(op), {glu_operand(op, true), glu_operand(op, false)});
}

static void plan_glu(planner & plan, const ggml_tensor * op) {
    float params[4];  // the op, swapped, alpha, limit
    std::memcpy(params, op->op_params, sizeof(params));
    const std::string kernel = std::string(glu_name(ggml_get_glu_op(op))) + "_" + float_type_name(op->type);
    plan_pointwise(plan, "glu", kernel, pointwise_operand(op), {glu_operand(op, true), glu_operand(op, false)}, {params[2], params[3]});
}

extern const op_entry glu_op;
const op_entry glu_op = {GGML_OP_GLU, refusal, plan_glu};

}  // namespace strata
