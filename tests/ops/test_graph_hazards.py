"""Small graphs that tempt a backend to compute several nodes as one: the chains of the supported models, and forms of them in which
that goes wrong. The same operand twice, overlapping views, a second consumer, an intermediate result that is an output too, results
whose memory the allocator had given to an operand.

Each graph runs with memory of its own for every tensor, and as ggml's allocator packs it: equal bits. Both agree with the CPU backend.
"""
import numpy as np
import pytest

from support.fusions import packed
from support.ggml import ffi, lib
from support.ops import Graph, Quantized, new_rng, nmse

F32 = 4  # bytes


def normal(*shape):
    return lambda rng: rng.standard_normal(shape, dtype=np.float32)


def apart_from_each_other(*shape):
    """Numbers of which the order of a row's is not a matter of rounding."""
    return lambda rng: (rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1) / 16 - 2).astype(np.float32)


def quantized(kind, *shape):
    return lambda rng: Quantized(rng.standard_normal(shape), kind)


def indices(high, *shape):
    return lambda rng: np.stack([rng.permutation(high)[:shape[-1]] for _ in range(shape[0])]).astype(np.int32)


def output(tensor):
    """Marks an intermediate result as one that is read."""
    lib.ggml_set_output(tensor)
    return tensor


def norm_weighted(g, x, w):
    return g.mul(g.rms_norm(x, 1e-6), w)


def twice(g, x):
    return g.add(x, x), g.mul(g.rms_norm(x, 1e-6), g.rms_norm(x, 1e-6))


def square_of_one_norm(g, x):
    n = g.rms_norm(x, 1e-6)
    return g.mul(n, n)


def overlapping_views(g, x):
    ne, nb = x.ne, x.nb
    a = g.view_2d(x, ne[0] - 1, ne[1], nb[1], 0)
    b = g.view_2d(x, ne[0] - 1, ne[1], nb[1], F32)
    return g.add(a, b), g.mul(g.silu(g.cont(a)), b)


def second_consumer(g, x, w):
    n = g.rms_norm(x, 1e-6)
    scaled = g.mul(n, w)
    return g.add(scaled, n), g.silu(scaled)


def intermediate_output(g, x, w):
    n = output(g.rms_norm(x, 1e-6))
    scaled = output(g.mul(n, w))
    return n, scaled, g.add(scaled, x)


def residuals(g, x, w):
    """A chain in which every sum may take the memory of an operand."""
    for _ in range(4):
        x = g.add(g.mul(g.silu(norm_weighted(g, x, w)), w), x)
    return x,


def swiglu_of_products(g, gate, up, x):
    return g.swiglu_split(g.mul_mat(gate, x), g.mul_mat(up, x)),


def swiglu_of_one_product(g, gate, x):
    """Gate and up are the same tensor."""
    y = g.mul_mat(gate, x)
    return g.swiglu_split(y, y),


def product_of_two_sequences(g, w, x, b):
    """x holds one token of each of two sequences; the bias has a row for each."""
    y = g.mul_mat(w, x)
    return g.add(g.reshape_2d(y, y.ne[0], y.ne[2]), b),


def experts(g, gate, up, down, x, ids, weights):
    """gate, up, GLU, down, weighted sum over the experts used, left to right."""
    columns = g.reshape_3d(x, x.ne[0], 1, x.ne[1])
    y = g.swiglu_split(g.mul_mat_id(gate, columns, ids), g.mul_mat_id(up, columns, ids))
    y = g.mul(g.mul_mat_id(down, y, ids), g.reshape_3d(weights, 1, weights.ne[0], weights.ne[1]))
    total = g.view_2d(y, y.ne[0], y.ne[2], y.nb[2], 0)
    for i in range(1, y.ne[1]):
        total = g.add(total, g.view_2d(y, y.ne[0], y.ne[2], y.nb[2], i * y.nb[1]))
    return total,


def router(g, logits):
    """Softmax, the 4 likeliest experts, weights that sum to 1."""
    p = g.soft_max(logits)
    n, tokens = logits.ne[0], logits.ne[1]
    ids = g.argsort_top_k(p, 4)
    w = g.reshape_2d(g.get_rows(g.reshape_3d(p, 1, n, tokens), ids), 4, tokens)
    return ids, g.div(w, g.clamp(g.sum_rows(w), 6.103515625e-5, float("inf")))


def shared_expert(g, gate, x, shared, routed, residual):
    return g.add(g.add(routed, g.mul(shared, g.sigmoid(g.mul_mat(gate, x)))), residual),


def conv_silu(g, x, state, kernel):
    """The convolution of a linear layer and its state's update."""
    joined = g.concat(state, g.cont(g.transpose(x)), 0)
    joined = g.reshape_3d(joined, joined.ne[0], joined.ne[1], 1)
    last = g.cont(g.view_2d(joined, 3, joined.ne[1], joined.nb[1], (joined.ne[0] - 3) * F32))
    return g.silu(g.ssm_conv(joined, kernel)), last


def gated_norm(g, x, w, z):
    return g.mul(norm_weighted(g, x, w), g.silu(z)),


def gates(g, x, bias, a, beta):
    return g.mul(g.softplus(g.add(x, bias)), a), g.sigmoid(beta)


def softcap(g, x):
    return g.scale(g.tanh(g.scale(x, 1 / 30)), 30.0),


def norm_rope(g, x, w, positions):
    return g.rope_ext(norm_weighted(g, x, w), positions, ffi.NULL, 64, 2, 0, 1e4, 1.0, 0.0, 1.0, 32.0, 1.0),


def biases_and_sum(g, x, b, c):
    return g.add(g.add(x, b), c),


TOKENS = [1, 2, 7, 8, 33]


def positions(n):
    return lambda rng: rng.integers(0, 4096, n).astype(np.int32)


def cases():
    """(name, graph, inputs, NMSE to the CPU): products of quantized weights round activations otherwise than the CPU does."""
    for n in TOKENS:
        yield f"norm-weighted-{n}", lambda g, x, w: (norm_weighted(g, x, w),), [normal(n, 2048), normal(2048)], 1e-9
        yield f"twice-{n}", twice, [normal(n, 130)], 1e-9
        yield f"square-of-one-norm-{n}", lambda g, x: (square_of_one_norm(g, x),), [normal(n, 130)], 1e-9
        yield f"overlapping-views-{n}", overlapping_views, [normal(n, 131)], 1e-9
        yield f"second-consumer-{n}", second_consumer, [normal(n, 192), normal(192)], 1e-9
        yield f"intermediate-output-{n}", intermediate_output, [normal(n, 192), normal(192)], 1e-9
        yield f"residuals-{n}", residuals, [normal(n, 192), normal(192)], 1e-9
        yield f"softcap-{n}", softcap, [normal(n, 99)], 1e-9
        # The CPU multiplies its angles up in f32.
        yield f"norm-rope-{n}", norm_rope, [normal(n, 3, 128), normal(128), positions(n)], 1e-7
        yield f"router-{n}", router, [apart_from_each_other(n, 64)], 1e-9
        yield f"conv-silu-{n}", conv_silu, [normal(n, 96), normal(96, 3), normal(96, 4)], 1e-9
        yield f"gated-norm-{n}", gated_norm, [normal(n, 4, 128), normal(128), normal(n, 4, 128)], 1e-9
        yield f"gates-{n}", gates, [normal(n, 32), normal(32), normal(32), normal(n, 32)], 1e-9
        yield f"biases-{n}", biases_and_sum, [normal(n, 64), normal(64), normal(n, 64)], 1e-9
        yield f"shared-expert-{n}", shared_expert, [normal(1, 256), normal(n, 256), normal(n, 256), normal(n, 256), normal(n, 256)], 1e-9
        for kind in ("q8_0", "q4_K", "iq2_s"):
            yield f"swiglu-{kind}-{n}", swiglu_of_products, [quantized(kind, 96, 256), quantized(kind, 96, 256), normal(n, 256)], 5e-3
            yield f"swiglu-of-one-{kind}-{n}", swiglu_of_one_product, [quantized(kind, 96, 256), normal(n, 256)], 5e-3
            for n_expert, used in ((8, 1), (8, 4)):
                yield (f"experts-{kind}-{used}-{n}", experts,
                       [quantized(kind, n_expert, 256, 256), quantized(kind, n_expert, 256, 256), quantized(kind, n_expert, 64, 256),
                        normal(n, 256), indices(n_expert, n, used), normal(n, used)], 5e-3)
    yield "one-row-experts", experts, [quantized("q8_0", 4, 32, 256), quantized("q8_0", 4, 32, 256), quantized("q8_0", 4, 1, 32),
                                       normal(32, 256), indices(4, 32, 1), normal(32, 1)], 5e-3
    yield "two-sequences", product_of_two_sequences, [quantized("q8_0", 5120, 6144), normal(2, 1, 6144), normal(2, 5120)], 5e-4


CASES = {name: rest for name, *rest in cases()}


def apart(build, inputs, device):
    """Every tensor in memory of its own."""
    with Graph(device) as g:
        results = g.run(*build(g, *[g.input(data) for data in inputs]))
        return results if isinstance(results, list) else [results]


def together(build, inputs):
    """As ggml's allocator packs it."""
    with Graph() as g:
        outputs = build(g, *[g.input(data) for data in inputs])
        with packed(g, outputs):
            return [g.get(tensor) for tensor in outputs]


@pytest.mark.parametrize("name", list(CASES))
def test_graph(name):
    build, makers, limit = CASES[name]
    rng = new_rng()
    inputs = [make(rng) for make in makers]
    ours = apart(build, inputs, "STRATA0")
    for first, second in zip(ours, together(build, inputs)):
        np.testing.assert_array_equal(first, second)
    for got, wanted in zip(ours, apart(build, inputs, "CPU")):
        assert nmse(got, wanted) <= limit
