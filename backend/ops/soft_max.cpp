// SOFT_MAX: rows of f32 with an optional mask (f16 or f32), ALiBi bias and sinks; the result may take the place of the source.
#include "ops/op.h"
#include "strata/args/soft_max.h"

namespace strata {

namespace {

const char * refusal(const device_caps & caps, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    const ggml_tensor * mask = op->src[1];
    const ggml_tensor * sinks = op->src[2];
    if (caps.wave_size != 32) return "wave size";
    if (src->type != GGML_TYPE_F32 || op->type != GGML_TYPE_F32) return "type";
    if (!ggml_are_same_shape(src, op)) return "shapes differ";
    if (src->nb[0] != sizeof(float) || op->nb[0] != sizeof(float)) return "transposed rows";
    if (src->ne[0] >= 1 << 29 || src->ne[1] >= 1 << 30 || src->ne[2] > 65535 || src->ne[3] > 65535) return "size";
    if (mask) {
        if (mask->type != GGML_TYPE_F16 && mask->type != GGML_TYPE_F32) return "mask type";
        if (mask->nb[0] != ggml_type_size(mask->type)) return "transposed mask";
        if (mask->ne[0] != src->ne[0] || mask->ne[1] < src->ne[1] || mask->ne[2] == 0 || mask->ne[3] == 0) return "mask shape";
    }
    if (sinks && (sinks->type != GGML_TYPE_F32 || sinks->nb[0] != sizeof(float) || sinks->ne[0] < src->ne[2])) return "sinks";
    return nullptr;
}

void plan_soft_max(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * src = op->src[0];
    const ggml_tensor * mask = op->src[1];
    float params[2];  // scale, max_bias
    std::memcpy(params, op->op_params, sizeof(params));

    soft_max_args args{};
    args.src = src->data;
    args.mask = mask ? mask->data : nullptr;
    args.sinks = op->src[2] ? op->src[2]->data : nullptr;
    args.dst = op->data;
    for (int i = 0; i < 3; ++i) {
        args.src_nb[i] = src->nb[i + 1];
        args.dst_nb[i] = op->nb[i + 1];
        args.mask_nb[i] = mask ? mask->nb[i + 1] : 0;
    }
    args.mask_kind = !mask ? soft_max_mask::none : mask->type == GGML_TYPE_F16 ? soft_max_mask::f16 : soft_max_mask::f32;
    args.width = uint32_t(src->ne[0]);
    args.n_rows = uint32_t(src->ne[1]);
    args.mask_heads = mask ? uint32_t(mask->ne[2]) : 1;
    args.mask_batches = mask ? uint32_t(mask->ne[3]) : 1;
    args.scale = params[0];
    args.max_bias = mask ? params[1] : 0.0f;
    args.alibi_heads = 1;
    while (args.alibi_heads * 2 <= uint32_t(src->ne[2])) {
        args.alibi_heads *= 2;
    }

    const uint32_t heads = uint32_t(src->ne[2]);
    const uint32_t batches = uint32_t(src->ne[3]);
    if (args.width <= 1024) {
        const char * kernel = args.width <= 128   ? "soft_max_128"
                              : args.width <= 256 ? "soft_max_256"
                              : args.width <= 512 ? "soft_max_512"
                                                  : "soft_max_1024";
        plan.launch("soft_max", kernel, {(args.n_rows + 3) / 4, heads, batches}, {128}, args);
    } else if (args.width <= 4096) {
        plan.launch("soft_max", "soft_max_4096", {args.n_rows, heads, batches}, {256}, args);
    } else {
        plan.launch("soft_max", "soft_max_any", {args.n_rows, heads, batches}, {512}, args);
    }
}

}  // namespace

extern const op_entry soft_max_op;
const op_entry soft_max_op = {GGML_OP_SOFT_MAX, refusal, plan_soft_max};

}  // namespace strata
