// Per-layer embeddings (qwen4exp): the gate of the value that is looked up, and the dilated convolution that is made of copies of shifted views,
// with the way of its states from and to the cache.
#include <algorithm>
#include <string>

#include "ops/mul_mat.h"
#include "plan/fusion.h"
#include "plan/kept_states.h"
#include "plan/row_operands.h"
#include "strata/args/per_layer.h"

namespace strata {

namespace {

constexpr int64_t limit = int64_t(1) << 31;

// --- the gate

namespace gate {

enum : int { key, key_weight, query, query_weight, value, weight };
enum : int { key_norm, key_mul, query_norm, query_mul, product, sum, scaled, sign, magnitude, clamped, root, signed_root, factor, repeated, gated, norm, normed };

const std::vector<fusion_step> steps = {
    {GGML_OP_RMS_NORM, {operand(key)}},
    {GGML_OP_MUL, {result_of(key_norm), operand(key_weight)}},
    {GGML_OP_RMS_NORM, {operand(query)}},
    {GGML_OP_MUL, {result_of(query_norm), operand(query_weight)}},
    {GGML_OP_MUL, {result_of(key_mul), result_of(query_mul)}},
    {GGML_OP_SUM_ROWS, {result_of(product)}},
    {GGML_OP_SCALE, {result_of(sum)}},
    {.op = GGML_OP_UNARY, .sources = {result_of(scaled)}, .kind = GGML_UNARY_OP_SGN},
    {.op = GGML_OP_UNARY, .sources = {result_of(scaled)}, .kind = GGML_UNARY_OP_ABS},
    {GGML_OP_CLAMP, {result_of(magnitude)}},
    {GGML_OP_SQRT, {result_of(clamped)}},
    {GGML_OP_MUL, {result_of(sign), result_of(root)}},
    {.op = GGML_OP_UNARY, .sources = {result_of(signed_root)}, .kind = GGML_UNARY_OP_SIGMOID},
    {GGML_OP_REPEAT, {operand(value)}},
    {.op = GGML_OP_MUL, .sources = {result_of(repeated), result_of(factor)}, .written = true},
    {GGML_OP_RMS_NORM, {reshaped(gated)}},
    {GGML_OP_MUL, {result_of(norm), operand(weight)}},
};

bool guard(const fusion_target & target, const fusion_match & match) {
    const ggml_tensor * rows = match.nodes[gated];
    if (target.caps.wave_size != 32 || rows->ne[3] != 1 || rows->ne[0] % 4 != 0 || rows->ne[0] > per_layer_row || ggml_nelements(rows) >= limit) {
        return false;
    }
    for (const int step : {key_norm, key_mul, query_norm, query_mul, product, repeated, gated, norm, normed}) {
        if (!is_f32_rows(match.nodes[std::size_t(step)]) || !ggml_are_same_shape(match.nodes[std::size_t(step)], rows)) {
            return false;
        }
    }
    const ggml_tensor * sums = match.nodes[sum];
    for (int step = sum; step <= factor; ++step) {
        if (match.nodes[std::size_t(step)]->type != GGML_TYPE_F32 || !ggml_are_same_shape(match.nodes[std::size_t(step)], sums)) {
            return false;
        }
    }
    for (const int each : {key, query}) {
        if (!is_f32_rows(match.operands[std::size_t(each)])) {   // of the norms' shape, as these are
            return false;
        }
    }
    for (const int each : {key_weight, query_weight, value, weight}) {
        if (!repeats_to(match.operands[std::size_t(each)], rows)) {
            return false;
        }
    }
    return true;
}

void plan(planner & plan, const fusion_match & match) {
    const auto operand = [&](int number) { return rows_of(match.operands[std::size_t(number)]); };
    per_layer_gate_args args = {};
    args.gated = rows_of(match.nodes[gated]);
    args.normed = rows_of(match.nodes[normed]);
    args.key = operand(key);
    args.query = operand(query);
    args.key_weight = operand(key_weight);
    args.query_weight = operand(query_weight);
    args.weight = operand(weight);
    args.value = operand(value);
    args.row = uint32_t(match.nodes[gated]->ne[0]);
    args.rows = uint32_t(ggml_nrows(match.nodes[gated]));
    args.streams = make_divisor(uint32_t(match.nodes[gated]->ne[1]));
    args.key_eps = eps_of(match.nodes[key_norm]);
    args.query_eps = eps_of(match.nodes[query_norm]);
    args.eps = eps_of(match.nodes[norm]);
    args.scale = parameter(match.nodes[scaled], 0);
    args.bias = parameter(match.nodes[scaled], 1);
    args.least = parameter(match.nodes[clamped], 0);
    args.most = parameter(match.nodes[clamped], 1);
    const bool in_wave = args.row <= norm_wave_row;
    plan.launch("per_layer", in_wave ? "per_layer_gate_wave" : "per_layer_gate_row", {in_wave ? tiles(args.rows, norm_block / 32) : args.rows},
                {norm_block}, args);
}

}  // namespace gate

// --- the convolution

namespace conv {

// Operands. Those from `first_target` on are what states are copied into.
enum : int { states_operand, rows_operand, x_operand, weights_operand, other_operand, first_target };

/// The nodes of a match but for the copies, found from the last one: other + silu(sum of products).
struct chain {
    const ggml_tensor * last = nullptr;
    const ggml_tensor * other = nullptr;
    const ggml_tensor * concat = nullptr;    // states and tokens
    const ggml_tensor * gather = nullptr;    // GET_ROWS of the states
    const ggml_tensor * weights = nullptr;
    std::vector<const ggml_tensor *> products, windows, columns;   // of the taps: MUL, and the views of concat and of weights
    std::vector<const ggml_tensor *> nodes, views;

    /// A source, and the node that it must be a reshape of.
    struct reshape {
        const ggml_tensor * source;
        const ggml_tensor * node;
    };
    std::vector<reshape> reshapes;

    explicit chain(const ggml_tensor * node) {
        for (int side = 0; side < 2 && is(node, GGML_OP_ADD) && !complete(); ++side) {
            *this = chain(node, side);
        }
    }

    bool complete() const { return gather != nullptr; }
    int64_t taps() const { return int64_t(products.size()); }
    int64_t history() const { return concat->ne[0] - tokens(); }
    int64_t tokens() const { return concat->src[1]->ne[0]; }
    int64_t channels() const { return concat->ne[1]; }
    int64_t sequences() const { return concat->ne[2]; }

private:
    chain(const ggml_tensor * node, int side) : last(node), other(node->src[1 - side]) {
        const ggml_tensor * copy = behind(node->src[side]);
        const ggml_tensor * silu = is(copy, GGML_OP_CONT) ? copy->src[0] : nullptr;
        if (!is(silu, GGML_OP_UNARY) || ggml_get_unary_op(silu) != GGML_UNARY_OP_SILU) {
            return;
        }
        nodes.push_back(silu);
        const ggml_tensor * sum = silu->src[0];
        for (; is(sum, GGML_OP_ADD) && is(sum->src[1], GGML_OP_MUL); sum = sum->src[0]) {
            nodes.push_back(sum);
            products.push_back(sum->src[1]);
        }
        products.push_back(sum);
        std::reverse(products.begin(), products.end());
        for (const ggml_tensor * product : products) {
            if (!is(product, GGML_OP_MUL) || !add_tap(product)) {
                return;
            }
        }
        if (!is(concat, GGML_OP_CONCAT)) {
            return;
        }
        nodes.push_back(concat);
        const ggml_tensor * found = behind(concat->src[0]);
        gather = is(found, GGML_OP_GET_ROWS) ? found : nullptr;
    }

    /// What a source is a view of, as one of the nodes.
    const ggml_tensor * behind(const ggml_tensor * source) {
        const ggml_tensor * node = owner_of(source);
        reshapes.push_back({source, node});
        nodes.push_back(node);
        return node;
    }

    /// A copy of a transposed window of concat, and one of a column of weights, which may be converted behind it.
    bool add_tap(const ggml_tensor * product) {
        const ggml_tensor * copy = product->src[0];
        const ggml_tensor * transposed = is(copy, GGML_OP_CONT) ? copy->src[0] : nullptr;
        const ggml_tensor * window = is(transposed, GGML_OP_TRANSPOSE) ? transposed->src[0] : nullptr;
        const ggml_tensor * column = behind(product->src[1]);
        if (is(column, GGML_OP_CPY)) {
            column = behind(column->src[0]);
        }
        const ggml_tensor * view = is(column, GGML_OP_CONT) ? column->src[0] : nullptr;
        if (!is(window, GGML_OP_VIEW) || !is(view, GGML_OP_VIEW) || (concat != nullptr && (window->src[0] != concat || view->src[0] != weights))) {
            return false;
        }
        nodes.insert(nodes.end(), {product, copy});
        views.insert(views.end(), {transposed, window, view});
        concat = window->src[0];
        weights = view->src[0];
        windows.push_back(window);
        columns.push_back(view);
        return true;
    }
};

bool find(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    const chain c(last);
    if (!c.complete()) {
        return false;
    }
    for (const chain::reshape & each : c.reshapes) {
        if (behind_reshapes(graph, each.source, match.taken) != each.node) {
            return false;
        }
    }
    match.nodes = c.nodes;
    match.operands = {c.gather->src[0], c.gather->src[1], c.concat->src[1], c.weights, c.other};
    take_copies(graph, c.concat, c.concat, last, match);
    match.nodes.push_back(last);
    match.written.push_back(last);
    for (const ggml_tensor * view : c.views) {
        match.taken.push_back(graph.find(view));
    }
    if (!add_places(graph, match)) {
        return false;
    }
    sort_nodes(graph, match);
    return true;
}

/// Each product is one of all tokens shifted with a column of the weights.
bool taps_are_known(const chain & c) {
    for (std::size_t i = 0; i < c.products.size(); ++i) {
        const ggml_tensor * window = c.windows[i];
        const ggml_tensor * column = c.columns[i];
        if (!has_shape(c.products[i]->src[0], {c.channels(), c.tokens(), c.sequences()}) || !has_shape(c.products[i]->src[1], {c.channels()}) ||
            !has_shape(window, {c.tokens(), c.channels(), c.sequences()}) || window->nb[1] != c.concat->nb[1] ||
            (c.sequences() > 1 && window->nb[2] != c.concat->nb[2]) || window->view_offs % sizeof(float) != 0 ||
            int64_t(window->view_offs / sizeof(float)) > c.history()) {
            return false;
        }
        if (column->ne[0] != 1 || column->ne[1] != c.channels() || ggml_nelements(column) != c.channels() || column->type != c.weights->type ||
            column->nb[1] != c.weights->nb[1] || column->view_offs - c.weights->view_offs != i * c.weights->nb[0]) {
            return false;
        }
    }
    return true;
}

/// What is kept are windows of `history` numbers.
bool copies_are_known(const chain & c, const fusion_match & match) {
    for (std::size_t i = 0; i + 1 < match.written.size(); ++i) {
        const ggml_tensor * copy = match.written[i];
        const ggml_tensor * kept = kept_window(copy);
        const ggml_tensor * to = match.operands[first_target + i];
        if (copy->src[0]->type != GGML_TYPE_F32 || !has_shape(kept, {c.history(), c.channels(), c.sequences()}) ||
            kept->nb[1] != c.concat->nb[1] || (c.sequences() > 1 && kept->nb[2] != c.concat->nb[2]) || kept->view_offs % sizeof(float) != 0 ||
            int64_t(kept->view_offs / sizeof(float)) > c.tokens() || !has_shape(to, {c.history() * c.channels(), c.sequences()}) ||
            to->nb[1] != match.operands[first_target]->nb[1]) {
            return false;
        }
    }
    return true;
}

bool guard(const fusion_target & target, const fusion_match & match) {
    const chain c(match.nodes.back());
    const ggml_tensor * states = match.operands[states_operand];
    const ggml_tensor * rows = match.operands[rows_operand];
    const ggml_tensor * x = match.operands[x_operand];
    const ggml_tensor * weights = match.operands[weights_operand];
    const std::size_t copies = match.written.size() - 1;
    if (copies == 0 || copies > per_layer_copies || c.taps() > per_layer_taps || c.concat->op_params[0] != 0 || c.history() < 1 ||
        c.sequences() > 65535 || c.history() > 65535 ||
        uint64_t(per_layer_lds(1, 1)) * uint64_t(c.history() * c.sequences()) > target.caps.max_lds || ggml_nelements(c.concat) >= limit) {
        return false;
    }
    if (!has_shape(states, {c.history() * c.channels(), states->ne[1]}) || rows->type != GGML_TYPE_I32 || rows->ne[0] != c.sequences() ||
        ggml_nelements(rows) != c.sequences() || !ggml_is_contiguous(rows) || !has_shape(c.concat, {c.history() + c.tokens(), c.channels(), c.sequences()}) ||
        x->type != GGML_TYPE_F32 || x->nb[1] != sizeof(float)) {
        return false;
    }
    if ((weights->type != GGML_TYPE_F32 && weights->type != GGML_TYPE_F16 && weights->type != GGML_TYPE_BF16) ||
        weights->nb[0] != ggml_type_size(weights->type) || ggml_n_dims(weights) > 2 || weights->ne[0] != c.taps() || weights->ne[1] != c.channels()) {
        return false;
    }
    return has_shape(c.last, {c.last->ne[0], c.last->ne[1], c.last->ne[2]}) && ggml_is_contiguous(c.last) && ggml_are_same_shape(c.last, c.other) &&
           c.other->type == GGML_TYPE_F32 && ggml_is_contiguous(c.other) && ggml_nelements(c.last) == c.channels() * c.tokens() * c.sequences() &&
           taps_are_known(c) && copies_are_known(c, match);
}

void plan(planner & plan, const fusion_match & match) {
    const chain c(match.nodes.back());
    const auto data = [&](int number) { return match.operands[std::size_t(number)]->data; };
    const ggml_tensor * x = match.operands[x_operand];
    const ggml_tensor * weights = match.operands[weights_operand];
    per_layer_conv_args args = {};
    args.dst = c.last->data;
    args.other = data(other_operand);
    args.states = data(states_operand);
    args.rows = static_cast<const int32_t *>(data(rows_operand));
    args.x = x->data;
    args.weights = weights->data;
    args.state_stride = match.operands[states_operand]->nb[1];
    args.token_stride = x->nb[0];
    args.sequence_stride = x->nb[2];
    args.weight_stride = weights->nb[1];
    args.copy_stride = match.operands[first_target]->nb[1];
    for (std::size_t i = 0; i + 1 < match.written.size(); ++i) {
        args.copies[i] = match.operands[first_target + i]->data;
        args.first[i] = uint32_t(kept_window(match.written[i])->view_offs / sizeof(float));
        ++args.copy_count;
    }
    args.channels = uint32_t(c.channels());
    args.tokens = uint32_t(c.tokens());
    args.sequences = uint32_t(c.sequences());
    args.history = uint32_t(c.history());
    args.taps = uint32_t(c.taps());
    for (std::size_t i = 0; i < c.windows.size(); ++i) {
        args.start[i] = uint32_t(c.windows[i]->view_offs / sizeof(float));
    }
    args.tile = std::max(per_layer_tile, args.history);
    const std::string kernel = std::string("per_layer_conv_") + ggml_type_name(weights->type);
    plan.launch("per_layer", kernel.c_str(), {tiles(args.channels, per_layer_block), tiles(args.tokens, args.tile), args.sequences},
                {per_layer_block}, args, per_layer_lds(args.sequences, args.history));
}

}  // namespace conv

}  // namespace

/// v * g and the norm of that, g = sigmoid(sgn(s) sqrt(|s|)) of the scaled product s of two normed rows
extern const fusion_pattern per_layer_gate_fusion;
const fusion_pattern per_layer_gate_fusion = {
    .name = "per_layer_gate",
    .steps = gate::steps,
    .in_place = operand_bits({gate::key, gate::query}),
    .guard = gate::guard,
    .plan = gate::plan,
};

/// other + silu(dilated convolution of states and tokens), and the new states
extern const fusion_pattern per_layer_conv_fusion;
const fusion_pattern per_layer_conv_fusion = {
    .name = "per_layer_conv",
    .steps = {},
    .in_place = operand_bits({conv::other_operand}),
    // The cache: all states are read before one is written.
    .targets = operand_bits({conv::states_operand}) | ~(operand_bits({conv::first_target}) - 1),
    .guard = conv::guard,
    .plan = conv::plan,
    .find = conv::find,
};

}  // namespace strata
