// The rotary embedding of q and k with the norm of the heads before it and the copy into the cache of keys behind it; both and the copy of v
// into its cache.
#include <algorithm>
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

rope_chain_args make_chain_args(const fusion_match & match) {
    const ggml_tensor * x = match.operands[x_operand];
    rope_chain_args args = {};
    args.rope = make_rope_args(node_of(match, GGML_OP_ROPE));
    args.rope.src = x->data;
    for (int i = 0; i < 3; ++i) {
        args.rope.src_stride[i] = x->nb[i + 1];
    }
    args.length = uint32_t(x->ne[0]);
    if (const ggml_tensor * norm = node_of(match, GGML_OP_RMS_NORM)) {
        args.weight = rows_of(match.operands[weight_operand]);
        args.eps = eps_of(norm);
    }
    if (const ggml_tensor * stored = node_of(match, GGML_OP_SET_ROWS)) {
        const ggml_tensor * index = match.operands[index_operand];
        args.cache = stored->data;
        args.index = index->data;
        args.cache_stride = stored->nb[1];
        args.index_stride = index->nb[0];
    }
    return args;
}

uint32_t head_groups(const rope_chain_args & args) {
    const uint32_t heads_a_block = rope_chain_block / 32;
    return (args.rope.heads + heads_a_block - 1) / heads_a_block;
}

const char * rotated_pairs(const fusion_match & match) { return rotates_neighbours(node_of(match, GGML_OP_ROPE)) ? "neighbours" : "halves"; }

void plan_chain(planner & plan, const fusion_match & match) {
    const rope_chain_args args = make_chain_args(match);
    const std::string kernel = std::string(node_of(match, GGML_OP_RMS_NORM) ? "norm_" : "") + "rope_" + rotated_pairs(match) +
                               (node_of(match, GGML_OP_SET_ROWS) ? "_cache" : "");
    const dims grid = {args.rope.tokens, head_groups(args), uint32_t(match.operands[x_operand]->ne[3])};
    plan.launch("rope_chain", kernel.c_str(), grid, {rope_chain_block}, args);
}

const step_source x = operand(x_operand), positions = operand(positions_operand), factors = optional_operand(factors_operand),
                  weight = operand(weight_operand), index = operand(index_operand), cache = operand(cache_operand);

const std::vector<fusion_step> norm_rope_steps = {
    {GGML_OP_RMS_NORM, {x}}, {GGML_OP_MUL, {result_of(0), weight}}, {GGML_OP_ROPE, {result_of(1), positions, factors}}};
const std::vector<fusion_step> norm_rope_cache_steps = [] {
    std::vector<fusion_step> steps = norm_rope_steps;
    steps.push_back({GGML_OP_SET_ROWS, {reshaped(2), index, cache}});
    return steps;
}();

// --- q, k and v

constexpr int search = 64;                // nodes before the last one in which the others are looked for
constexpr int64_t most_tokens = 64;       // beyond, launches are no cost, and v has a kernel that is made for it
constexpr std::size_t q_operands = 4, k_operands = 6;   // then those of v: the rows, their index, the cache

/// The parts of a match: the chains of q and of k; its last node is that of v.
struct qkv {
    fusion_match q, k;
    const ggml_tensor * v;

    explicit qkv(const fusion_match & match)
        : q(match.part(0, norm_rope_steps.size(), 0, q_operands)),
          k(match.part(norm_rope_steps.size(), norm_rope_cache_steps.size(), q_operands, k_operands)), v(match.nodes.back()) {}
};

/// The nearest chain of these steps before `place`, if it can wait until then. `other`: a node that is none, or null.
bool find_before(const graph_index & graph, const std::vector<fusion_step> & steps, int place, const ggml_tensor * other, fusion_match & match) {
    for (int i = place - 1; i >= std::max(0, place - search); --i) {
        const ggml_tensor * node = graph.graph->nodes[i];
        match = {};
        if (!graph.fused(i) && node != other && node->op == steps.back().op && match_steps(graph, steps, node, match)) {
            return !read_before(graph, i, place);
        }
    }
    return false;
}

bool find_qkv(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    const int place = graph.find(last);
    fusion_match q, k;
    if (last->op != GGML_OP_SET_ROWS || match_steps(graph, norm_rope_cache_steps, last, k) ||
        !find_before(graph, norm_rope_cache_steps, place, nullptr, k) ||
        !find_before(graph, norm_rope_steps, place, node_of(k, GGML_OP_ROPE), q)) {
        return false;
    }
    q.operands.resize(q_operands);
    k.operands.resize(k_operands);
    match.append(q);
    match.append(k);
    match.append({nullptr, {last}, {last->src[0], last->src[1], last->src[2]}, {last}, {place}});
    return true;
}

bool guard_qkv(const fusion_target & target, const fusion_match & match) {
    const qkv parts(match);
    const ggml_tensor * q = node_of(parts.q, GGML_OP_ROPE);
    const ggml_tensor * k = node_of(parts.k, GGML_OP_ROPE);
    const ggml_tensor * rows = parts.v->src[0];
    const ggml_tensor * index = parts.v->src[1];
    return guard(target, parts.q) && guard(target, parts.k) && q->ne[2] <= most_tokens && q->ne[2] == k->ne[2] && q->ne[3] == 1 &&
           rotates_neighbours(q) == rotates_neighbours(k) && f32_matrix(rows) && rows->ne[0] % 4 == 0 && rows->ne[0] < int64_t(1) << 30 &&
           rows->ne[1] == q->ne[2] && parts.v->type == GGML_TYPE_F16 && parts.v->nb[0] == ggml_type_size(GGML_TYPE_F16) &&
           parts.v->ne[0] == rows->ne[0] && parts.v->ne[2] == 1 && parts.v->ne[3] == 1 && ggml_nelements(index) == rows->ne[1];
}

void plan_qkv(planner & plan, const fusion_match & match) {
    const qkv parts(match);
    const ggml_tensor * rows = parts.v->src[0];
    const ggml_tensor * index = parts.v->src[1];
    const rope_chain_args q = make_chain_args(parts.q), k = make_chain_args(parts.k);
    const rope_qkv_args args = {q, k, rows->data, parts.v->data, index->data, rows->nb[1], parts.v->nb[1], index->nb[0],
                                uint32_t(rows->ne[0]), head_groups(q), head_groups(k)};
    const uint32_t v_groups = (args.v_length + 4 * rope_chain_block - 1) / (4 * rope_chain_block);
    plan.launch("rope_chain", (std::string("rope_qkv_") + rotated_pairs(parts.q)).c_str(),
                {q.rope.tokens, args.q_groups + args.k_groups + v_groups}, {rope_chain_block}, args);
}

}  // namespace

extern const fusion_pattern norm_rope_fusion;
const fusion_pattern norm_rope_fusion = {
    .name = "rms_norm_mul_rope",
    .steps = norm_rope_steps,
    .in_place = operand_bits({x_operand}),
    .guard = guard,
    .plan = plan_chain,
};

extern const fusion_pattern norm_rope_cache_fusion;
const fusion_pattern norm_rope_cache_fusion = {
    .name = "rms_norm_mul_rope_set_rows",
    .steps = norm_rope_cache_steps,
    .targets = operand_bits({cache_operand}),
    .guard = guard,
    .plan = plan_chain,
};

/// Both and SET_ROWS of v.
extern const fusion_pattern rope_qkv_fusion;
const fusion_pattern rope_qkv_fusion = {
    .name = "rms_norm_mul_rope_set_rows_qkv",
    .steps = {},
    .targets = operand_bits({int(q_operands) + cache_operand, int(q_operands + k_operands) + 2}),
    .guard = guard_qkv,
    .plan = plan_qkv,
    .find = find_qkv,
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
