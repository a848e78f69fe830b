// A delta net's layer from the states in the cache to the gated norm, for a few tokens of each sequence, in two launches. The states are
// read and written where the cache has them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/mul_mat.h"
#include "plan/fusion.h"
#include "plan/kept_states.h"
#include "plan/row_operands.h"
#include "strata/args/delta_net_decode.h"

namespace strata {

namespace {

// Operands. Those from `first_target` on are what states are copied into.
enum : int {
    inputs_operand,      // cache of the convolution's states, a row a sequence
    states_operand,      // cache of the recurrence's states
    rows_operand,        // which rows of the two
    x_operand,           // what the convolution reads besides
    taps_operand,        // its weights
    decay_operand,
    beta_operand,
    weight_operand,      // of the norm
    gate_operand,        // of the result
    first_target,
};

constexpr int kept_taps = int(delta_net_taps) - 1;

/// Nodes from the last one back to where q or k begins: SCALE(RMS_NORM(view)), and a REPEAT where neighbouring heads share a key.
struct key_chain {
    const ggml_tensor * repeat = nullptr;
    const ggml_tensor * scale = nullptr;
    const ggml_tensor * norm = nullptr;

    key_chain() = default;
    explicit key_chain(const ggml_tensor * source) {
        scale = owner_of(source);
        if (is(scale, GGML_OP_REPEAT)) {
            repeat = scale;
            scale = owner_of(repeat->src[0]);
        }
        norm = is(scale, GGML_OP_SCALE) ? scale->src[0] : nullptr;
    }

    bool complete() const { return is(norm, GGML_OP_RMS_NORM) && is(norm->src[0], GGML_OP_VIEW); }
};

/// The nodes of a match but for the copies, found from the last one: norm(out) * weight * silu(z) or sigmoid(z).
struct chain {
    const ggml_tensor * last;
    const ggml_tensor * product = nullptr;   // norm * weight
    const ggml_tensor * gate = nullptr;      // silu(z) or sigmoid(z)
    const ggml_tensor * norm = nullptr;
    const ggml_tensor * delta = nullptr;
    key_chain keys[2];                       // q, k
    const ggml_tensor * activated = nullptr; // silu(conv)
    const ggml_tensor * conv = nullptr;
    const ggml_tensor * concat = nullptr;
    const ggml_tensor * inputs = nullptr;    // gathered states of the convolution
    const ggml_tensor * states = nullptr;    // gathered states of the recurrence

    explicit chain(const ggml_tensor * node) : last(node) {
        if (!is(last, GGML_OP_MUL) || !is(last->src[0], GGML_OP_MUL) ||
            !(is_unary(last->src[1], GGML_UNARY_OP_SILU) || is_unary(last->src[1], GGML_UNARY_OP_SIGMOID))) {
            return;
        }
        product = last->src[0];
        gate = last->src[1];
        norm = product->src[0];
        delta = is(norm, GGML_OP_RMS_NORM) ? owner_of(norm->src[0]) : nullptr;
        if (!is(delta, GGML_OP_GATED_DELTA_NET)) {
            return;
        }
        keys[0] = key_chain(delta->src[0]);
        keys[1] = key_chain(delta->src[1]);
        activated = owner_of(delta->src[2]);
        conv = is_unary(activated, GGML_UNARY_OP_SILU) ? activated->src[0] : nullptr;
        concat = is(conv, GGML_OP_SSM_CONV) ? conv->src[0] : nullptr;
        inputs = is(concat, GGML_OP_CONCAT) ? owner_of(concat->src[0]) : nullptr;
        states = owner_of(delta->src[5]);
    }

    bool complete() const {
        return is(inputs, GGML_OP_GET_ROWS) && is(states, GGML_OP_GET_ROWS) && inputs != states && keys[0].complete() &&
               keys[1].complete() && keys[0].norm != keys[1].norm;
    }

    int64_t size() const { return delta->src[2]->ne[0]; }
    int64_t heads() const { return delta->src[2]->ne[1]; }
    int64_t tokens() const { return delta->src[2]->ne[2]; }
    int64_t sequences() const { return delta->src[2]->ne[3]; }
    int64_t channels() const { return conv->ne[0]; }
    int64_t snapshots() const { return delta->op_params[0]; }
    int64_t state_size() const { return size() * size() * heads(); }

    /// Heads that have keys of their own.
    int64_t key_heads() const { return keys[0].norm->ne[1]; }

    bool sigmoid_gate() const { return is_unary(gate, GGML_UNARY_OP_SIGMOID); }

private:
    static bool is_unary(const ggml_tensor * t, ggml_unary_op op) { return is(t, GGML_OP_UNARY) && ggml_get_unary_op(t) == op; }
};

bool find(const graph_index & graph, const ggml_tensor * last, fusion_match & match) {
    const chain c(last);
    if (!c.complete()) {
        return false;
    }
    std::vector<int> & taken = match.taken;
    const auto leads_to = [&](const ggml_tensor * source, const ggml_tensor * node) {
        return behind_reshapes(graph, source, taken) == node;
    };
    const auto views = [&](const ggml_tensor * source, const ggml_tensor * node) {
        taken.push_back(graph.find(source));
        return source->op == GGML_OP_VIEW && source->src[0] == node;
    };
    if (!views(behind_reshapes(graph, c.norm->src[0], taken), c.delta) || !leads_to(c.delta->src[5], c.states) ||
        !views(c.delta->src[2], c.activated) || !leads_to(c.concat->src[0], c.inputs)) {
        return false;
    }
    match.nodes = {c.inputs, c.concat, c.states, c.conv, c.activated, c.delta, c.norm, c.product, c.gate, c.last};
    for (int i = 0; i < 2; ++i) {
        const key_chain & key = c.keys[i];
        if (key.repeat != nullptr) {
            match.nodes.push_back(key.repeat);
        }
        match.nodes.insert(match.nodes.end(), {key.scale, key.norm});
        if (!leads_to(c.delta->src[i], key.repeat ? key.repeat : key.scale) || !views(key.norm->src[0], c.activated) ||
            (key.repeat != nullptr && !leads_to(key.repeat->src[0], key.scale))) {
            return false;
        }
    }
    match.operands = {c.inputs->src[0], c.states->src[0], c.inputs->src[1], c.concat->src[1], c.conv->src[1],
                      c.delta->src[3], c.delta->src[4], c.product->src[1], c.gate->src[0]};
    // The state's copy, and then those of the convolution's input.
    for (const ggml_tensor * source : {c.delta, c.concat}) {
        take_copies(graph, source, c.concat, last, match);
    }
    match.written.push_back(last);
    if (!add_places(graph, match)) {
        return false;
    }
    sort_nodes(graph, match);
    return true;
}

// --- the guard

/// A view of the convolution's result: one head after another, those of a token `channels` numbers apart.
bool is_part_of_channels(const chain & c, const ggml_tensor * view, int64_t heads) {
    const std::size_t row = std::size_t(c.size()) * sizeof(float), token = std::size_t(c.channels()) * sizeof(float);
    return has_shape(view, {c.size(), heads, c.tokens(), c.sequences()}) && view->nb[1] == row && view->nb[2] == token &&
           view->nb[3] == token * std::size_t(c.tokens()) && view->view_offs % sizeof(float) == 0 &&
           int64_t(view->view_offs / sizeof(float)) + heads * c.size() <= c.channels();
}

bool keys_are_known(const chain & c) {
    const int64_t shared_by = c.heads() / c.key_heads();
    for (int i = 0; i < 2; ++i) {
        const key_chain & key = c.keys[i];
        // A reshape may have made other heads of them.
        if (!has_shape(c.delta->src[i], {c.size(), key.repeat ? c.heads() : c.key_heads(), c.tokens(), c.sequences()})) {
            return false;
        }
        if (!is_part_of_channels(c, key.norm->src[0], c.key_heads()) ||
            !has_shape(key.scale, {c.size(), c.key_heads(), c.tokens(), c.sequences()})) {
            return false;
        }
        // Each key is repeated for neighbouring heads, or GATED_DELTA_NET itself takes one every so many heads.
        if (key.repeat != nullptr &&
            (!has_shape(key.repeat->src[0], {c.size(), 1, c.key_heads(), c.tokens() * c.sequences()}) ||
             !has_shape(key.repeat, {c.size(), shared_by, c.key_heads(), c.tokens() * c.sequences()}))) {
            return false;
        }
    }
    return (c.keys[0].repeat != nullptr) == (c.keys[1].repeat != nullptr) && c.heads() % c.key_heads() == 0;
}

/// Bytes from the first row of the cache `rows` to `to`, or -1 if that is another tensor.
int64_t offset_in(const ggml_tensor * rows, const ggml_tensor * to) {
    if (owner_of(to) != owner_of(rows)) {
        return -1;
    }
    return int64_t(to->view_offs) - int64_t(rows->view_offs);
}

/// Rows of the cache from a new state to that of a token before.
int64_t snapshot_rows(const chain & c, const fusion_match & match) {
    const ggml_tensor * rows = match.operands[states_operand];
    return c.snapshots() > 1 ? int64_t(match.operands[first_target]->nb[2] / rows->nb[1]) : rows->ne[1];
}

/// The gathered states and their copies, which are all that is kept of the recurrence.
bool states_are_known(const chain & c, const fusion_match & match) {
    const ggml_tensor * rows = match.operands[states_operand];
    const ggml_tensor * to = match.operands[first_target];
    const ggml_tensor * kept = match.written.front()->src[0];
    const int64_t written = std::min(c.tokens(), c.snapshots());
    const std::size_t results = std::size_t(c.size() * c.heads() * c.tokens() * c.sequences()) * sizeof(float);
    const int64_t offset = offset_in(rows, to);
    if (!has_shape(rows, {c.state_size(), rows->ne[1]}) || rows->ne[1] >= int64_t(1) << 31 || offset < 0 ||
        offset % int64_t(rows->nb[1]) != 0) {
        return false;
    }
    if (owner_of(kept) != c.delta || kept->view_offs != results || !ggml_is_contiguous(kept) ||
        ggml_nelements(kept) != c.state_size() * c.sequences() * written) {
        return false;
    }
    const bool apart = c.snapshots() == 1 || (to->nb[2] % rows->nb[1] == 0 && to->nb[2] > 0);
    return has_shape(to, {c.state_size(), c.sequences(), written}) && to->nb[1] == rows->nb[1] && apart &&
           snapshot_rows(c, match) < int64_t(1) << 31;
}

/// The convolution's states and their copies: windows of what it reads.
bool inputs_are_known(const chain & c, const fusion_match & match) {
    const ggml_tensor * rows = match.operands[inputs_operand];
    const ggml_tensor * x = match.operands[x_operand];
    const std::size_t copies = match.operands.size() - first_target - 1;
    if (!has_shape(rows, {kept_taps * c.channels(), rows->ne[1]}) || c.concat->op_params[0] != 0 || x->type != GGML_TYPE_F32 ||
        x->ne[0] != c.tokens() || x->nb[1] != sizeof(float) || copies == 0 || copies > delta_net_copies ||
        !has_shape(c.concat, {kept_taps + c.tokens(), c.channels(), c.sequences()})) {
        return false;
    }
    for (std::size_t i = 0; i < copies; ++i) {
        const ggml_tensor * kept = kept_window(match.written[1 + i]);
        const ggml_tensor * to = match.operands[first_target + 1 + i];
        if (owner_of(kept) != c.concat || !has_shape(kept, {kept_taps, c.channels(), c.sequences()}) || kept->nb[1] != c.concat->nb[1] ||
            kept->nb[2] != c.concat->nb[2] || kept->view_offs % sizeof(float) != 0 ||
            kept->view_offs / sizeof(float) > std::size_t(c.tokens()) ||
            !has_shape(to, {kept_taps * c.channels(), c.sequences()}) || to->nb[1] != match.operands[first_target + 1]->nb[1]) {
            return false;
        }
    }
    return true;
}

bool guard(const fusion_target & target, const fusion_match & match) {
    const chain c(match.nodes.back());
    const int64_t size = c.size(), heads = c.heads(), tokens = c.tokens(), sequences = c.sequences();
    const ggml_tensor * rows = match.operands[rows_operand];
    if (target.caps.wave_size != 32 || (size != 64 && size != 128) || tokens > delta_net_tokens || sequences > delta_net_sequences ||
        heads > 65535 || match.operands.size() < first_target + 2 || match.written.front()->src[0]->src[0] != c.delta ||
        kept_window(match.written[1])->src[0] != c.concat) {
        return false;
    }
    if (c.states->src[1] != rows || rows->type != GGML_TYPE_I32 || rows->ne[0] != sequences || ggml_nelements(rows) != sequences ||
        !ggml_is_contiguous(rows)) {
        return false;
    }
    if (!has_shape(c.conv, {c.channels(), tokens, sequences}) || c.channels() >= int64_t(1) << 28 || !ggml_is_contiguous(c.activated) ||
        !has_shape(match.operands[taps_operand], {delta_net_taps, c.channels()}) || !is_part_of_channels(c, c.delta->src[2], heads)) {
        return false;
    }
    for (const int number : {decay_operand, beta_operand}) {
        if (!has_shape(match.operands[number], {1, heads, tokens, sequences}) || !ggml_is_contiguous(match.operands[number])) {
            return false;
        }
    }
    const ggml_tensor * out = c.norm->src[0];
    if (out->view_offs != 0 || !ggml_is_contiguous(out) || !has_shape(match.operands[weight_operand], {size})) {
        return false;
    }
    for (const ggml_tensor * each : {out, c.norm, c.product, c.gate, c.last, match.operands[gate_operand]}) {
        if (!has_shape(each, {size, heads, tokens, sequences})) {
            return false;
        }
    }
    return ggml_is_contiguous(c.last) && keys_are_known(c) && states_are_known(c, match) && inputs_are_known(c, match);
}

// --- the launches

delta_net_key key_args(const key_chain & key) {
    delta_net_key args = {uint32_t(key.norm->src[0]->view_offs / sizeof(float)), eps_of(key.norm), 0.0f, 0.0f};
    std::memcpy(&args.scale, key.scale->op_params, sizeof(float));
    std::memcpy(&args.bias, key.scale->op_params + 1, sizeof(float));
    return args;
}

void plan_decode(planner & plan, const fusion_match & match) {
    const chain c(match.nodes.back());
    const auto data = [&](int number) { return match.operands[std::size_t(number)]->data; };
    const ggml_tensor * x = match.operands[x_operand];
    const ggml_tensor * states = match.operands[states_operand];
    const ggml_tensor * new_states = match.operands[first_target];
    const uint32_t size = uint32_t(c.size()), heads = uint32_t(c.heads());
    const uint32_t tokens = uint32_t(c.tokens()), sequences = uint32_t(c.sequences());
    const std::size_t before_size = std::size_t(c.channels() * kept_taps) * sequences * sizeof(float);
    const std::size_t aside_size = sequences == 1 ? 0 : std::size_t(c.state_size()) * sequences * sizeof(float);
    char * const scratch = static_cast<char *>(plan.scratch(before_size + aside_size));
    void * const out = match.nodes.back()->data;

    delta_net_decode_args decode = {};
    decode.input = {data(inputs_operand), x->data, scratch + aside_size, match.operands[inputs_operand]->nb[1], x->nb[0], x->nb[2],
                    uint32_t(c.channels())};
    decode.rows = static_cast<const int32_t *>(data(rows_operand));
    decode.weights = data(taps_operand);
    decode.decay = data(decay_operand);
    decode.beta = data(beta_operand);
    decode.states = states->data;
    decode.new_states = new_states->data;
    decode.aside = scratch;
    decode.out = out;
    decode.weight_stride = match.operands[taps_operand]->nb[1];
    decode.state_stride = states->nb[1];
    decode.snapshot_stride = new_states->nb[2];
    decode.keys[0] = key_args(c.keys[0]);
    decode.keys[1] = key_args(c.keys[1]);
    decode.value_channel = uint32_t(c.delta->src[2]->view_offs / sizeof(float));
    decode.neighbours = c.keys[0].repeat != nullptr;
    decode.key_heads = make_divisor(uint32_t(decode.neighbours ? c.heads() / c.key_heads() : c.key_heads()));
    decode.first_row = uint32_t(offset_in(states, new_states) / int64_t(states->nb[1]));
    decode.snapshot_rows = make_divisor(uint32_t(snapshot_rows(c, match)));
    decode.heads = heads;
    decode.tokens = tokens;
    decode.sequences = sequences;
    decode.snapshots = uint32_t(c.snapshots());
    decode.scale = 1.0f / std::sqrt(float(size));
    plan.launch("decode", size == 64 ? "delta_net_decode_64" : "delta_net_decode_128", {size / delta_net_columns, heads, sequences},
                {delta_net_block}, decode);

    delta_net_finish_args finish = {};
    finish.input = decode.input;
    finish.out = out;
    finish.weight = data(weight_operand);
    finish.gate = rows_of(match.operands[gate_operand]);
    finish.copy_stride = match.operands[first_target + 1]->nb[1];
    for (std::size_t i = first_target + 1; i < match.operands.size(); ++i) {
        finish.copies[finish.copy_count] = match.operands[i]->data;
        finish.first[finish.copy_count++] = uint32_t(kept_window(match.written[i - first_target])->view_offs / sizeof(float));
    }
    finish.size = size;
    finish.heads = make_divisor(heads);
    finish.tokens = tokens;
    finish.norm_blocks = tiles(int64_t(heads) * tokens, norm_block / 32);
    finish.eps = eps_of(c.norm);
    finish.sigmoid_gate = c.sigmoid_gate();
    if (ggml_is_contiguous(match.nodes.back()) && plan.quantizes_result("rms_norm_q8_1", match.nodes.back())) {
        const quantized_activations result = room_for_quantized(plan, match.nodes.back());
        finish.values = result.values;
        finish.meta = result.meta;
    }
    plan.launch("decode", "delta_net_finish", {finish.norm_blocks + tiles(c.channels(), norm_block), sequences}, {norm_block}, finish);
}

}  // namespace

extern const fusion_pattern delta_net_decode_fusion;
const fusion_pattern delta_net_decode_fusion = {
    .name = "delta_net_decode",
    .steps = {},
    // The caches: each element is read before it is written to, or set aside.
    .targets = operand_bits({inputs_operand, states_operand}) | ~(operand_bits({first_target}) - 1),
    .guard = guard,
    .plan = plan_decode,
    .find = find,
};

}  // namespace strata
