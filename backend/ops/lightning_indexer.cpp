// LIGHTNING_INDEXER: what each key matters to each token, by a few small heads; keys of any type of a cache.
#include "ops/kv_formats.h"
#include "ops/op.h"
#include "strata/args/lightning_indexer.h"

namespace strata {

namespace {

constexpr int64_t max_head_size = 128, max_heads = 128;
constexpr uint32_t block_keys = 32, block_tokens = 8;

const char * refusal(const device_caps & caps, const ggml_tensor * op) {
    const ggml_tensor *q = op->src[0], *k = op->src[1], *weights = op->src[2], *mask = op->src[3];
    if (caps.wave_size != 32) return "wave size";
    if (q->type != GGML_TYPE_F32 || weights->type != GGML_TYPE_F32 || mask->type != GGML_TYPE_F16) return "types";
    if (!find_kv_format(k->type)) return "K type";
    if (op->type != GGML_TYPE_F32 || !ggml_is_contiguous(op)) return "dst layout";
    if (q->ne[0] % 8 != 0 || q->ne[0] > max_head_size) return "head size";
    if (q->ne[1] > max_heads) return "heads";
    if (q->nb[0] != sizeof(float) || weights->nb[0] != sizeof(float) || mask->nb[0] != sizeof(ggml_fp16_t) || k->nb[0] != ggml_type_size(k->type)) {
        return "transposed rows";
    }
    // Kernels address the keys of a block and the heads of a token with 32-bit offsets.
    if (k->nb[2] >= 1u << 26 || q->nb[1] >= 1u << 24) return "stride";
    if (k->ne[2] >= 1 << 30 || (q->ne[2] + block_tokens - 1) / block_tokens > 65535 || q->ne[3] > 65535) return "size";
    return nullptr;
}

void plan(planner & plan, const ggml_tensor * op) {
    const ggml_tensor *q = op->src[0], *k = op->src[1], *weights = op->src[2], *mask = op->src[3];
    lightning_indexer_args args{};
    args.q = q->data;
    args.k = k->data;
    args.weights = weights->data;
    args.mask = mask->data;
    args.dst = op->data;
    args.q_head = q->nb[1];
    args.q_token = q->nb[2];
    args.q_stream = q->nb[3];
    args.k_key = k->nb[2];
    args.k_stream = k->nb[3];
    args.weights_token = weights->nb[1];
    args.weights_stream = weights->nb[3];
    args.mask_token = mask->nb[1];
    args.mask_stream = mask->nb[3];
    args.k_format = *find_kv_format(k->type);
    args.head_size = uint32_t(q->ne[0]);
    args.n_head = uint32_t(q->ne[1]);
    args.n_tokens = uint32_t(q->ne[2]);
    args.n_kv = uint32_t(k->ne[2]);
    args.mask_streams = uint32_t(mask->ne[3]);
    plan.launch("lightning_indexer", "lightning_indexer",
                {(args.n_kv + block_keys - 1) / block_keys, (args.n_tokens + block_tokens - 1) / block_tokens, uint32_t(q->ne[3])}, {256}, args);
}

}  // namespace

extern const op_entry lightning_indexer_op;
const op_entry lightning_indexer_op = {GGML_OP_LIGHTNING_INDEXER, refusal, plan};

}  // namespace strata
