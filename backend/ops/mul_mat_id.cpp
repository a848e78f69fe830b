// MUL_MAT_ID: each pair (token, slot) takes the weights of the expert that `ids` names for it.
//
// Few pairs go through the one-column mat-vec, a pair a grid layer. More are sorted by expert on the device (route_experts) and go through
// the tile kernels of MUL_MAT, of which each workgroup then takes a tile of pairs with one expert. How many tiles the experts need is known
// on the device alone: the grid is sized to the most they can need, pairs / J + experts, and workgroups without a tile end at once.
// Every element of the result is the same bits whatever J and whatever else is in its tile.
#include <string>

#include "ops/mul_mat.h"
#include "ops/tile_columns.h"

namespace strata {

namespace {

constexpr int64_t max_grid = 65535;            // workgroups in y and z
constexpr int64_t max_pairs = 1 << 21;         // a tile list then fits a grid, with
constexpr int64_t max_experts = 32767;
constexpr int64_t max_reach = int64_t(1) << 32;   // bytes that tile kernels reach in activations and result

/// So few that a mat-vec reads hardly more weights than tiles would.
bool few_pairs(const ggml_tensor * w, const ggml_tensor * ids) {
    const int64_t experts = w->ne[2];
    return ids->ne[0] * ids->ne[1] <= (experts / 2 > 8 ? experts / 2 : 8);
}

/// The most tiles of so many columns that the experts can need.
int64_t tile_count(const ggml_tensor * w, int64_t pairs, uint32_t columns) { return pairs / columns + w->ne[2]; }

bool has_tiles(const device_caps & caps, ggml_type type) { return caps.wmma || type == GGML_TYPE_F32; }

const char * refusal(const device_caps & caps, const ggml_tensor * op) {
    const ggml_tensor * w = op->src[0];
    const ggml_tensor * x = op->src[1];
    const ggml_tensor * ids = op->src[2];
    if (const char * reason = product_refusal(op)) {
        return reason;
    }
    if (ids->type != GGML_TYPE_I32) {
        return "ids are not i32";
    }
    if (w->ne[0] == 0 || x->ne[1] == 0 || ids->ne[0] % x->ne[1] != 0) {
        return "activations do not broadcast over the slots";
    }
    const int64_t pairs = ids->ne[0] * ids->ne[1];
    if (pairs > max_pairs || x->ne[2] > max_grid) {
        return "more than 65535 tokens or 2^21 pairs of token and expert";
    }
    if (w->ne[2] > max_experts) {
        return "more than 32767 experts";
    }
    if (!has_tiles(caps, w->type)) {
        if (pairs > max_grid) {
            return "more than 65535 pairs of token and expert need WMMA instructions";
        }
    } else if (w->ne[2] > 0 && tile_count(w, pairs, expert_tile_columns(w->type, double(pairs) / double(w->ne[2]))) > max_grid) {
        return "more than 65535 tiles of pairs of token and expert";
    }
    const int64_t reach = ggml_is_quantized(w->type) ? ggml_nelements(x) : x->ne[1] * int64_t(x->nb[1]) + x->ne[2] * int64_t(x->nb[2]);
    if (reach >= max_reach || int64_t(ggml_nbytes(op)) >= max_reach) {
        return "activations or result of 4 GiB or more";
    }
    return nullptr;
}

/// What the launches have in common.
struct task {
    const ggml_tensor * w;
    const ggml_tensor * x;
    const ggml_tensor * ids;
    int64_t k, rows, pairs;
    expert_choice experts;
    weight_batches batches;

    explicit task(const ggml_tensor * op)
        : w(op->src[0]), x(op->src[1]), ids(op->src[2]), k(w->ne[0]), rows(w->ne[1]), pairs(ids->ne[0] * ids->ne[1]),
          experts(choice_of_experts(op)),
          batches{w->nb[2], 0, make_divisor(1), make_divisor(1), make_divisor(1)} {}

    /// STRATA_DISABLE=mul_mat_vec sends everything through tiles. Without WMMA instructions there are tiles for f32 weights only.
    bool use_mat_vec(const planner & plan) const {
        return !has_tiles(plan.caps(), w->type) || (few_pairs(w, ids) && !plan.disabled("mul_mat_vec"));
    }

    /// Sorts the pairs for tiles of `columns`, once for all nodes of the same experts; the steps are between activations, in the kernel's unit.
    /// STRATA_DISABLE=shared_routing: for each node.
    expert_tiles plan_routing(planner & plan, uint32_t columns, std::size_t token_step, std::size_t slot_step) const {
        const std::size_t list_bytes = std::size_t(tile_count(w, pairs, columns)) * sizeof(expert_tile);
        const planner::shared_memory memory = plan.shared("shared_routing", ids, list_bytes + std::size_t(pairs) * sizeof(expert_column),
            {columns, uint64_t(w->ne[2]), uint64_t(ids->ne[0]), uint64_t(x->ne[1]), token_step, slot_step});
        auto * list = static_cast<expert_tile *>(memory.data);
        auto * sorted = reinterpret_cast<expert_column *>(static_cast<char *>(memory.data) + list_bytes);
        if (memory.made) {
            return {list, sorted};
        }
        const route_args args = {experts, list, sorted, uint32_t(pairs), make_divisor(columns), uint32_t(token_step), uint32_t(slot_step)};
        plan.launch("route_experts", "route_experts", {uint32_t(w->ne[2])}, {256}, args);
        return {list, sorted};
    }

    double rows_an_expert() const { return double(pairs) / double(w->ne[2]); }
};

void plan_quantized(planner & plan, const ggml_tensor * op) {
    const task t(op);
    const std::string type = weight_name(t.w->type);
    const bool mat_vec = t.use_mat_vec(plan);
    mul_mat_q_args args = {t.w->data, nullptr, nullptr, static_cast<float *>(op->data), t.batches,
                           uint32_t(t.w->nb[1]), uint32_t(t.rows), 0, uint32_t(t.k), {}, {}};
    if (mat_vec) {
        args.experts = t.experts;
    }
    if (mat_vec && pairs_quantize(plan, t.w->type, t.x, t.rows * t.k * t.pairs, 1, false)) {
        const dims grid = expert_grid(args.experts, t.ids, tiles(t.rows, mul_mat_quantize_waves), uint32_t(t.pairs));
        const mul_mat_pairs_quantize_args quantizing = {args, pair_activations_of(t.x)};
        const std::string kernel = "mul_mat_vec_pairs_quantize_" + type;
        plan.launch(("mul_mat_vec_" + type).c_str(), kernel.c_str(), grid, {mul_mat_quantize_waves * 32}, quantizing, mul_mat_quantize_lds(uint32_t(t.k), 1));
        return;
    }
    const quantized_activations q = plan_quantize(plan, t.x);
    args.values = q.values;
    args.meta = q.meta;
    if (mat_vec) {
        const uint32_t wave_rows = mat_vec_rows(t.w->type, t.rows * t.pairs, 1, t.k);
        const dims grid = expert_grid(args.experts, t.ids, tiles(t.rows, 4 * wave_rows), uint32_t(t.pairs));
        const std::string kernel = "mul_mat_vec_" + type + "_c1_r" + std::to_string(wave_rows);
        plan.launch(("mul_mat_vec_" + type).c_str(), kernel.c_str(), grid, {128}, args);
    } else {
        const uint32_t columns = expert_tile_columns(t.w->type, t.rows_an_expert());
        args.routed = t.plan_routing(plan, columns, t.x->ne[1], 1);
        const std::string kernel = "mul_mat_" + type + "_j" + std::to_string(columns);
        plan.launch(("mul_mat_" + type).c_str(), kernel.c_str(), {tiles(t.rows, 128), uint32_t(tile_count(t.w, t.pairs, columns))}, {columns > 64 ? 256u : 128u}, args);
    }
}

void plan_float(planner & plan, const ggml_tensor * op) {
    const task t(op);
    const std::string types = std::string(weight_name(t.w->type)) + "_" + weight_name(t.x->type);
    mul_mat_f_args args = {t.w->data, t.x->data, static_cast<float *>(op->data), t.x->nb[1], t.x->nb[2], t.batches,
                           uint32_t(t.w->nb[1]), uint32_t(t.x->nb[1]), uint32_t(t.rows), 0, uint32_t(t.k), {}, {}};
    if (t.use_mat_vec(plan)) {
        args.experts = t.experts;
        const float_mat_vec mat_vec = find_float_mat_vec(plan.caps(), types, t.rows, 1, t.k);
        const dims grid = expert_grid(args.experts, t.ids, tiles(t.rows, mat_vec.rows), uint32_t(t.pairs));
        plan.launch("mul_mat_vec_f", mat_vec.kernel.c_str(), grid, {128}, args);
        return;
    }
    const uint32_t columns = expert_tile_columns(t.w->type, t.rows_an_expert());
    args.routed = t.plan_routing(plan, columns, t.x->nb[2], t.x->nb[1]);
    if (t.w->type == GGML_TYPE_F32) {
        plan.launch("mul_mat_f32", "mul_mat_f32_f32", {tiles(t.rows, 64), uint32_t(tile_count(t.w, t.pairs, columns))}, {128}, args);
    } else {
        const std::string family = std::string("mul_mat_") + weight_name(t.w->type);
        const std::string kernel = "mul_mat_" + types + "_j" + std::to_string(columns);
        plan.launch(family.c_str(), kernel.c_str(), {tiles(t.rows, 128), uint32_t(tile_count(t.w, t.pairs, columns))}, {128}, args);
    }
}

void plan_mul_mat_id(planner & plan, const ggml_tensor * op) {
    if (ggml_is_quantized(op->src[0]->type)) {
        plan_quantized(plan, op);
    } else {
        plan_float(plan, op);
    }
}

}  // namespace

pair_activations pair_activations_of(const ggml_tensor * x) { return {x->data, x->nb[2], x->nb[1]}; }

expert_choice choice_of_experts(const ggml_tensor * op) {
    const ggml_tensor * ids = op->src[2];
    return {ids->data, ids->nb[0], ids->nb[1], make_divisor(uint32_t(ids->ne[0])), make_divisor(uint32_t(op->src[1]->ne[1])),
            make_divisor(1)};
}

dims expert_grid(expert_choice & experts, const ggml_tensor * ids, uint32_t groups, uint32_t layers) {
    // A token's experts all differ, so nothing is shared there. HIP takes up to 2^32 work-items in x.
    if (ids->ne[1] == 1 || uint64_t(groups) * layers > (1u << 22)) {
        return {groups, 1, layers};
    }
    experts.layers = make_divisor(layers);
    return {groups * layers, 1, 1};
}

bool expert_product_is_mat_vec(const device_caps & caps, const ggml_tensor * op) {
    return !has_tiles(caps, op->src[0]->type) || few_pairs(op->src[0], op->src[2]);
}

extern const op_entry mul_mat_id_op;
const op_entry mul_mat_id_op = {GGML_OP_MUL_MAT_ID, refusal, plan_mul_mat_id};

}  // namespace strata
