// MUL_MAT: weights of any supported type times f32 (or, for f16 weights, f16) activations. Other activations of f16 or bf16 are widened to
// f32 first.
//
// One to eight columns go through a mat-vec (quantized weights: dot4 against activations quantized once a node), more through WMMA tiles,
// or, on a card without those instructions, through the mat-vec eight at a time.
// Dimensions that share a weight matrix become columns of one product: several sequences, or the query heads of one key head, read the
// weights once.
#include "ops/mul_mat.h"

#include <string>
#include <utility>

#include "ops/pointwise.h"
#include "ops/quantized_types.h"
#include "ops/tile_columns.h"
#include "strata/blocks.h"

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"

namespace strata {

static_assert(sizeof(block_q4_0) == sizeof(::block_q4_0) && sizeof(block_q4_1) == sizeof(::block_q4_1));
static_assert(sizeof(block_q5_0) == sizeof(::block_q5_0) && sizeof(block_q5_1) == sizeof(::block_q5_1));
static_assert(sizeof(block_q8_0) == sizeof(::block_q8_0) && sizeof(block_q4_K) == sizeof(::block_q4_K));
static_assert(sizeof(block_q5_K) == sizeof(::block_q5_K) && sizeof(block_q6_K) == sizeof(::block_q6_K));
static_assert(offsetof(block_q5_0, qh) == offsetof(::block_q5_0, qh) && offsetof(block_q4_K, scales) == offsetof(::block_q4_K, scales));
static_assert(offsetof(block_q5_K, qh) == offsetof(::block_q5_K, qh) && offsetof(block_q5_K, qs) == offsetof(::block_q5_K, qs));
static_assert(offsetof(block_q6_K, scales) == offsetof(::block_q6_K, scales) && offsetof(block_q6_K, d) == offsetof(::block_q6_K, d));

namespace {

constexpr int64_t max_grid = 65535;          // workgroups in y and z
constexpr int64_t max_stride = 1 << 24;      // bytes between rows: kernels address a tile of up to 128 with 32 bits
constexpr int64_t max_k = 1 << 24;           // elements of a row, for the same reason
constexpr int64_t max_length = 1 << 30;      // elements of the other dimensions

/// The product as the kernels see it: matrices (channels x samples) of columns, each matrix with the weights it belongs to.
struct product {
    int64_t columns;                     ///< a matrix
    int64_t channels, samples;           ///< matrices in dimensions 2 and 3
    int64_t ratio2, ratio3;              ///< matrices that share weights
    std::size_t column_stride, stride2, stride3;   ///< of the activations, bytes
};

/// Joins dimensions of the activations that share a weight matrix. `any_stride`: the activations are copied on the way (quantized), so
/// their strides do not matter; else a column stride must remain.
product fold(const ggml_tensor * w, const ggml_tensor * x, bool any_stride) {
    product p = {x->ne[1], x->ne[2], x->ne[3], x->ne[2] / w->ne[2], x->ne[3] / w->ne[3], x->nb[1], x->nb[2], x->nb[3]};
    const auto join = [&](int64_t count, std::size_t stride) {
        if (p.columns == 1) {
            p.column_stride = stride;
        }
        p.columns *= count;
    };
    const auto joins = [&](std::size_t stride) {
        return any_stride || (p.columns == 1 && stride <= max_stride) || stride == p.columns * p.column_stride;
    };
    if (p.ratio2 > 1 && joins(p.stride2)) {
        join(p.ratio2, p.stride2);
        p.channels /= p.ratio2;
        p.stride2 *= p.ratio2;
        p.ratio2 = 1;
    }
    if (p.ratio3 > 1 && p.channels == 1 && joins(p.stride3)) {
        join(p.ratio3, p.stride3);
        p.samples /= p.ratio3;
        p.stride3 *= p.ratio3;
        p.ratio3 = 1;
    }
    return p;
}

bool quantized(const ggml_tensor * w) { return ggml_is_quantized(w->type); }

}  // namespace

const char * weight_name(ggml_type type) {
    const char * name = float_type_name(type);
    return name ? name : quantized_type_name(type);
}

uint32_t tiles(int64_t count, int64_t tile) { return uint32_t((count + tile - 1) / tile); }

/// Types whose weights take so many registers or instructions on the way to bytes that four rows leave too few waves to hide it.
static bool one_row_a_wave(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q6_K:
        case GGML_TYPE_MXFP4:
        case GGML_TYPE_IQ1_S:
        case GGML_TYPE_IQ1_M:
        case GGML_TYPE_IQ2_XXS:
        case GGML_TYPE_IQ2_XS:
        case GGML_TYPE_IQ2_S:
        case GGML_TYPE_IQ3_XXS:
        case GGML_TYPE_IQ3_S: return true;
        default: return false;
    }
}

uint32_t mat_vec_rows(ggml_type weights, int64_t rows, int64_t columns, int64_t k) {
    if (columns > 1) {
        return 2;
    }
    if (one_row_a_wave(weights)) {
        return 1;
    }
    return rows >= 4096 || (rows >= 2048 && k <= 1024) ? 4 : 1;
}

uint32_t mat_vec_lanes(int64_t k) { return k <= 256 ? 8 : 32; }

float_mat_vec find_float_mat_vec(const device_caps & caps, const std::string & types, int64_t rows, int64_t columns, int64_t k) {
    // Two rows share the loads of the activations, where that leaves enough waves and, with many columns, registers.
    const uint32_t lanes = mat_vec_lanes(k), wave_rows = caps.wave_size == 32 && lanes == 32 && columns > 1 && columns <= 6 && rows >= 512 ? 2 : 1;
    return {"mul_mat_vec_" + types + "_c" + std::to_string(columns) + "_l" + std::to_string(lanes) + "_r" + std::to_string(wave_rows),
            4 * 32 / lanes * wave_rows};
}

const char * product_refusal(const ggml_tensor * op) {
    const ggml_tensor * w = op->src[0];
    const ggml_tensor * x = op->src[1];
    if (!weight_name(w->type)) {
        return "weight type has no kernel";
    }
    if (x->type != GGML_TYPE_F32 && !(x->type == GGML_TYPE_F16 && w->type == GGML_TYPE_F16)) {
        return "activations are not f32 (or f16 with f16 weights)";
    }
    if (op->type != GGML_TYPE_F32 || !ggml_is_contiguous(op)) {
        return "result is not contiguous f32";
    }
    if (w->nb[0] != ggml_type_size(w->type) || x->nb[0] != ggml_type_size(x->type)) {
        return "rows of an operand are not contiguous";
    }
    if (w->ne[0] > max_k) {
        return "rows of more than 2^24 elements";
    }
    for (int i = 1; i < 4; ++i) {
        if (w->ne[i] > max_length || x->ne[i] > max_length) {
            return "a dimension of more than 2^30 elements";
        }
    }
    if (int64_t(w->nb[1]) > max_stride || int64_t(x->nb[1]) > max_stride) {
        return "rows more than 16 MiB apart";
    }
    return nullptr;
}

/// Memory for the quantized form of `x`, and whether it has been made.
static std::pair<quantized_activations, bool> quantized_memory(planner & plan, const ggml_tensor * x, planner::made_of what) {
    const std::size_t values = std::size_t(ggml_nelements(x)), value_bytes = (values + 255) / 256 * 256;
    const planner::shared_memory memory = plan.shared("shared_q8_1", x, value_bytes + values / 32 * sizeof(q8_1_meta), {}, what);
    return {{memory.data, static_cast<char *>(memory.data) + value_bytes}, memory.made};
}

quantized_activations room_for_quantized(planner & plan, const ggml_tensor * result) {
    return quantized_memory(plan, result, planner::made_of::result).first;
}

quantized_activations plan_quantize(planner & plan, const ggml_tensor * x) {
    const int64_t k = x->ne[0];
    const auto [q, made] = quantized_memory(plan, x, planner::made_of::operand);
    if (made) {
        return q;
    }
    const quantize_args args = {x->data, q.values, q.meta, x->nb[1], x->nb[2], x->nb[3], uint32_t(k), uint32_t(x->ne[1]), make_divisor(x->ne[2])};
    plan.launch("quantize_q8_1", "quantize_q8_1", {uint32_t(x->ne[1]), tiles(k, 512), uint32_t(x->ne[2] * x->ne[3])}, {128}, args);
    return q;
}

namespace {

/// Weights (elements of all matrices that are read) up to which a mat-vec quantizes its activations itself: where the time model gains by it. Each
/// workgroup does it anew, which with more rows, longer ones and more columns is too much.
struct quantizing_range {
    int64_t one_column, more_columns;
    int64_t pairs, glu;   ///< pairs of token and slot with experts' weights; gated units
    int64_t pairs_k;      ///< the shortest columns of pairs
};

quantizing_range weights_that_quantize(ggml_type type) {
    switch (type) {
        case GGML_TYPE_Q8_0: return {1 << 24, 1 << 23, 1 << 26, 1 << 27, 0};
        case GGML_TYPE_Q4_0:
        case GGML_TYPE_MXFP4: return {1 << 24, 1 << 21, 1 << 26, 1 << 27, 0};
        case GGML_TYPE_Q4_K: return {1 << 24, 1 << 22, 1 << 26, 1 << 27, 0};
        case GGML_TYPE_Q6_K:
        case GGML_TYPE_IQ4_XS: return {1 << 24, 1 << 21, 1 << 26, 1 << 25, 0};
        case GGML_TYPE_Q5_K: return {1 << 24, 1 << 22, 1 << 26, 1 << 25, 0};
        case GGML_TYPE_IQ3_XXS: return {1 << 24, 1 << 22, 1 << 26, 1 << 25, 1024};
        case GGML_TYPE_IQ2_S: return {1 << 24, 1 << 21, 1 << 26, 1 << 25, 1024};
        default: return {1 << 24, 1 << 21, 1 << 24, 1 << 24, 1024};
    }
}

/// Longest columns: a workgroup asks for so many values before it asks for weights.
int64_t longest_that_quantize(int64_t columns) { return columns == 1 ? 8192 : 4096; }

static_assert(mul_mat_quantize_lds(4096, max_mat_vec_columns) <= 49152);   // a processor holds two workgroups

/// What holds for all that quantize themselves.
bool may_quantize(const planner & plan, const ggml_tensor * x, int64_t columns, int readers) {
    return plan.caps().wave_size == 32 && x->type == GGML_TYPE_F32 && x->ne[0] != 0 && x->ne[0] <= longest_that_quantize(columns) && x->ne[3] == 1 &&
           !plan.disabled("mul_mat_vec_quantize") && plan.quantized_here_alone(x, readers);
}

}  // namespace

bool mat_vec_quantizes(const planner & plan, ggml_type weights, const ggml_tensor * x, int64_t rows, int readers) {
    const quantizing_range range = weights_that_quantize(weights);
    const int64_t columns = x->ne[1];
    return x->ne[2] == 1 && rows * x->ne[0] <= (columns == 1 ? range.one_column : range.more_columns) && may_quantize(plan, x, columns, readers);
}

bool pairs_quantize(const planner & plan, ggml_type type, const ggml_tensor * x, int64_t weights, int readers, bool glu) {
    const quantizing_range range = weights_that_quantize(type);
    return (glu ? weights <= range.glu : weights <= range.pairs && x->ne[0] >= range.pairs_k) && may_quantize(plan, x, 1, readers);
}

void add_members(mul_mat_group_args & args, const std::vector<const ggml_tensor *> & products, uint32_t rows_a_block) {
    for (std::size_t i = 0; i < products.size(); ++i) {
        const ggml_tensor * w = products[i]->src[0];
        args.end += tiles(w->ne[1], rows_a_block);
        args.members[i] = {w->data, static_cast<float *>(products[i]->data), uint32_t(w->nb[1]), uint32_t(w->ne[1]), args.end};
    }
}

void plan_quantizing_mat_vec(planner & plan, const ggml_tensor * x, const std::vector<const ggml_tensor *> & products) {
    const uint32_t k = uint32_t(x->ne[0]), columns = uint32_t(x->ne[1]), wave_rows = columns == 1 ? 1 : 2;
    mul_mat_quantize_args args = {x->data, x->nb[1], {}};
    args.group.k = k;
    add_members(args.group, products, mul_mat_quantize_waves * wave_rows);
    const std::string family = std::string("mul_mat_vec_") + weight_name(products[0]->src[0]->type);
    const std::string kernel = std::string("mul_mat_vec_quantize_") + weight_name(products[0]->src[0]->type) + "_c" + std::to_string(columns);
    plan.launch(family.c_str(), kernel.c_str(), {args.group.end}, {mul_mat_quantize_waves * 32}, args, mul_mat_quantize_lds(k, columns));
}

namespace {

/// The conversion of activations that no kernel takes with these weights, or nullptr.
const char * widening(const ggml_tensor * op) {
    switch (op->src[1]->type) {
        case GGML_TYPE_F16: return op->src[0]->type != GGML_TYPE_F16 ? "copy_f16_f32" : nullptr;
        case GGML_TYPE_BF16: return "copy_bf16_f32";
        default: return nullptr;
    }
}

const char * refusal(const device_caps & caps, const ggml_tensor * op) {
    if (widening(op)) {
        ggml_tensor wide = contiguous_f32(op->src[1]), product = *op;
        product.src[1] = &wide;
        const char * reason = refusal(caps, &product);
        return reason ? reason : pointwise_refusal(pointwise_operand(&wide), {pointwise_operand(op->src[1])});
    }
    const ggml_tensor * w = op->src[0];
    const ggml_tensor * x = op->src[1];
    if (const char * reason = product_refusal(op)) {
        return reason;
    }
    if (w->ne[2] == 0 || w->ne[3] == 0 || x->ne[2] % w->ne[2] != 0 || x->ne[3] % w->ne[3] != 0) {
        return "activations do not broadcast over the weights";
    }
    const product p = fold(w, x, quantized(w));
    if (p.channels * p.samples > max_grid || x->ne[2] * x->ne[3] > max_grid) {
        return "more than 65535 matrices";
    }
    if (p.columns > max_mat_vec_columns) {
        if ((p.columns + 15) / 16 > max_grid) {
            return "more than 2^20 columns";
        }
        if (!caps.wmma && p.columns / max_mat_vec_columns > max_grid) {
            return "more than 2^19 columns without WMMA instructions";
        }
    }
    return nullptr;
}

weight_batches batches_of(const ggml_tensor * w, const product & p) {
    return {w->nb[2], w->nb[3], make_divisor(p.channels), make_divisor(p.ratio2), make_divisor(p.ratio3)};
}

/// STRATA_DISABLE=mul_mat_vec sends everything through tiles, which can do any number of columns. Without WMMA instructions there are tiles
/// for f32 weights only.
bool use_mat_vec(const planner & plan, const product & p, ggml_type weights, int64_t rows) {
    if (!plan.caps().wmma && weights != GGML_TYPE_F32) {
        return true;
    }
    // So few rows are four workgroups of a tile, each of which waits for memory alone: two groups of eight columns are done sooner.
    const bool few_tiles = ggml_is_quantized(weights) && p.columns == 2 * max_mat_vec_columns && rows * p.channels * p.samples <= 512;
    return (p.columns <= max_mat_vec_columns || few_tiles) && !(plan.caps().wmma && plan.disabled("mul_mat_vec"));
}

/// A mat-vec of any number of columns: calls launch(first column, columns a group, groups) for the groups of eight and for the rest.
template <class Launch>
void for_column_groups(int64_t columns, const Launch & launch) {
    const int64_t eights = columns / max_mat_vec_columns, rest = columns % max_mat_vec_columns;
    if (eights > 0) {
        launch(int64_t(0), max_mat_vec_columns, uint32_t(eights));
    }
    if (rest > 0) {
        launch(eights * max_mat_vec_columns, rest, 1u);
    }
}

void plan_quantized(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * w = op->src[0];
    const ggml_tensor * x = op->src[1];
    const product p = fold(w, x, true);
    const int64_t k = w->ne[0], rows = w->ne[1];
    const uint32_t matrices = uint32_t(p.channels * p.samples);
    if (ggml_n_dims(w) <= 2 && p.columns <= max_mat_vec_columns && use_mat_vec(plan, p, w->type, rows) && mat_vec_quantizes(plan, w->type, x, rows, 1)) {
        plan_quantizing_mat_vec(plan, x, {op});
        return;
    }
    const quantized_activations q = plan_quantize(plan, x);

    const mul_mat_q_args args = {w->data, q.values, q.meta, static_cast<float *>(op->data), batches_of(w, p),
                                 uint32_t(w->nb[1]), uint32_t(rows), uint32_t(p.columns), uint32_t(k), {}, {}};
    const std::string type = weight_name(w->type);
    if (use_mat_vec(plan, p, w->type, rows)) {
        for_column_groups(p.columns, [&](int64_t first, int64_t columns, uint32_t groups) {
            const uint32_t wave_rows = mat_vec_rows(w->type, rows, columns, k);
            const std::string kernel = "mul_mat_vec_" + type + "_c" + std::to_string(columns) + "_r" + std::to_string(wave_rows);
            mul_mat_q_args some = args;
            some.values = static_cast<const char *>(args.values) + first * k;
            some.meta = static_cast<const char *>(args.meta) + first * k / 32 * sizeof(q8_1_meta);
            some.dst += first * rows;
            plan.launch(("mul_mat_vec_" + type).c_str(), kernel.c_str(), {tiles(rows, 4 * wave_rows), groups, matrices}, {128}, some);
        });
    } else {
        const uint32_t tile = dense_tile_columns(plan.caps(), w->type, rows, p.columns, matrices);
        const std::string kernel = "mul_mat_" + type + "_j" + std::to_string(tile);
        const dims grid = {tiles(rows, 128), tiles(p.columns, tile), matrices};
        plan.launch(("mul_mat_" + type).c_str(), kernel.c_str(), grid, {tile > 64 ? 256u : 128u}, args);
    }
}

void plan_float(planner & plan, const ggml_tensor * op) {
    const ggml_tensor * w = op->src[0];
    const ggml_tensor * x = op->src[1];
    const product p = fold(w, x, false);
    const int64_t k = w->ne[0], rows = w->ne[1];
    const mul_mat_f_args args = {w->data, x->data, static_cast<float *>(op->data), p.stride2, p.stride3, batches_of(w, p),
                                 uint32_t(w->nb[1]), uint32_t(p.column_stride), uint32_t(rows), uint32_t(p.columns), uint32_t(k), {}, {}};
    const uint32_t matrices = uint32_t(p.channels * p.samples);
    const std::string types = std::string(weight_name(w->type)) + "_" + weight_name(x->type);
    if (use_mat_vec(plan, p, w->type, rows)) {
        for_column_groups(p.columns, [&](int64_t first, int64_t columns, uint32_t groups) {
            const float_mat_vec mat_vec = find_float_mat_vec(plan.caps(), types, rows, columns, k);
            mul_mat_f_args some = args;
            some.activations = static_cast<const char *>(args.activations) + first * p.column_stride;
            some.dst += first * rows;
            plan.launch("mul_mat_vec_f", mat_vec.kernel.c_str(), {tiles(rows, mat_vec.rows), groups, matrices}, {128}, some);
        });
    } else if (w->type == GGML_TYPE_F32) {
        plan.launch("mul_mat_f32", "mul_mat_f32_f32", {tiles(rows, 64), tiles(p.columns, 64), matrices}, {128}, args);
    } else {
        const uint32_t tile = dense_tile_columns(plan.caps(), w->type, rows, p.columns, matrices);
        const std::string family = std::string("mul_mat_") + weight_name(w->type);
        const std::string kernel = "mul_mat_" + types + "_j" + std::to_string(tile);
        plan.launch(family.c_str(), kernel.c_str(), {tiles(rows, 128), tiles(p.columns, tile), matrices}, {128}, args);
    }
}

void plan_mul_mat(planner & plan, const ggml_tensor * op) {
    if (const char * kernel = widening(op)) {
        ggml_tensor wide = contiguous_f32(op->src[1]), product = *op;
        wide.data = plan.scratch(ggml_nbytes(&wide));
        if (!ggml_is_empty(&wide)) {
            plan_pointwise(plan, "copy", kernel, pointwise_operand(&wide), {pointwise_operand(op->src[1])});
        }
        product.src[1] = &wide;
        plan_mul_mat(plan, &product);
        return;
    }
    if (quantized(op->src[0])) {
        plan_quantized(plan, op);
    } else {
        plan_float(plan, op);
    }
}

}  // namespace

extern const op_entry mul_mat_op;
const op_entry mul_mat_op = {GGML_OP_MUL_MAT, refusal, plan_mul_mat};

}  // namespace strata
