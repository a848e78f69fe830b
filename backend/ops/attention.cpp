// FLASH_ATTN_EXT: softmax(scale Q K^T + mask) V. Keys and values have any type of a cache, each its own.
// Many query rows go through WMMA tiles, few (decode) through the vector kernel; what these two have no kernel for, and all prefill on a
// card without WMMA, goes through one that takes any head sizes. All may split the keys over workgroups.
#include <algorithm>
#include <bit>
#include <string>

#include "ops/kv_formats.h"
#include "ops/op.h"
#include "strata/args/flash_attn.h"

namespace strata {

namespace {

constexpr uint32_t any_rows = 8;          // query rows of a workgroup of flash_attn_any
constexpr int64_t max_k_size = 576, max_v_size = 512;
constexpr uint32_t max_vector_rows = 16;  // above, tiles
constexpr uint32_t max_splits = 64;       // two a lane of the combining wave
constexpr float log2_e = 0x1.715476p+0f;

/// A kernel of flash_attn_tile and its workgroup.
struct tile_kernel {
    uint32_t k_size, v_size;
    uint32_t rows, threads;
};
constexpr tile_kernel tile_kernels[] = {
    {40, 40, 64, 128},   {64, 64, 64, 128},   {72, 72, 64, 128},   {80, 80, 64, 128},   {96, 96, 64, 128},
    {112, 112, 64, 128}, {128, 128, 64, 128}, {192, 128, 64, 256}, {192, 192, 64, 256}, {256, 256, 64, 256},
    {320, 256, 32, 256}, {512, 512, 32, 256}, {576, 512, 32, 256},
};

struct op_tensors {
    const ggml_tensor *q, *k, *v, *mask, *sinks;
};

op_tensors tensors_of(const ggml_tensor * op) { return {op->src[0], op->src[1], op->src[2], op->src[3], op->src[4]}; }

float float_param(const ggml_tensor * op, int index) {
    float value;
    std::memcpy(&value, op->op_params + index, sizeof(value));
    return value;
}

const tile_kernel * find_tile_kernel(uint32_t k_size, uint32_t v_size) {
    for (const tile_kernel & kernel : tile_kernels) {
        if (kernel.k_size == k_size && kernel.v_size == v_size) {
            return &kernel;
        }
    }
    return nullptr;
}

bool has_vector_kernel(uint32_t k_size, uint32_t v_size) {
    for (const uint32_t known : {40, 64, 72, 80, 96, 112, 128, 256}) {
        if (k_size == known && v_size == known) {
            return true;
        }
    }
    return false;
}

const char * refusal(const device_caps & caps, const ggml_tensor * op) {
    const auto [q, k, v, mask, sinks] = tensors_of(op);
    if (caps.wave_size != 32) return "wave size";
    if (q->type != GGML_TYPE_F32) return "Q type";
    if (!find_kv_format(k->type)) return "K type";
    if (!find_kv_format(v->type)) return "V type";
    if (op->type != GGML_TYPE_F32 || !ggml_is_contiguous(op)) return "dst layout";
    if (q->ne[0] != k->ne[0] || k->ne[0] == 0 || v->ne[0] == 0 || k->ne[0] > max_k_size || v->ne[0] > max_v_size) return "head size";
    if (k->ne[1] != v->ne[1] || k->ne[2] != v->ne[2]) return "K and V shapes differ";
    if (k->ne[2] == 0 || q->ne[2] % k->ne[2] != 0) return "heads";
    if (q->ne[3] != k->ne[3] || q->ne[3] != v->ne[3]) return "batches";
    if (q->nb[0] != sizeof(float) || k->nb[0] != ggml_type_size(k->type) || v->nb[0] != ggml_type_size(v->type)) return "transposed rows";
    // Kernels address a step's keys with 32-bit offsets.
    if (k->nb[1] >= 1u << 24 || v->nb[1] >= 1u << 24) return "KV stride";
    if (q->ne[1] * q->ne[2] >= 1 << 30 || k->ne[1] >= 1 << 30 || k->ne[2] > 65535 || q->ne[3] > 65535) return "size";
    if (mask) {
        if (mask->type != GGML_TYPE_F16) return "mask type";
        if (mask->nb[0] != sizeof(ggml_fp16_t)) return "transposed mask";
        if (mask->ne[0] < k->ne[1] || mask->ne[1] < q->ne[1] || mask->ne[2] == 0 || mask->ne[3] == 0) return "mask shape";
        if (ggml_nbytes(mask) >= uint64_t(1) << 32) return "mask size";
    }
    if (sinks && (sinks->type != GGML_TYPE_F32 || sinks->nb[0] != sizeof(float) || sinks->ne[0] < q->ne[2])) return "sinks";
    return nullptr;
}

/// Splits the keys so that about `wanted` workgroups run, in multiples of `unit` keys, at least `least` each.
void split_keys(flash_attn_args & args, uint32_t workgroups, uint32_t wanted, uint32_t unit, uint32_t least) {
    const uint32_t most = std::min(max_splits, std::max(args.n_kv / least, 1u));
    const uint32_t splits = std::clamp(wanted / workgroups, 1u, most);
    const uint32_t keys = (args.n_kv + splits - 1) / splits;
    args.keys_per_split = std::max((keys + unit - 1) / unit, 1u) * unit;
    args.n_splits = std::max((args.n_kv + args.keys_per_split - 1) / args.keys_per_split, 1u);
}

void plan(planner & plan, const ggml_tensor * op) {
    const auto [q, k, v, mask, sinks] = tensors_of(op);

    flash_attn_args args{};
    args.k_format = *find_kv_format(k->type);
    args.v_format = *find_kv_format(v->type);
    args.k_size = uint32_t(k->ne[0]);
    args.v_size = uint32_t(v->ne[0]);
    args.q = q->data;
    args.k = k->data;
    args.v = v->data;
    args.mask = mask ? mask->data : nullptr;
    args.sinks = sinks ? sinks->data : nullptr;
    args.dst = op->data;
    for (int i = 0; i < 3; ++i) {
        args.q_nb[i] = q->nb[i + 1];
        args.k_nb[i] = k->nb[i + 1];
        args.v_nb[i] = v->nb[i + 1];
        args.mask_nb[i] = mask ? mask->nb[i + 1] : 0;
    }
    args.n_q = uint32_t(q->ne[1]);
    args.n_head = uint32_t(q->ne[2]);
    args.n_head_kv = uint32_t(k->ne[2]);
    args.heads_per_kv = args.n_head / args.n_head_kv;
    args.n_batch = uint32_t(q->ne[3]);
    args.n_kv = uint32_t(k->ne[1]);
    args.mask_heads = mask ? uint32_t(mask->ne[2]) : 1;
    args.mask_batches = mask ? uint32_t(mask->ne[3]) : 1;
    const float scale = float_param(op, 0);
    const float softcap = float_param(op, 2);
    args.q_scale = softcap != 0.0f ? 2.0f * scale / softcap * log2_e : scale * log2_e;
    args.softcap = softcap * log2_e;
    args.max_bias = mask ? float_param(op, 1) : 0.0f;
    args.alibi_heads = 1;
    while (args.alibi_heads * 2 <= args.n_head) {
        args.alibi_heads *= 2;
    }

    const uint32_t rows = args.n_q * args.heads_per_kv;
    const bool halves = k->type == GGML_TYPE_F16 && v->type == GGML_TYPE_F16;
    // q8_0 has kernels of its own for the usual head sizes.
    const bool q8_0 = k->type == GGML_TYPE_Q8_0 && v->type == GGML_TYPE_Q8_0 && k->ne[0] == v->ne[0] &&
                      (k->ne[0] == 64 || k->ne[0] == 128 || k->ne[0] == 256);
    const std::string types = halves ? "" : q8_0 ? "_q8_0" : "_typed";
    const tile_kernel * tile = find_tile_kernel(args.k_size, args.v_size);
    std::string family, kernel;
    uint32_t block_rows, threads = 128;
    if (rows <= max_vector_rows && has_vector_kernel(args.k_size, args.v_size) && !plan.disabled("flash_attn_vector")) {
        family = "flash_attn_vector";
        block_rows = rows > 4 ? 8 : halves || rows == 1 ? rows : 4;
        kernel = family + "_d" + std::to_string(args.k_size) + "_r" + std::to_string(block_rows) + types;
    } else if (rows > max_vector_rows && tile && plan.caps().wmma && !plan.disabled("flash_attn_tile")) {
        family = "flash_attn_tile";
        block_rows = tile->rows;
        threads = tile->threads;
        kernel = family + "_k" + std::to_string(args.k_size) + "_v" + std::to_string(args.v_size) + types;
    } else {
        family = "flash_attn_any";
        block_rows = any_rows;
        kernel = family + (args.k_size <= 128 ? "_128" : args.k_size <= 256 ? "_256" : "_576");
    }
    const uint32_t row_blocks = (rows + block_rows - 1) / block_rows;
    const uint32_t workgroups = row_blocks * args.n_head_kv * args.n_batch, compute_units = plan.caps().compute_units;
    if (family == "flash_attn_vector") {
        // Two steps of its four waves at least, one with small heads, whose steps have twice as many keys and more; a workgroup a compute unit has
        // enough in flight for what memory delivers.
        const uint32_t unit = 8192 / std::bit_ceil(args.k_size);
        split_keys(args, workgroups, compute_units, unit, args.k_size <= 64 ? unit : 2 * unit);
    } else {
        split_keys(args, workgroups, compute_units * (family == "flash_attn_tile" ? 1 : 2), 128, 256);
    }

    const uint64_t dst_rows = uint64_t(args.n_batch) * args.n_q * args.n_head;
    if (args.n_splits > 1) {
        const uint64_t sums = args.n_splits * dst_rows * args.v_size;
        args.partial = static_cast<float *>(plan.scratch((sums + args.n_splits * dst_rows * 2) * sizeof(float)));
        args.partial_max = args.partial + sums;
    }
    plan.launch(family.c_str(), kernel.c_str(), {row_blocks, args.n_head_kv, args.n_batch * args.n_splits}, {threads}, args);
    if (args.n_splits > 1) {
        flash_attn_combine_args combine{args.partial, args.partial_max, args.sinks, args.dst, uint32_t(dst_rows), args.n_head, args.v_size, args.n_splits, 1};
        while (combine.row_waves < combine_waves && combine.row_waves * 4 < args.n_splits) {   // a wave reads four splits at once
            combine.row_waves *= 2;
        }
        const uint32_t rows_at_once = combine_waves / combine.row_waves;
        plan.launch("flash_attn_vector", "flash_attn_combine", {uint32_t((dst_rows + rows_at_once - 1) / rows_at_once), (args.v_size + 127) / 128},
                    {combine_waves * 32}, combine);
    }
}

}  // namespace

extern const op_entry flash_attn_ext_op;
const op_entry flash_attn_ext_op = {GGML_OP_FLASH_ATTN_EXT, refusal, plan};

}  // namespace strata
