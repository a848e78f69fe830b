// The choice of keys of a sparse attention (QSA of qwen4exp): copies, slices and masks around its products, each chain one launch.
#include <algorithm>
#include <cmath>

#include "ops/mul_mat.h"
#include "ops/pointwise.h"
#include "plan/fusion.h"
#include "plan/row_operands.h"
#include "strata/args/sparse_index.h"

namespace strata {

namespace {

constexpr int64_t limit = int64_t(1) << 31;

bool has_f32_result(const ggml_tensor * t) { return t->type == GGML_TYPE_F32 && ggml_is_contiguous(t) && ggml_nelements(t) < limit; }
bool f16_or_f32(const ggml_tensor * t) { return (t->type == GGML_TYPE_F16 || t->type == GGML_TYPE_F32) && t->nb[0] == ggml_type_size(t->type); }

dims grid_of(uint32_t items) { return {tiles(items, sparse_block)}; }

// --- sums of slices

/// A sum of slices of one tensor, in their order: the first one is copied, the others may be, and are added one by one.
struct slices {
    const ggml_tensor * base = nullptr;    ///< what they are views of
    std::vector<const ggml_tensor *> views, nodes;

    /// The slices that `sum`, an ADD, is made of. False if it is no such sum.
    bool find(const ggml_tensor * sum) {
        for (; sum->op == GGML_OP_ADD; sum = sum->src[0]) {
            nodes.push_back(sum);
            add(sum->src[1]);
        }
        if (nodes.empty() || sum->op != GGML_OP_CONT) {
            return false;
        }
        add(sum);
        std::reverse(views.begin(), views.end());
        std::reverse(nodes.begin(), nodes.end());
        const ggml_tensor * first = views.front();
        base = first->src[0];
        for (std::size_t i = 0; i < views.size(); ++i) {
            const ggml_tensor * view = views[i];
            if (view->op != GGML_OP_VIEW || view->src[0] != base || !ggml_are_same_layout(view, first) ||
                view->view_offs - first->view_offs != i * step() || view->view_offs < first->view_offs) {
                return false;
            }
        }
        return is_f32_rows(first) && first->ne[3] == 1;
    }

    std::size_t step() const { return views[1]->view_offs - views[0]->view_offs; }

private:
    void add(const ggml_tensor * slice) {
        if (slice->op == GGML_OP_CONT) {
            nodes.push_back(slice);
            slice = slice->src[0];
        }
        views.push_back(slice);
    }
};

// Nodes: those of the slices, then SCALE or the ADD of another tensor if there is one. Operands: where the first slice is, the last slice; then
// the other tensor. With relu, that is the first node, and its source stands for the slices: they are looked up in the nodes.

struct slice_sum {
    slices of;
    const ggml_tensor * last;
    const ggml_tensor * relu = nullptr;
    const ggml_tensor * scale = nullptr;
    const ggml_tensor * other = nullptr;

    bool find(const ggml_tensor * node) {
        last = node;
        const ggml_tensor * sum = node;
        if (node->op == GGML_OP_SCALE) {
            scale = node;
            sum = node->src[0];
        } else if (node->op == GGML_OP_ADD && node->src[1]->op != GGML_OP_VIEW && node->src[1]->op != GGML_OP_CONT &&
                   node->src[0]->op == GGML_OP_ADD) {
            other = node->src[1];
            sum = node->src[0];
        }
        if (sum->op != GGML_OP_ADD || !of.find(sum)) {
            return false;
        }
        const ggml_tensor * made = of.base->op == GGML_OP_RESHAPE ? of.base->src[0] : of.base;
        if (made->op == GGML_OP_UNARY && ggml_get_unary_op(made) == GGML_UNARY_OP_RELU && made == of.base) {
            relu = made;
        }
        return true;
    }
};

bool find_slice_sum(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    slice_sum sum;
    if ((last->op != GGML_OP_SCALE && last->op != GGML_OP_ADD) || !sum.find(last)) {
        return false;
    }
    if (sum.relu) {
        match.nodes.push_back(sum.relu);
    }
    match.nodes.insert(match.nodes.end(), sum.of.nodes.begin(), sum.of.nodes.end());
    if (sum.scale || sum.other) {
        match.nodes.push_back(last);
    }
    if (sum.relu) {
        match.operands = {sum.relu->src[0]};
        for (const ggml_tensor * view : sum.of.views) {
            match.taken.push_back(graph.find(view));
        }
    } else {
        match.operands = sum.of.views;
    }
    if (sum.other) {
        match.operands.push_back(sum.other);
    }
    match.written = {last};
    return add_places(graph, match);
}

bool slice_sum_guard(const fusion_target &, const fusion_match & match) {
    slice_sum sum;
    sum.find(match.nodes.back());
    const ggml_tensor * first = sum.of.views.front();
    for (const ggml_tensor * node : match.nodes) {
        if (node != sum.relu && (!has_f32_result(node) || !ggml_are_same_shape(node, first))) {
            return false;
        }
    }
    if (sum.relu && (!ggml_are_same_layout(sum.relu, sum.relu->src[0]) || !ggml_is_contiguous(sum.relu) || sum.relu->type != GGML_TYPE_F32)) {
        return false;
    }
    return !sum.other || (is_f32_rows(sum.other) && ggml_are_same_shape(sum.other, first));
}

void plan_slice_sum(planner & plan, const fusion_match & match) {
    slice_sum sum;
    sum.find(match.nodes.back());
    const ggml_tensor * first = sum.of.views.front();
    slice_sum_args args = {};
    args.dst = static_cast<float *>(sum.last->data);
    args.src = sum.relu ? static_cast<const char *>(sum.relu->src[0]->data) + (first->view_offs - sum.relu->view_offs) : first->data;
    args.src_stride[0] = first->nb[1];
    args.src_stride[1] = first->nb[2];
    args.src_stride[2] = sum.of.step();
    args.slices = uint32_t(sum.of.views.size());
    args.count = uint32_t(ggml_nelements(sum.last));
    args.ne0 = make_divisor(uint32_t(first->ne[0]));
    args.ne1 = make_divisor(uint32_t(first->ne[1]));
    args.relu = sum.relu != nullptr;
    if (sum.scale) {
        args.scaled = 1;
        args.scale = parameter(sum.scale, 0);
        args.bias = parameter(sum.scale, 1);
    }
    if (sum.other) {
        args.other = sum.other->data;
        args.other_stride[0] = sum.other->nb[1];
        args.other_stride[1] = sum.other->nb[2];
    }
    plan.launch("sparse_index", "slice_sum", grid_of(args.count), {sparse_block}, args);
}

// --- means of blocks of rows that are gathered: the same sum with a scale, of what GET_ROWS gives. Operands: rows, cells.

bool find_block_mean(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    slice_sum sum;
    if (last->op != GGML_OP_SCALE || !sum.find(last)) {
        return false;
    }
    const ggml_tensor * rows = behind_reshapes(graph, sum.of.base, match.taken);
    if (rows->op != GGML_OP_GET_ROWS) {
        return false;
    }
    match.nodes = {rows};
    match.nodes.insert(match.nodes.end(), sum.of.nodes.begin(), sum.of.nodes.end());
    match.nodes.push_back(last);
    for (const ggml_tensor * view : sum.of.views) {
        match.taken.push_back(graph.find(view));
    }
    match.operands = {rows->src[0], rows->src[1]};
    match.written = {last};
    return add_places(graph, match);
}

/// The slices are the members of blocks, of all of them.
bool block_mean_guard(const fusion_target &, const fusion_match & match) {
    slice_sum sum;
    sum.find(match.nodes.back());
    const ggml_tensor * src = match.operands[0];
    const ggml_tensor * cells = match.operands[1];
    const ggml_tensor * gathered = match.nodes.front();
    const ggml_tensor * first = sum.of.views.front();
    const int64_t members = int64_t(sum.of.views.size());
    for (const ggml_tensor * node : match.nodes) {
        if (!has_f32_result(node) || (node != gathered && !ggml_are_same_shape(node, first))) {
            return false;
        }
    }
    const std::size_t row = std::size_t(first->ne[0]) * sizeof(float);
    return f16_or_f32(src) && src->ne[3] == 1 && cells->type == GGML_TYPE_I32 && cells->nb[0] == sizeof(int32_t) && cells->ne[2] == 1 && cells->ne[3] == 1 &&
           first->ne[0] == src->ne[0] && first->ne[1] * members == cells->ne[0] && first->ne[2] == cells->ne[1] && sum.of.step() == row &&
           first->nb[1] == row * std::size_t(members) && first->nb[2] == first->nb[1] * std::size_t(first->ne[1]) && first->view_offs == sum.of.base->view_offs;
}

void plan_block_mean(planner & plan, const fusion_match & match) {
    slice_sum sum;
    sum.find(match.nodes.back());
    const ggml_tensor * src = match.operands[0];
    const ggml_tensor * cells = match.operands[1];
    const uint32_t count = uint32_t(ggml_nelements(sum.last));
    const block_mean_args args = {static_cast<float *>(sum.last->data), src->data, cells->data, {src->nb[1], src->nb[2]}, cells->nb[1],
                                  uint32_t(sum.of.views.size()), count, make_divisor(uint32_t(sum.last->ne[0])),
                                  make_divisor(uint32_t(sum.last->ne[1])), parameter(sum.scale, 0), parameter(sum.scale, 1)};
    plan.launch("sparse_index", src->type == GGML_TYPE_F16 ? "block_mean_f16" : "block_mean_f32", grid_of(count), {sparse_block}, args);
}

// --- the scores of blocks as those of their keys, with the mask. Operands: scores, cells, mask.

/// What `copy`, a CONT, has the first two dimensions of exchanged, or null.
const ggml_tensor * exchanged(const graph_index & graph, const ggml_tensor * copy, fusion_match & match) {
    const ggml_tensor * view = copy->op == GGML_OP_CONT ? copy->src[0] : nullptr;
    if (!view || view->op != GGML_OP_PERMUTE || view->op_params[0] != 1 || view->op_params[1] != 0 || view->op_params[2] != 2) {
        return nullptr;
    }
    match.taken.push_back(graph.find(view));
    return view->src[0];
}

bool find_expand(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    if (last->op != GGML_OP_ADD) {
        return false;
    }
    const ggml_tensor * copy = last->src[0];
    const ggml_tensor * rows = exchanged(graph, copy, match);
    if (!rows || rows->op != GGML_OP_GET_ROWS) {
        return false;
    }
    const ggml_tensor * scores_copy = rows->src[0];
    const ggml_tensor * scores = exchanged(graph, scores_copy, match);
    if (!scores) {
        return false;
    }
    match.nodes = {scores_copy, rows, copy};
    const ggml_tensor * mask = last->src[1];
    std::vector<int> reshapes;
    const ggml_tensor * wide = behind_reshapes(graph, mask, reshapes);
    if (wide->op == GGML_OP_CPY) {
        match.taken.insert(match.taken.end(), reshapes.begin(), reshapes.end());
        match.nodes.push_back(wide);
        mask = wide->src[0];
    }
    match.nodes.push_back(last);
    match.operands = {scores, rows->src[1], mask};
    match.written = {last};
    return add_places(graph, match);
}

/// Strides of the mask between tokens and streams, which it may have in its second and third dimension or in its second and fourth.
struct mask_strides {
    std::size_t token, stream;
    explicit mask_strides(const ggml_tensor * mask) : token(mask->nb[1]), stream(mask->ne[3] != 1 ? mask->nb[3] : mask->nb[2]) {}
};

bool is_mask(const ggml_tensor * mask, int64_t keys, int64_t tokens, int64_t streams) {
    return f16_or_f32(mask) && mask->ne[0] == keys && mask->ne[1] == tokens && (mask->ne[2] == 1 || mask->ne[3] == 1) &&
           mask->ne[2] * mask->ne[3] == streams;
}

bool expand_guard(const fusion_target &, const fusion_match & match) {
    const ggml_tensor * scores = match.operands[0];
    const ggml_tensor * cells = match.operands[1];
    const ggml_tensor * last = match.nodes.back();
    for (const ggml_tensor * node : match.nodes) {
        if (!has_f32_result(node)) {
            return false;
        }
    }
    return scores->type == GGML_TYPE_F32 && scores->ne[3] == 1 && last->ne[3] == 1 && cells->type == GGML_TYPE_I32 &&
           cells->nb[0] == sizeof(int32_t) && cells->ne[0] == last->ne[0] && cells->ne[1] == last->ne[2] && cells->ne[2] == 1 && cells->ne[3] == 1 &&
           scores->ne[1] == last->ne[1] && scores->ne[2] == last->ne[2] && is_mask(match.operands[2], last->ne[0], last->ne[1], last->ne[2]);
}

void plan_expand(planner & plan, const fusion_match & match) {
    const ggml_tensor * scores = match.operands[0];
    const ggml_tensor * cells = match.operands[1];
    const ggml_tensor * mask = match.operands[2];
    const ggml_tensor * last = match.nodes.back();
    const mask_strides strides(mask);
    const uint32_t count = uint32_t(ggml_nelements(last));
    const expand_args args = {static_cast<float *>(last->data), scores->data, cells->data, mask->data, {scores->nb[0], scores->nb[1], scores->nb[2]},
                              cells->nb[1], {strides.token, strides.stream}, count, make_divisor(uint32_t(last->ne[0])),
                              make_divisor(uint32_t(last->ne[1]))};
    plan.launch("sparse_index", mask->type == GGML_TYPE_F16 ? "expand_f16" : "expand_f32", grid_of(count), {sparse_block}, args);
}

// --- the mask of the chosen keys: FILL, and SET_ROWS of a filled tensor into it, and ADD of the mask. Operands: mask, chosen.

/// What a view of all of a tensor's elements, in their order, is a view of.
const ggml_tensor * behind_view(const graph_index & graph, const ggml_tensor * view, fusion_match & match) {
    if (view->op != GGML_OP_VIEW || view->view_offs != 0 || !ggml_is_contiguous(view) || ggml_nelements(view) != ggml_nelements(view->src[0])) {
        return nullptr;
    }
    match.taken.push_back(graph.find(view));
    return view->src[0];
}

bool find_chosen_mask(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    if (last->op != GGML_OP_ADD) {
        return false;
    }
    const ggml_tensor * set = behind_view(graph, last->src[0], match);
    if (!set || set->op != GGML_OP_SET_ROWS || set->src[0]->op != GGML_OP_FILL) {
        return false;
    }
    const ggml_tensor * filled = behind_view(graph, set->src[2], match);
    if (!filled || filled->op != GGML_OP_FILL) {
        return false;
    }
    // what FILL fills is its source's shape; of that of the mask nothing is read
    match.nodes = {set->src[0], filled, set, last};
    match.operands = {last->src[1], set->src[1]};
    match.written = {last};
    return add_places(graph, match);
}

bool chosen_mask_guard(const fusion_target &, const fusion_match & match) {
    const ggml_tensor * ones = match.nodes[0];
    const ggml_tensor * filled = match.nodes[1];
    const ggml_tensor * set = match.nodes[2];
    const ggml_tensor * last = match.nodes.back();
    const ggml_tensor * mask = match.operands[0];
    const ggml_tensor * chosen = match.operands[1];
    const int64_t keys = last->ne[0], tokens = last->ne[1], streams = last->ne[2] * last->ne[3];
    const float in_list = parameter(ones, 0), otherwise = parameter(filled, 0);
    const auto is_plain = [](float v) { return v == 0.0f || std::isinf(v); };   // a number of any type
    if (!is_plain(in_list) || !is_plain(otherwise) || last->type != mask->type || filled->type != mask->type ||
        ones->type != GGML_TYPE_F32 || !ggml_is_contiguous(last) || !ggml_is_contiguous(filled) || !is_mask(mask, keys, tokens, streams) ||
        !ggml_are_same_shape(last, mask) || keys > most_masked_keys || tokens * streams >= limit) {
        return false;
    }
    return set->ne[0] == 1 && set->ne[1] == keys && set->ne[2] == tokens && set->ne[3] == streams && chosen->type == GGML_TYPE_I32 &&
           chosen->nb[0] == sizeof(int32_t) && chosen->ne[1] == tokens && chosen->ne[2] == streams && chosen->ne[3] == 1;
}

void plan_chosen_mask(planner & plan, const fusion_match & match) {
    const ggml_tensor * last = match.nodes.back();
    const ggml_tensor * mask = match.operands[0];
    const ggml_tensor * chosen = match.operands[1];
    const mask_strides strides(mask);
    const uint32_t keys = uint32_t(last->ne[0]);
    const chosen_mask_args args = {last->data, mask->data, chosen->data, {strides.token, strides.stream}, {chosen->nb[1], chosen->nb[2]}, keys,
                                   uint32_t(chosen->ne[0]), make_divisor(uint32_t(last->ne[1])), parameter(match.nodes[0], 0),
                                   parameter(match.nodes[1], 0)};
    plan.launch("sparse_index", mask->type == GGML_TYPE_F16 ? "chosen_mask_f16" : "chosen_mask_f32", {uint32_t(ggml_nrows(last))}, {sparse_block},
                args, chosen_mask_lds(keys));
}

// --- TOP_K, whose result is contiguous, and its copy

bool top_k_guard(const fusion_target &, const fusion_match & match) {
    return ggml_is_contiguous(match.nodes[1]) && ggml_are_same_shape(match.nodes[0], match.nodes[1]) && match.nodes[0]->type == match.nodes[1]->type;
}

void plan_top_k(planner & plan, const fusion_match & match) {
    ggml_tensor node = *match.nodes[0];
    node.data = match.nodes[1]->data;
    find_op(GGML_OP_TOP_K)->plan(plan, &node);
}

// --- SILU of a scaled tensor

bool scale_silu_guard(const fusion_target &, const fusion_match & match) {
    for (const ggml_tensor * each : {match.operands[0], match.nodes[0], match.nodes[1]}) {
        if (each->type != GGML_TYPE_F32) {
            return false;
        }
    }
    return !pointwise_refusal(pointwise_operand(match.nodes[1]), {pointwise_operand(match.operands[0])});
}

void plan_scale_silu(planner & plan, const fusion_match & match) {
    plan_pointwise(plan, "gated", "scale_silu", pointwise_operand(match.nodes[1]), {pointwise_operand(match.operands[0])},
                   {parameter(match.nodes[0], 0), parameter(match.nodes[0], 1)});
}

}  // namespace

/// (a sum of slices, one by one) * scale, or + another tensor, or as it is; the slices may be of relu(x)
extern const fusion_pattern slice_sum_fusion;
const fusion_pattern slice_sum_fusion = {
    .name = "slice_sum",
    .steps = {},
    .guard = slice_sum_guard,
    .plan = plan_slice_sum,
    .find = find_slice_sum,
};

/// The mean of blocks of gathered rows.
extern const fusion_pattern block_mean_fusion;
const fusion_pattern block_mean_fusion = {
    .name = "get_rows_block_mean",
    .steps = {},
    .guard = block_mean_guard,
    .plan = plan_block_mean,
    .find = find_block_mean,
};

/// score[cells] + mask
extern const fusion_pattern expand_fusion;
const fusion_pattern expand_fusion = {
    .name = "get_rows_add_mask",
    .steps = {},
    .guard = expand_guard,
    .plan = plan_expand,
    .find = find_expand,
};

/// mask + (0 where chosen, -inf elsewhere)
extern const fusion_pattern chosen_mask_fusion;
const fusion_pattern chosen_mask_fusion = {
    .name = "fill_set_rows_add_mask",
    .steps = {},
    .in_place = operand_bits({0}),
    .guard = chosen_mask_guard,
    .plan = plan_chosen_mask,
    .find = find_chosen_mask,
};

extern const fusion_pattern top_k_copy_fusion;
const fusion_pattern top_k_copy_fusion = {
    .name = "top_k_cont",
    .steps = {{GGML_OP_TOP_K, {operand(0)}}, {GGML_OP_CONT, {result_of(0)}}},
    .guard = top_k_guard,
    .plan = plan_top_k,
};

/// silu(x * s)
extern const fusion_pattern scale_silu_fusion;
const fusion_pattern scale_silu_fusion = {
    .name = "scale_silu",
    .steps = {{GGML_OP_SCALE, {operand(0)}}, {.op = GGML_OP_UNARY, .sources = {result_of(0)}, .kind = GGML_UNARY_OP_SILU}},
    .in_place = operand_bits({0}),
    .guard = scale_silu_guard,
    .plan = plan_scale_silu,
};

}  // namespace strata
