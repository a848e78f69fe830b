"""The fusions of hyper-connections and sparse attention (the architecture qwen4exp) against the same graph with a launch for each node: bit for
bit, whatever the allocator does, applied where they should be and refused where they must be."""
import numpy as np
import pytest

from support.fusions import MEMORY, check_bits, compute, made, normal, quantized
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


SCORES = normal(1, 3, 4, 17)
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
}


@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", list(HAZARDS))
def test_hazards(name, memory):
    build, makers, expected = HAZARDS[name]
    check_bits(build, made(makers), expected, memory)
