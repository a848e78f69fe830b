// SSM_CONV: f32; any number of taps; rows of channels and sequences at any distance.
#include "ops/ssm_conv.h"

#include "strata/args/ssm_conv.h"

namespace strata {

namespace {

constexpr int64_t max_grid = 65535;
constexpr int64_t few_tokens = 8;  // fewer are not worth a tile

bool tiled(const ggml_tensor * op) { return op->ne[1] >= few_tokens && op->src[1]->ne[0] <= ssm_conv_taps; }

const char * refusal(const device_caps &, const ggml_tensor * op) {
    for (int i = 0; i < 2; i++) {
        if (op->src[i]->type != GGML_TYPE_F32) {
            return "operand not f32";
        }
        if (op->src[i]->nb[0] != sizeof(float) && op->src[i]->ne[0] != 1) {
            return "rows not contiguous";
        }
    }
    const int64_t tokens = op->ne[1];
    if (op->ne[0] >= int64_t(1) << 30 || op->ne[2] > max_grid || (tiled(op) ? tokens / ssm_conv_tokens : tokens) >= max_grid) {
        return "too many channels, tokens or sequences";
    }
    return nullptr;
}

}  // namespace

void plan_ssm_conv(planner & plan, const ggml_tensor * op, const ggml_tensor * bias, const ggml_tensor * result, bool silu) {
    const ggml_tensor * src = op->src[0];
    const ggml_tensor * weights = op->src[1];
    ssm_conv_args args = {};
    args.dst = result->data;
    args.src = src->data;
    args.weights = weights->data;
    args.src_stride = src->nb[1];
    args.weight_stride = weights->nb[1];
    args.src_sequence_stride = src->nb[2];
    args.channels = uint32_t(op->ne[0]);
    args.tokens = uint32_t(op->ne[1]);
    args.taps = uint32_t(weights->ne[0]);
    args.bias = bias ? bias->data : nullptr;
    args.silu = silu;

    const uint32_t sequences = uint32_t(op->ne[2]);
    const int kind = args.taps == 3 ? 0 : args.taps == 4 ? 1 : 2;
    if (tiled(op)) {
        const char * const kernels[] = {"ssm_conv_tile_3", "ssm_conv_tile_4", "ssm_conv_tile_any"};
        const dims grid = {(args.channels + ssm_conv_channels - 1) / ssm_conv_channels, (args.tokens + ssm_conv_tokens - 1) / ssm_conv_tokens, sequences};
        plan.launch("ssm_conv", kernels[kind], grid, {ssm_conv_block}, args);
    } else {
        const char * const kernels[] = {"ssm_conv_3", "ssm_conv_4", "ssm_conv_any"};
        plan.launch("ssm_conv", kernels[kind], {(args.channels + ssm_conv_block - 1) / ssm_conv_block, args.tokens, sequences}, {ssm_conv_block}, args);
    }
}

extern const op_entry ssm_conv_op;
const op_entry ssm_conv_op = {GGML_OP_SSM_CONV, refusal, [](planner & plan, const ggml_tensor * op) { plan_ssm_conv(plan, op, nullptr, op, false); }};

}  // namespace strata
