"""The fusions of hyper-connections, sparse attention and per-layer embeddings (the architecture qwen4exp) against the same graph with a launch for each node: bit for
bit, whatever the allocator does, applied where they should be and refused where they must be."""
import dataclasses

import numpy as np
import pytest

from support.delta_net_layer import F32, as_output
from support.fusions import MEMORY, check_bits, check_refused_over, compute, made, normal, quantized
from support.ggml import ffi, lib

LENGTHS = [1, 7, 63, 65, 128, 1024, 1028, 2049]
INFINITY = float("inf")


def integers(high, *shape):
    return lambda rng: rng.integers(0, high, shape).astype(np.int32)


def chosen(high, count, *rows):
    """Different numbers of each row."""
    return lambda rng: np.array([rng.permutation(high)[:count] for _ in range(int(np.prod(rows)))], np.int32).reshape(*rows, count)


def mask(*shape, dtype=np.float16):
    """0, -inf, and numbers, as ALiBi has them."""
    return lambda rng: np.where(rng.random(shape) < 0.4, -np.inf, np.where(rng.random(shape) < 0.5, 0, rng.standard_normal(shape))).astype(dtype)


# --- hyper-connections -----------------------------------------------------------------------------------------------------------------

def combined(g, inject, x, residual):
    """What a block gives to the streams."""
    return g.dsv4_hc_post(x, residual, g.scale(g.sigmoid(g.scale(inject, 0.25)), 2.0), ffi.NULL)


def post(g, inject, x, residual):
    return combined(g, inject, x, residual),


def post_norm(g, inject, x, residual, w):
    streams = combined(g, inject, x, residual)
    return g.mul(g.rms_norm(streams, 1e-6), w), streams


def post_norm_alone(g, inject, x, residual, w):
    """Nobody else reads the streams."""
    return g.mul(g.rms_norm(combined(g, inject, x, residual), 1e-6), w),


def post_norm_of_products(g, inject, x, residual, w, a):
    streams = combined(g, inject, x, residual)
    n = g.mul(g.rms_norm(streams, 1e-6), w)
    flat = g.reshape_2d(n, n.ne[0] * n.ne[1], n.ne[2])
    return g.mul_mat(a, flat), streams, g.silu(flat)


def biased_post(g, inject, x, residual):
    """Scales with an offset."""
    return g.dsv4_hc_post(x, residual, g.scale_bias(g.sigmoid(g.scale_bias(inject, 0.25, 0.5)), 2.0, -1.0), ffi.NULL),


def post_of_views(g, inject, x, residual):
    """Every other token."""
    part = lambda t: g.view_3d(t, t.ne[0], t.ne[1], t.ne[2] // 2, t.nb[1], 2 * t.nb[2], 0)
    tokens = lambda t: g.view_2d(t, t.ne[0], t.ne[1] // 2, 2 * t.nb[1], 0)
    return combined(g, tokens(inject), tokens(x), part(residual)),


def blocks(g, inject, x, residual, w):
    """Three in a row, so that results may take the memory of operands."""
    for _ in range(3):
        streams = combined(g, inject, x, residual)
        n = g.mul(g.rms_norm(streams, 1e-6), w)
        x = g.silu(g.cont(g.view_2d(n, n.ne[0], n.ne[2], n.nb[2], n.nb[1])))
        residual = streams
    return x, residual


def mixed_of_products(g, x, gate, a):
    """The streams' mean is read by a product with quantized weights, and as it is."""
    y = g.dsv4_hc_pre_gated(x, gate, 0.25)
    return g.mul_mat(a, y), g.silu(y)


def scaled_silu(g, x):
    return g.silu(g.scale_bias(x, 0.25, 0.5)),


def sigmoid_norm(g, x, w, z):
    return g.mul(g.mul(g.rms_norm(x, 1e-6), w), g.sigmoid(z)),


# --- sparse attention ------------------------------------------------------------------------------------------------------------------

def block_means(g, keys, cells, members, scale=True):
    rows = g.get_rows(keys, cells)
    n = rows.ne[1] // members
    rows = g.reshape_4d(rows, rows.ne[0], members, n, rows.ne[2])
    total = None
    for i in range(members):
        part = g.cont(g.view_3d(rows, rows.ne[0], n, rows.ne[3], rows.nb[2], rows.nb[3], i * rows.nb[1]))
        total = g.add(total, part) if total is not None else part
    return g.scale(total, 1 / members) if scale else total,


def head_sum(g, scores, bias=None, relu=True, finish=None):
    """Of [stream][token][head][block]."""
    if relu:
        scores = g.relu(scores)
    total = None
    for h in range(scores.ne[1]):
        part = g.view_3d(scores, scores.ne[0], scores.ne[2], scores.ne[3], scores.nb[2], scores.nb[3], h * scores.nb[1])
        total = g.add(total, part) if total is not None else g.cont(part)
    if bias is not None:
        total = g.add(total, bias)
    return finish(g, total) if finish else total,


def scaled_head_sum(g, scores):
    return head_sum(g, scores, relu=False, finish=lambda g, total: g.scale(total, 0.25))


def plain_head_sum(g, scores):
    return head_sum(g, scores, relu=False)


def expanded(g, scores, cells, mask):
    exchange = lambda t: g.cont(g.permute(t, 1, 0, 2, 3))
    rows = exchange(g.get_rows(exchange(scores), cells))
    wide = mask if mask.type == lib.GGML_TYPE_F32 else g.cast(mask, lib.GGML_TYPE_F32)
    return g.add(rows, g.reshape_3d(wide, rows.ne[0], rows.ne[1], rows.ne[2])),


def chosen_mask(g, mask, keys):
    """`keys`: [stream][token][number]"""
    hidden = g.fill(mask, -INFINITY)
    rows = g.view_4d(hidden, 1, hidden.ne[0], hidden.ne[1], hidden.ne[3], hidden.nb[0], hidden.nb[1], hidden.nb[2], 0)
    zeros = g.fill(lib.ggml_new_tensor_4d(g.ctx, lib.GGML_TYPE_F32, 1, keys.ne[0], keys.ne[1], keys.ne[2]), 0.0)
    shown = g.set_rows(rows, zeros, keys)
    shown = g.view_4d(shown, shown.ne[1], shown.ne[2], 1, shown.ne[3], shown.nb[2], shown.nb[3], shown.nb[3], 0)
    return g.add(shown, mask),


def top_k(g, scores, k):
    """Nothing says in which order they come; the kernel is the same."""
    return g.cont(g.top_k(scores, k)),


# --- per-layer embeddings --------------------------------------------------------------------------------------------------------------

def per_layer_gate(g, key, key_weight, query, query_weight, value, weight, change=None):
    """key: a row a token; query: [token][stream][element]. (gated, its norm)"""
    change = change or {}
    named = lambda name, tensor: change.get(name, lambda g, tensor: tensor)(g, tensor)
    n, streams, tokens = query.ne[0], query.ne[1], query.ne[2]

    def grouped_norm(name, x, w):
        return named(name, g.mul(g.rms_norm(g.reshape_3d(x, n, streams, tokens), 1e-6), w))

    product = named("product", g.mul(grouped_norm("key", key, key_weight), grouped_norm("query", query, query_weight)))
    s = named("scaled", g.scale(named("sum", g.sum_rows(product)), n ** -0.5))
    size = named("size", g.sqrt(g.clamp(g.abs(s), 1e-6, INFINITY)))
    factor = named("factor", g.sigmoid(g.mul(g.sgn(s), size)))
    repeated = named("repeated", g.repeat_4d(g.reshape_3d(value, n, 1, tokens), n, streams, tokens, 1))
    gated = named("gated", g.mul(repeated, factor))
    normed = grouped_norm("normed", g.reshape_2d(gated, n * streams, tokens), weight)
    return gated, g.reshape_2d(normed, n * streams, tokens)


def gate_inputs(tokens, streams, n):
    return [normal(tokens, streams * n), normal(streams, n), normal(tokens, streams, n), normal(streams, n), normal(tokens, n), normal(streams, n)]


@dataclasses.dataclass(frozen=True)
class PerLayer:
    """A dilated convolution of tokens and of states in a cache of `cells` rows a snapshot; those of the sequences begin at row 1."""
    width: int = 36
    streams: int = 4
    tokens: int = 1
    sequences: int = 1
    snapshots: int = 1
    taps: int = 4
    dilation: int = 3
    cells: int = 5
    rows: tuple = ()        # where each sequence's states are read; () for its own cell
    kind: str = "f32"       # of the weights

    @property
    def channels(self):
        return self.width * self.streams

    @property
    def history(self):
        return (self.taps - 1) * self.dilation

    def inputs(self):
        """Cache, rows, normed values, what is added, weights."""
        rows = np.array(self.rows or range(1, 1 + self.sequences), np.int32)
        weights = normal(self.channels, self.taps) if self.kind == "f32" else quantized(self.kind, self.channels, self.taps)
        tokens = self.tokens * self.sequences
        return [normal(self.snapshots * self.cells, self.history * self.channels), lambda rng: rows, normal(tokens, self.channels),
                normal(tokens, self.streams, self.width), weights]

    def build(self, g, cache, rows, x, other, weights, change=None, between=None):
        """(new states, newest first, the result); change: functions that replace nodes by their name; between(g, cache): a node behind the
        states' copies."""
        change = change or {}
        named = lambda name, tensor: change.get(name, lambda g, tensor: tensor)(g, tensor)
        channels, tokens, sequences, history = self.channels, self.tokens, self.sequences, self.history
        old = named("states", g.get_rows(cache, rows))
        x = g.transpose(g.reshape_3d(x, channels, tokens, sequences))
        padded = named("padded", g.concat(g.reshape_3d(old, history, channels, sequences), x, 0))
        copies = []
        for slot in range(self.snapshots):
            window = g.view_3d(padded, history, channels, sequences, padded.nb[1], padded.nb[2], max(0, tokens - slot) * F32)
            to = g.view_2d(cache, history * channels, sequences, cache.nb[1], (slot * self.cells + 1) * cache.nb[1])
            copies.append(g.cpy(named("window", g.cont(window)), to))
        copies += [between(g, cache)] if between else []
        total = None
        for k in range(self.taps):
            shifted = g.cont(g.transpose(g.view_3d(padded, tokens, channels, sequences, padded.nb[1], padded.nb[2], k * self.dilation * F32)))
            column = g.reshape_1d(g.cont(g.view_2d(weights, 1, channels, weights.nb[1], k * weights.nb[0])), channels)
            if self.kind != "f32":
                column = g.cast(column, lib.GGML_TYPE_F32)
            term = named("term", g.mul(named("shifted", shifted), named("column", column)))
            total = named("total", g.add(total, term)) if total is not None else term
        activated = named("copied", g.cont(named("activated", g.silu(total))))
        return *copies, g.add(other, g.reshape_3d(activated, self.width, self.streams, tokens * sequences))


def whole_layer(layer):
    """The gate, the convolution behind it, and what the streams become."""
    def build(g, key, key_weight, query, query_weight, value, weight, cache, rows, weights):
        gated, normed = per_layer_gate(g, key, key_weight, query, query_weight, value, weight)
        *copies, out = layer.build(g, cache, rows, normed, gated, weights)
        return *copies, g.add(query, out)
    cache, rows, _, _, weights = layer.inputs()
    return build, [*gate_inputs(layer.tokens * layer.sequences, layer.streams, layer.width), cache, rows, weights]


def looked_up(layer):
    """The same with key and value as products of rows of a table."""
    build, inputs = whole_layer(layer)
    n, heads = layer.width, 4

    def from_table(g, table, ids, key_matrix, value_matrix, key_weight, query, query_weight, weight, *rest):
        rows = g.reshape_2d(g.get_rows(table, ids), n, layer.tokens * layer.sequences)
        value, key = g.mul_mat(value_matrix, rows), g.mul_mat(key_matrix, rows)
        return build(g, key, key_weight, query, query_weight, value, weight, *rest)
    _, key_weight, query, query_weight, _, weight, *rest = inputs
    return from_table, [quantized("q8_0", 50, n // heads), integers(50, layer.tokens * layer.sequences * heads),
                        quantized("q4_0", n * layer.streams, n), quantized("q4_0", n, n), key_weight, query, query_weight, weight, *rest]


PER_LAYER = {
    "one": PerLayer(),
    "wide": PerLayer(width=2048, streams=2),
    "from-elsewhere": PerLayer(rows=(4,)),
    "two-taps": PerLayer(taps=2, dilation=1, tokens=3),
    "one-channel": PerLayer(width=1, streams=1, tokens=2, taps=8, dilation=2),
    "prompt": PerLayer(tokens=37),
    "prompt-of-tiles": PerLayer(tokens=64, snapshots=3),
    "tile-of-history": PerLayer(tokens=50, taps=8, dilation=3),
    "snapshots-of-one-token": PerLayer(snapshots=4),
    "from-a-snapshot": PerLayer(snapshots=3, rows=(2 * 5 + 1,)),
    "verify": PerLayer(tokens=5, snapshots=9),
    "sequences": PerLayer(sequences=4),
    "sequences-swapped": PerLayer(sequences=2, rows=(2, 1), tokens=3, snapshots=2),
    "sequences-of-one": PerLayer(sequences=3, rows=(2, 2, 2)),
    "sequences-from-snapshots": PerLayer(sequences=3, tokens=20, snapshots=3, rows=(5 + 1, 2, 2 * 5 + 3)),
    "f16": PerLayer(kind="f16", tokens=2),
    "bf16": PerLayer(kind="bf16", tokens=2),
}


def cases():
    """(name, graph, inputs, how often each fusion applies)"""
    for n in LENGTHS:
        streams = [normal(5, 4), normal(5, n), normal(5, 4, n)]
        yield f"post-{n}", post, streams, {"sigmoid_hc_post": 1}
        yield f"post-norm-{n}", post_norm, [*streams, normal(4, n)], {"sigmoid_hc_post_rms_norm_mul": 1}
        yield f"post-norm-alone-{n}", post_norm_alone, [*streams, normal(4, n)], {"sigmoid_hc_post_rms_norm_mul": 1}
        yield f"sigmoid-norm-{n}", sigmoid_norm, [normal(5, n), normal(n), normal(5, n)], {"sigmoid_gated_rms_norm": 1}
        yield f"scale-silu-{n}", scaled_silu, [normal(3, n)], {"scale_silu": 1}
    yield "post-biased", biased_post, [normal(3, 4), normal(3, 32), normal(3, 4, 32)], {"sigmoid_hc_post": 1}
    yield "post-of-views", post_of_views, [normal(6, 4), normal(6, 40), normal(6, 4, 40)], {"sigmoid_hc_post": 1}
    for tokens, streams, n in ((1, 4, 128), (1, 2, 2048), (3, 5, 36)):
        yield (f"post-norm-{tokens}-{streams}-{n}", post_norm, [normal(tokens, streams), normal(tokens, n), normal(tokens, streams, n), normal(n)],
               {"sigmoid_hc_post_rms_norm_mul": 1})
    for tokens, n in ((1, 64), (3, 512), (2, 2048)):
        yield (f"post-norm-of-products-{n}", post_norm_of_products,
               [normal(tokens, 4), normal(tokens, n), normal(tokens, 4, n), normal(4, n), quantized("q8_0", 7, 4 * n)],
               {"sigmoid_hc_post_rms_norm_mul": 1, "rms_norm_q8_1": 1, "shared_q8_1": 1})
        yield (f"mixed-of-products-{n}", mixed_of_products, [normal(tokens, 4, n), normal(tokens, 4, n), quantized("q4_0", 7, n)],
               {"hc_pre_q8_1": 1, "shared_q8_1": 1})
    yield "blocks", blocks, [normal(2, 4), normal(2, 128), normal(2, 4, 128), normal(4, 128)], {"sigmoid_hc_post_rms_norm_mul": 3}
    for dtype in (np.float16, np.float32):
        kind = np.dtype(dtype).name
        for width, members, n, streams in ((1, 2, 1, 1), (65, 4, 7, 1), (128, 4, 64, 2), (63, 3, 17, 3)):
            yield (f"block-mean-{kind}-{width}-{members}", lambda g, k, c, members=members: block_means(g, k, c, members),
                   [normal(streams, 40, width, dtype=dtype), integers(40, streams, members * n)], {"get_rows_block_mean": 1})
        for keys, blocks_, tokens, streams in ((1, 1, 1, 1), (65, 17, 1, 1), (256, 64, 3, 1), (63, 16, 7, 2)):
            yield (f"expanded-{kind}-{keys}-{tokens}-{streams}", expanded,
                   [normal(streams, tokens, blocks_), integers(blocks_, streams, keys), mask(streams, 1, tokens, keys, dtype=dtype)],
                   {"get_rows_add_mask": 1})
        for keys, count, tokens, streams in ((1, 1, 1, 1), (31, 7, 1, 1), (65, 65, 3, 1), (1027, 300, 2, 2)):
            yield (f"chosen-mask-{kind}-{keys}-{tokens}-{streams}", chosen_mask,
                   [mask(streams, 1, tokens, keys, dtype=dtype), chosen(keys, count, streams, tokens)], {"fill_set_rows_add_mask": 1})
    for n, heads, tokens, streams in ((1, 2, 1, 1), (65, 4, 1, 1), (63, 64, 3, 2), (256, 7, 15, 1)):
        scores = normal(streams, tokens, heads, n)
        yield f"head-sum-{n}-{heads}", head_sum, [scores], {"slice_sum": 1}
        yield f"head-sum-bias-{n}-{heads}", head_sum, [scores, normal(streams, tokens, n)], {"slice_sum": 1}
        yield f"head-sum-scaled-{n}-{heads}", scaled_head_sum, [scores], {"slice_sum": 1}
        yield f"head-sum-plain-{n}-{heads}", plain_head_sum, [scores], {"slice_sum": 1}
    for tokens, streams, n in ((1, 4, 4), (1, 4, 128), (3, 2, 36), (64, 4, 256), (2, 3, 1024), (1, 4, 1028), (1, 2, 2048), (2, 1, 8192)):
        yield f"per-layer-gate-{tokens}-{streams}-{n}", per_layer_gate, gate_inputs(tokens, streams, n), {"per_layer_gate": 1}
    for name, layer in PER_LAYER.items():
        yield f"per-layer-conv-{name}", layer.build, layer.inputs(), {"per_layer_conv": 1}
    for name in ("one", "prompt", "sequences-swapped"):
        yield f"per-layer-{name}", *whole_layer(PER_LAYER[name]), {"per_layer_gate": 1, "per_layer_conv": 1}
    yield "per-layer-looked-up", *looked_up(PerLayer(width=128)), {"mul_mat_group": 1, "per_layer_gate": 1, "per_layer_conv": 1}
    for n, k in ((1, 1), (65, 7), (300, 300), (3000, 65)):
        yield f"top-k-{n}", lambda g, x, k=k: top_k(g, x, k), [normal(3, n)], {"top_k_cont": 1}


CASES = {name: rest for name, *rest in cases()}


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", list(CASES))
def test_bits(name, memory):
    build, makers, expected = CASES[name]
    check_bits(build, made(makers), expected, memory)


def test_negative_zeros():
    """A sum begins with its first number: 0 + -0 would be 0."""
    zeros = np.full((1, 3, 2, 5), -0.0, np.float32)
    (got,), applied = compute(plain_head_sum, [zeros])
    assert applied == {"slice_sum": 1} and got == zeros[0, :, 0].tobytes()


@pytest.mark.parametrize("query", [0.0, -0.0, 1e-30, 3e19, np.inf, np.nan])
def test_odd_products(query):
    """Keys and streams whose product is zero, tiny, too large for squares, or no number: NaN's sign aside, the same bits."""
    inputs = made(gate_inputs(2, 4, 64))
    inputs[2][0] = query
    inputs[0][1, :64] = -inputs[0][1, :64]
    wanted, _ = compute(per_layer_gate, inputs, fused=False)
    got, applied = compute(per_layer_gate, inputs)
    assert applied == {"per_layer_gate": 1}
    for a, b in zip(got, wanted):
        a, b = np.frombuffer(a, np.float32), np.frombuffer(b, np.float32)
        assert np.array_equal(np.isnan(a), np.isnan(b)) and a[~np.isnan(a)].tobytes() == b[~np.isnan(b)].tobytes()


def test_per_layer_states_of_a_first_token():
    """The state is set to zero before it is gathered, and another one behind that, as llama.cpp does for new sequences."""
    layer = PerLayer(rows=(3,))

    def build(g, cache, *tensors):
        zero = g.scale_inplace(g.view_1d(cache, layer.history * layer.channels, 3 * cache.nb[1]), 0.0)
        return zero, *layer.build(g, cache, *tensors)
    inputs = made(layer.inputs())
    wanted, _ = compute(build, inputs, fused=False)
    got, applied = compute(build, inputs)
    assert got == wanted and applied == {"per_layer_conv": 1}


# --- graphs in which a fusion would go wrong -------------------------------------------------------------------------------------------

def weights_read_twice(g, inject, x, residual):
    w = g.scale(g.sigmoid(g.scale(inject, 0.25)), 2.0)
    return g.dsv4_hc_post(x, residual, w, ffi.NULL), g.silu(w)


def mixed_post(g, inject, x, residual, comb):
    """With a mixing matrix."""
    return g.dsv4_hc_post(x, residual, g.scale(g.sigmoid(g.scale(inject, 0.25)), 2.0), comb),


def slices_out_of_order(g, scores):
    part = lambda h: g.view_3d(scores, scores.ne[0], scores.ne[2], scores.ne[3], scores.nb[2], scores.nb[3], h * scores.nb[1])
    return g.add(g.add(g.cont(part(1)), part(0)), part(2)),


def slices_with_a_gap(g, scores):
    part = lambda h: g.view_3d(scores, scores.ne[0], scores.ne[2], scores.ne[3], scores.nb[2], scores.nb[3], h * scores.nb[1])
    return g.add(g.add(g.cont(part(0)), part(1)), part(3)),


def slices_of_two(g, scores, others):
    part = lambda t, h: g.view_3d(t, t.ne[0], t.ne[2], t.ne[3], t.nb[2], t.nb[3], h * t.nb[1])
    return g.add(g.cont(part(scores, 0)), part(others, 1)),


def relu_read_twice(g, scores):
    """All of it is read elsewhere too: it is made, and its slices are summed."""
    scores = g.relu(scores)
    return head_sum(g, scores, relu=False)[0], g.tanh(scores)


def partial_sum_read(g, scores):
    part = lambda h: g.view_3d(scores, scores.ne[0], scores.ne[2], scores.ne[3], scores.nb[2], scores.nb[3], h * scores.nb[1])
    first = g.add(g.cont(part(0)), part(1))
    return g.add(first, part(2)), g.tanh(first)


def gathered_rows_read(g, keys, cells):
    rows = g.get_rows(keys, cells)
    part = lambda i: g.cont(g.view_3d(rows, rows.ne[0], 3, 1, 2 * rows.nb[1], rows.nb[2], i * rows.nb[1]))
    return g.scale(g.add(part(0), part(1)), 0.5), g.tanh(rows)


def some_of_the_rows(g, keys, cells):
    """The first two members of blocks of three."""
    rows = g.get_rows(keys, cells)
    part = lambda i: g.cont(g.view_3d(rows, rows.ne[0], 2, 1, 3 * rows.nb[1], rows.nb[2], i * rows.nb[1]))
    return g.scale(g.add(part(0), part(1)), 0.5),


def shown_read_twice(g, mask, keys):
    hidden = g.fill(mask, -INFINITY)
    rows = g.view_4d(hidden, 1, hidden.ne[0], hidden.ne[1], 1, hidden.nb[0], hidden.nb[1], hidden.nb[2], 0)
    zeros = g.fill(lib.ggml_new_tensor_4d(g.ctx, lib.GGML_TYPE_F32, 1, keys.ne[0], keys.ne[1], 1), 0.0)
    shown = g.set_rows(rows, zeros, keys)
    shown = g.view_4d(shown, shown.ne[1], shown.ne[2], 1, 1, shown.nb[2], shown.nb[3], shown.nb[3], 0)
    return g.add(shown, mask), g.scale(shown, 2.0)


def other_numbers(g, mask, keys):
    """Not 0: a number that f16 may round."""
    hidden = g.fill(mask, -1000.1)
    rows = g.view_4d(hidden, 1, hidden.ne[0], hidden.ne[1], 1, hidden.nb[0], hidden.nb[1], hidden.nb[2], 0)
    numbers = g.fill(lib.ggml_new_tensor_4d(g.ctx, lib.GGML_TYPE_F32, 1, keys.ne[0], keys.ne[1], 1), 0.1)
    shown = g.set_rows(rows, numbers, keys)
    shown = g.view_4d(shown, shown.ne[1], shown.ne[2], 1, 1, shown.nb[2], shown.nb[3], shown.nb[3], 0)
    return g.add(shown, mask),


def changed_gate(name, function):
    return lambda *tensors: per_layer_gate(*tensors, change={name: function})


def gate_read_elsewhere(name):
    """A node has a second reader."""
    def build(g, *tensors):
        seen = []
        outputs = per_layer_gate(g, *tensors, change={name: lambda g, tensor: seen.append(tensor) or tensor})
        return *outputs, g.sqr(seen[0])
    return build


LAYER = PerLayer(tokens=3)


def changed_conv(name, function, layer=LAYER):
    return lambda *tensors: layer.build(*tensors, change={name: function})


def conv_read_elsewhere(name):
    def build(g, *tensors):
        seen = []
        outputs = LAYER.build(g, *tensors, change={name: lambda g, tensor: seen.append(tensor) or tensor})
        return *outputs, g.sqr(seen[0])
    return build


def columns_out_of_order(g, *tensors):
    """Each tap has the next one's weights."""
    columns = []

    def column(g, tensor):
        columns.append(tensor)
        return columns[0]
    return LAYER.build(g, *tensors, change={"column": column})


def overwritten_states(g, *tensors):
    """All rows of the cache are changed behind the copies: the fusion would run after that."""
    return LAYER.build(g, *tensors, between=lambda g, cache: g.scale_inplace(cache, 2.0))


SCORES = normal(1, 3, 4, 17)
GATE = gate_inputs(2, 4, 64)
IN_GATE = ("key", "query", "product", "sum", "scaled", "size", "factor", "repeated")
IN_CONV = ("states", "padded", "window", "shifted", "column", "term", "total", "activated", "copied")
HAZARDS = {
    "weights-read-twice": (weights_read_twice, [normal(3, 4), normal(3, 32), normal(3, 4, 32)], {}),
    "mixing-matrix": (mixed_post, [normal(3, 4), normal(3, 32), normal(3, 4, 32), normal(3, 4, 4)], {}),
    "slices-out-of-order": (slices_out_of_order, [SCORES], {}),
    "slices-with-a-gap": (slices_with_a_gap, [SCORES], {"slice_sum": 1}),  # of the first two
    "slices-of-two": (slices_of_two, [SCORES, SCORES], {}),
    "relu-read-twice": (relu_read_twice, [SCORES], {}),
    "partial-sum-read": (partial_sum_read, [SCORES], {"slice_sum": 1}),
    "gathered-rows-read": (gathered_rows_read, [normal(1, 20, 33), integers(20, 1, 6)], {"slice_sum": 1}),
    "some-of-the-rows": (some_of_the_rows, [normal(1, 20, 33), integers(20, 1, 6)], {"slice_sum": 1}),
    "shown-read-twice": (shown_read_twice, [mask(1, 1, 3, 40), chosen(40, 7, 1, 3)], {}),
    "other-numbers": (other_numbers, [mask(1, 1, 3, 40), chosen(40, 7, 1, 3)], {}),
    **{f"gate-{name}-is-output": (changed_gate(name, as_output), GATE) for name in IN_GATE},
    **{f"gate-{name}-read-elsewhere": (gate_read_elsewhere(name), GATE) for name in IN_GATE},
    "gate-of-odd-rows": (per_layer_gate, gate_inputs(2, 4, 63)),
    "gate-of-long-rows": (per_layer_gate, gate_inputs(1, 1, 8196)),
    **{f"conv-{name}-is-output": (changed_conv(name, as_output), LAYER.inputs()) for name in IN_CONV},
    **{f"conv-{name}-read-elsewhere": (conv_read_elsewhere(name), LAYER.inputs()) for name in IN_CONV},
    "conv-columns-out-of-order": (columns_out_of_order, LAYER.inputs()),
    "conv-states-overwritten": (overwritten_states, LAYER.inputs()),
    "conv-of-nine-taps": (PerLayer(taps=9).build, PerLayer(taps=9).inputs()),
    "conv-of-many-sequences": (PerLayer(width=4, sequences=40, cells=42).build, PerLayer(width=4, sequences=40, cells=42).inputs()),
    "conv-of-many-snapshots": (PerLayer(snapshots=10).build, PerLayer(snapshots=10).inputs()),
}


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", list(HAZARDS))
def test_hazards(name, memory):
    """Without a count: whatever else applies, but not the fusions of per-layer embeddings."""
    build, makers, *expected = HAZARDS[name]
    inputs = made(makers)
    if expected:
        check_bits(build, inputs, *expected, memory)
        return
    wanted, _ = compute(build, inputs, fused=False)
    got, applied = compute(build, inputs, memory)
    assert got == wanted and "per_layer_gate" not in applied and "per_layer_conv" not in applied


@pytest.mark.parametrize("operand", [2, 4])
def test_conv_result_over_operand(operand):
    """The allocator gave the result the memory of what is convolved or of the weights."""
    layer = PerLayer(tokens=3)
    check_refused_over(layer.build, made(layer.inputs()), operand, "per_layer_conv")
