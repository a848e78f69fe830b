"""What surrounds MUL_MAT_ID in a mixture of experts: ADD_ID, the top-k router, expert scales, the weighted sum, and a whole layer; all of
it is on the device and agrees with float64."""
import numpy as np
import pytest

from support.ops import Graph, new_rng, nmse, refusal_of, run_op
from support.products import BOUND, FLOATS, weights
from support.values import assert_largest, run_twice


def choose(rng, experts, used, tokens):
    return np.stack([rng.permutation(experts)[:used] for _ in range(tokens)]).astype(np.int32)


@pytest.mark.parametrize("width", [1, 3, 32, 129, 256, 260, 1030])
def test_add_id(width):
    rng = new_rng()
    for experts, used, tokens in ((4, 1, 1), (8, 4, 33), (3, 3, 2)):
        a = rng.standard_normal((tokens, used, width), dtype=np.float32)
        b = rng.standard_normal((experts, width), dtype=np.float32)
        ids = choose(rng, experts, used, tokens)
        np.testing.assert_array_equal(run_twice(lambda g, x, y, i: g.add_id(x, y, i), a, b, ids).reshape(a.shape), a + b[ids])


def test_add_id_to_views():
    """Parts of rows, strided ids, and the result in the place of the operand."""
    rng = new_rng()
    a = rng.standard_normal((5, 4, 70), dtype=np.float32)
    b = rng.standard_normal((6, 80), dtype=np.float32)
    ids = choose(rng, 6, 6, 5)

    def build(g, x, y, i):
        part = g.view_3d(x, 33, 3, 5, x.nb[1], x.nb[2], x.nb[1] + 4)
        return g.add_id(part, g.view_2d(y, 33, 6, y.nb[1], 8), g.view_2d(i, 3, 5, i.nb[1], 4))

    np.testing.assert_array_equal(run_op(build, a, b, ids), a[:, 1:, 1:34] + b[:, 2:35][ids[:, 1:4]])
    with Graph() as g:
        x, y, i = g.input(a[:, :, :64].copy()), g.input(b[:, :64].copy()), g.input(ids[:, :4].copy())
        out = g.add_id(x, y, i)
        g.allocate()
        out.data, out.buffer = x.data, x.buffer
        np.testing.assert_array_equal(g.run(out), a[:, :, :64] + b[:, :64][ids[:, :4]])


def test_add_id_refusals():
    ids = np.zeros((2, 3), np.int32)
    assert "f32" in refusal_of(lambda g, i: g.add_id(g.tensor((8, 3, 2), "f16"), g.tensor((8, 4)), i), ids)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("gate", ["softmax", "sigmoid", "softmax of the chosen"])
@pytest.mark.parametrize("experts,used", [(8, 2), (31, 8), (128, 8), (256, 8), (512, 10), (4, 4)])
def test_router(gate, experts, used):
    """Probabilities, selection by argsort, weights by row gather, normalised, clamped and scaled."""
    rng = new_rng()
    for tokens in (1, 23):
        logits = rng.standard_normal((tokens, experts), dtype=np.float32) * 2

        def build(g, x):
            probs = g.soft_max(x) if gate == "softmax" else g.sigmoid(x) if gate == "sigmoid" else x
            chosen = g.argsort_top_k(probs, used)
            w = g.reshape_2d(g.get_rows(g.reshape_3d(probs, 1, experts, tokens), chosen), used, tokens)
            if gate == "softmax of the chosen":
                w = g.soft_max(w)
            w = g.div(w, g.clamp(g.sum_rows(w), 6.103515625e-5, np.inf))
            return chosen, g.scale(g.reshape_3d(w, 1, used, tokens), 2.5)

        chosen, w = run_op(build, logits)
        x = logits.astype(np.float64)
        probs = softmax(x) if gate == "softmax" else 1 / (1 + np.exp(-x)) if gate == "sigmoid" else x
        chosen = chosen.reshape(tokens, used)
        # Logits themselves are exact. A probability is within 2^-24 of the exponent, at most 20, and some units in the last place.
        assert_largest(chosen, probs, 0 if gate == "softmax of the chosen" else 2.0**-19)
        picked = np.take_along_axis(probs, chosen, -1)
        picked = softmax(picked) if gate == "softmax of the chosen" else picked
        assert nmse(w.reshape(chosen.shape), 2.5 * picked / picked.sum(-1, keepdims=True)) < 1e-12


@pytest.mark.parametrize("type", ["f32", "q8_0", "q4_K"])
def test_expert_scales(type):
    """`.scale` tensors after the product: one number, or one an expert, gathered by the ids."""
    rng = new_rng()
    experts, used, m, k = 6, 2, 40, 256
    w, values = weights(rng, (experts, m, k), type)
    one, each = rng.uniform(0.5, 2, 1).astype(np.float32), rng.uniform(0.5, 2, (experts, 1)).astype(np.float32)
    for tokens in (1, 3, 20):
        x = rng.standard_normal((tokens, 1, k), dtype=np.float32)
        ids = choose(rng, experts, used, tokens)

        def build(g, a, b, i, s, e):
            out = g.mul_mat_id(a, b, i)
            gathered = g.get_rows(g.repeat_4d(g.reshape_3d(e, 1, experts, 1), 1, experts, tokens, 1), i)
            return g.mul(out, s), g.mul(out, gathered)

        by_one, by_each = run_op(build, w, x, ids, one, each)
        plain = np.einsum("tsmk,tk->tsm", values[ids], x[:, 0].astype(np.float64))
        assert nmse(by_one.reshape(plain.shape), plain * one) < 5e-4
        assert nmse(by_each.reshape(plain.shape), plain * each[ids]) < 5e-4


def swiglu(gate, up):
    return gate / (1 + np.exp(-gate)) * up


def swiglu_oai(gate, up, alpha=1.702, limit=7.0):
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return gate / (1 + np.exp(-alpha * gate)) * (up + 1)


@pytest.mark.parametrize("kind", ["qwen", "gpt-oss"])
@pytest.mark.parametrize("type", ["f16", "q8_0", "q4_K", "q6_K", "iq2_s", "mxfp4"])
def test_layer(kind, type):
    """Router, gate and up products, gated unit, down product, weighted sum over the experts, at one to eight tokens and at many; with
    biases and the other gated unit, or without. The same bits three times."""
    rng = new_rng()
    experts, used, width, inner = 16, 4, 256, 256
    scale = 1 if type in FLOATS or type in ("q8_0", "q4_K", "q6_K", "mxfp4") else 0.02   # blocks of random bytes hold large numbers
    gate, gate_values = weights(rng, (experts, inner, width), type)
    up, up_values = weights(rng, (experts, inner, width), type)
    down, down_values = weights(rng, (experts, width, inner), type)
    router = rng.standard_normal((experts, width), dtype=np.float32)
    bias = rng.standard_normal((experts, inner), dtype=np.float32)
    for tokens in (1, 2, 3, 8, 50):
        x = (rng.standard_normal((tokens, width)) * scale / 16).astype(np.float32)

        def build(g, t, r, a, b, c, d):
            probs = g.soft_max(g.mul_mat(r, t))
            chosen = g.argsort_top_k(probs, used)
            w = g.get_rows(g.reshape_3d(probs, 1, experts, tokens), chosen)
            rows = g.reshape_3d(t, width, 1, tokens)
            first, second = g.mul_mat_id(a, rows, chosen), g.mul_mat_id(b, rows, chosen)
            if kind == "qwen":
                hidden = g.swiglu_split(first, second)
            else:
                hidden = g.swiglu_oai(g.add_id(first, d, chosen), g.add_id(second, d, chosen), 1.702, 7.0)
            out = g.mul(g.mul_mat_id(c, hidden, chosen), w)
            total = g.view_2d(out, width, tokens, out.nb[2], 0)
            for i in range(1, used):
                total = g.add(total, g.view_2d(out, width, tokens, out.nb[2], i * out.nb[1]))
            return chosen, total

        chosen, total = run_twice(lambda *a: build(*a), x, router, gate, up, down, bias)
        again = run_op(build, x, router, gate, up, down, bias)[1]
        np.testing.assert_array_equal(again.view(np.uint32), total.view(np.uint32))
        x64 = x.astype(np.float64)
        probs = softmax(x64 @ router.T.astype(np.float64))
        ids = chosen.reshape(tokens, used)
        # A logit's error is that of the sum, relative to what is added up.
        assert_largest(ids, probs, 2 * BOUND * np.max(np.abs(x64) @ np.abs(router.T)) + 2.0**-19)
        first, second = (np.einsum("tsmk,tk->tsm", v[ids], x64) for v in (gate_values, up_values))
        hidden = swiglu(first, second) if kind == "qwen" else swiglu_oai(first + bias[ids], second + bias[ids])
        wanted = (np.einsum("tsmk,tsk->tsm", down_values[ids], hidden) * np.take_along_axis(probs, ids, -1)[..., None]).sum(1)
        assert nmse(total.reshape(wanted.shape), wanted) < 5e-4, tokens


def test_layer_on_zero_rows():
    """All-zero activations through gate, up, gated unit and down: zeros, no NaN."""
    rng = new_rng()
    w, _ = weights(rng, (4, 256, 256), "q4_K")
    for tokens in (1, 20):
        ids = choose(rng, 4, 2, tokens)

        def build(g, a, t, i):
            return g.mul_mat_id(a, g.swiglu_split(g.mul_mat_id(a, t, i), g.mul_mat_id(a, t, i)), i)

        assert not np.any(run_op(build, w, np.zeros((tokens, 1, 256), np.float32), ids))


def test_weighted_sum_of_views():
    """Experts at an odd address, the sums interleaved with their views."""
    rng = new_rng()
    tokens, used, width = 7, 5, 63
    storage = rng.standard_normal(tokens * used * width + 1, dtype=np.float32)
    w = rng.uniform(0, 1, (tokens, used, 1)).astype(np.float32)

    def build(g, s, y):
        experts = g.view_3d(s, width, used, tokens, width * 4, width * used * 4, 4)
        weighted = g.mul(experts, y)
        total = g.view_2d(weighted, width, tokens, weighted.nb[2], 0)
        for i in range(1, used):
            total = g.add(total, g.view_2d(weighted, width, tokens, weighted.nb[2], i * weighted.nb[1]))
        return total

    products = storage[1:].reshape(tokens, used, width) * w
    wanted = products[:, 0]
    for i in range(1, used):
        wanted = wanted + products[:, i]
    np.testing.assert_array_equal(run_op(build, storage, w), wanted)
