// The rotary embedding of q and k with the norm of the heads before it and the copy into the cache of keys behind it.
#include <string>

#include "ops/rope.h"
#include "plan/fusion.h"
#include "plan/row_operands.h"
#include "strata/args/rope_chain.h"

namespace strata {

namespace {

// Steps are any of RMS_NORM and MUL, then ROPE, then SET_ROWS. Operands: x, positions, factors, weight, index, cache.
enum : int { x_operand, positions_operand, factors_operand, weight_operand, index_operand, cache_operand };

const ggml_tensor * node_of(const fusion_match & match, ggml_op op) {
    for (const ggml_tensor * node : match.nodes) {
        if (node->op == op) {
            return node;
        }
    }
    return nullptr;
}

bool guard(const fusion_target & target, const fusion_match & match) {
    const ggml_tensor * x = match.operands[x_operand];
    const ggml_tensor * rope = node_of(match, GGML_OP_ROPE);
    if (target.caps.wave_size != 32 || !is_f32_rows(x) || !is_f32_rows(rope) || !ggml_are_same_shape(x, rope) || x->ne[0] % 4 != 0 ||
        x->ne[0] > rope_chain_length || make_rope_args(rope).pairs > rope_chain_length) {
        return false;
    }
    if (const ggml_tensor * norm = node_of(match, GGML_OP_RMS_NORM)) {
        const ggml_tensor * product = node_of(match, GGML_OP_MUL);
        if (!is_f32_rows(norm) || !is_f32_rows(product) || !ggml_are_same_shape(product, x) || !repeats_to(match.operands[weight_operand], x)) {
            return false;
        }
    }
    if (const ggml_tensor * stored = node_of(match, GGML_OP_SET_ROWS)) {
        const ggml_tensor * rows = stored->src[0];
        const ggml_tensor * index = match.operands[index_operand];
        return stored->type == GGML_TYPE_F16 && stored->nb[0] == ggml_type_size(GGML_TYPE_F16) && stored->ne[0] == x->ne[0] * x->ne[1] &&
               stored->ne[2] == 1 && stored->ne[3] == 1 && rows->ne[0] == stored->ne[0] && rows->ne[1] == x->ne[2] && rows->ne[2] == 1 &&
               rows->ne[3] == 1 && ggml_nelements(index) == x->ne[2] && x->ne[3] == 1;
    }
    return true;
}

void plan_chain(planner & plan, const fusion_match & match) {
    const ggml_tensor * rope = node_of(match, GGML_OP_ROPE);
    const ggml_tensor * x = match.operands[x_operand];
    rope_chain_args args = {};
    args.rope = make_rope_args(rope);
    args.rope.src = x->data;
    for (int i = 0; i < 3; ++i) {
        args.rope.src_stride[i] = x->nb[i + 1];
    }
    args.length = uint32_t(x->ne[0]);
    std::string kernel;
    if (const ggml_tensor * norm = node_of(match, GGML_OP_RMS_NORM)) {
        args.weight = rows_of(match.operands[weight_operand]);
        args.eps = eps_of(norm);
        kernel = "norm_";
    }
    kernel += rotates_neighbours(rope) ? "rope_neighbours" : "rope_halves";
    if (const ggml_tensor * stored = node_of(match, GGML_OP_SET_ROWS)) {
        const ggml_tensor * index = match.operands[index_operand];
        args.cache = stored->data;
        args.index = index->data;
        args.cache_stride = stored->nb[1];
        args.index_stride = index->nb[0];
        kernel += "_cache";
    }
    const uint32_t heads_a_block = rope_chain_block / 32;
    const dims grid = {args.rope.tokens, (args.rope.heads + heads_a_block - 1) / heads_a_block, uint32_t(x->ne[3])};
    plan.launch("rope_chain", kernel.c_str(), grid, {rope_chain_block}, args);
}

const step_source x = operand(x_operand), positions = operand(positions_operand), factors = optional_operand(factors_operand),
                  weight = operand(weight_operand), index = operand(index_operand), cache = operand(cache_operand);

}  // namespace

extern const fusion_pattern norm_rope_fusion;
const fusion_pattern norm_rope_fusion = {
    .name = "rms_norm_mul_rope",
    .steps = {{GGML_OP_RMS_NORM, {x}}, {GGML_OP_MUL, {result_of(0), weight}}, {GGML_OP_ROPE, {result_of(1), positions, factors}}},
    .in_place = operand_bits({x_operand}),
    .guard = guard,
    .plan = plan_chain,
};

extern const fusion_pattern norm_rope_cache_fusion;
const fusion_pattern norm_rope_cache_fusion = {
    .name = "rms_norm_mul_rope_set_rows",
    .steps = {{GGML_OP_RMS_NORM, {x}},
              {GGML_OP_MUL, {result_of(0), weight}},
              {GGML_OP_ROPE, {result_of(1), positions, factors}},
              {GGML_OP_SET_ROWS, {reshaped(2), index, cache}}},
    .targets = operand_bits({cache_operand}),
    .guard = guard,
    .plan = plan_chain,
};

extern const fusion_pattern rope_cache_fusion;
const fusion_pattern rope_cache_fusion = {
    .name = "rope_set_rows",
    .steps = {{GGML_OP_ROPE, {x, positions, factors}}, {GGML_OP_SET_ROWS, {reshaped(0), index, cache}}},
    .targets = operand_bits({cache_operand}),
    .guard = guard,
    .plan = plan_chain,
};

}  // namespace strata
