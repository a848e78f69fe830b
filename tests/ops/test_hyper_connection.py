"""DSV4_HC_PRE, DSV4_HC_POST and DSV4_HC_COMB against float64."""
import numpy as np
import pytest
from support.ggml import ffi
from support.ops import Graph, new_rng, nmse, run_op
from support.values import assert_close

LIMIT = 1e-12  # f32 arithmetic throughout
WIDTHS = [1, 3, 4, 31, 128, 1027]


def f32(x):
    return x.astype(np.float32)


def pre(x, weights, gated, scale):
    x, weights = x.astype(np.float64), weights.astype(np.float64)
    return scale * np.sum(x * (1 / (1 + np.exp(-weights)) if gated else weights[..., None]), axis=1)


def check_pre(out, x, weights, gated, scale):
    """Within half a unit a stream of the magnitudes that are summed, and those of a sigmoid and the scale."""
    magnitude = pre(np.abs(x), weights if gated else np.abs(weights), gated, scale)
    assert_close(out, pre(x, weights, gated, scale), magnitude, 2.0**-24 * (x.shape[1] + 7))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("streams", [1, 2, 4, 5, 65])
@pytest.mark.parametrize("gated", [False, True])
def test_pre(width, streams, gated):
    rng = new_rng()
    x = f32(rng.standard_normal((7, streams, width)))
    weights = f32(rng.uniform(-4, 4, x.shape if gated else x.shape[:2]))
    build = (lambda g, a, w: g.dsv4_hc_pre_gated(a, w, 0.25)) if gated else (lambda g, a, w: g.dsv4_hc_pre(a, w))
    check_pre(run_op(build, x, weights), x, weights, gated, 0.25 if gated else 1)


@pytest.mark.parametrize("gated", [False, True])
def test_pre_of_views(gated):
    rng = new_rng()
    x = f32(rng.standard_normal((5, 6, 40)))
    weights = f32(rng.standard_normal(x.shape if gated else (6, 5)))
    with Graph() as g:
        a, w = g.input(x), g.input(weights)
        part = lambda t: g.view_3d(t, 33, 4, 3, t.nb[1], t.nb[2], 2 * t.nb[2] + t.nb[1] + 8)
        # the plain weights' streams are rows
        out = g.dsv4_hc_pre_gated(part(a), part(w), 0.5) if gated else g.dsv4_hc_pre(part(a), g.permute(g.view_2d(w, 3, 4, w.nb[1], 8), 1, 0, 2, 3))
        made = g.run(out)
    used = weights[2:5, 1:5, 2:35] if gated else weights[:4, 2:5].T
    check_pre(made, x[2:5, 1:5, 2:35], used, gated, 0.5 if gated else 1)


def post(x, residual, weights, comb):
    x, residual, weights = (v.astype(np.float64) for v in (x, residual, weights))
    mixed = residual if comb is None else np.einsum("tsi,tsd->tdi", residual, comb.astype(np.float64))
    return x[:, None] * weights[..., None] + mixed


def check_post(out, *operands):
    """Within half a unit a stream of the magnitudes that are summed."""
    magnitude = post(*(None if v is None else np.abs(v) for v in operands))
    assert_close(out, post(*operands), magnitude, 2.0**-24 * (operands[1].shape[1] + 2))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("streams", [1, 3, 4])
@pytest.mark.parametrize("mixed", [False, True])
def test_post(width, streams, mixed):
    rng = new_rng()
    x, residual = f32(rng.standard_normal((9, width))), f32(rng.standard_normal((9, streams, width)))
    weights, comb = f32(rng.uniform(0, 2, (9, streams))), f32(rng.uniform(0, 1, (9, streams, streams))) if mixed else None
    with Graph() as g:
        out = g.run(g.dsv4_hc_post(*(g.input(v) for v in (x, residual, weights)), g.input(comb) if mixed else ffi.NULL))
    check_post(out, x, residual, weights, comb)


def test_post_of_views():
    rng = new_rng()
    x, residual = f32(rng.standard_normal((6, 50))), f32(rng.standard_normal((6, 5, 50)))
    weights, comb = f32(rng.uniform(0, 2, (4, 6))), f32(rng.uniform(0, 1, (6, 4, 4)))
    with Graph() as g:
        a, r, w, c = (g.input(v) for v in (x, residual, weights, comb))
        out = g.run(g.dsv4_hc_post(g.view_2d(a, 33, 4, a.nb[1], 2 * a.nb[1] + 4), g.view_3d(r, 33, 4, 4, r.nb[1], r.nb[2], r.nb[2] + r.nb[1] + 4),
                                   g.permute(g.view_2d(w, 4, 4, w.nb[1], 8), 1, 0, 2, 3), g.permute(g.view_3d(c, 4, 4, 4, c.nb[1], c.nb[2], 0), 1, 0, 2, 3)))
    check_post(out, x[2:6, 1:34], residual[1:5, 1:5, 1:34], weights[:, 2:6].T, comb[:4].swapaxes(1, 2))


def comb(mixes, scale, base, eps, rounds):
    """[token][source][destination]"""
    logits = (mixes[:, 8:].astype(np.float64) * np.float64(scale[2]) + base[8:].astype(np.float64)).reshape(-1, 4, 4)
    eps = np.float64(np.float32(eps))
    m = np.exp(logits - logits.max(axis=2, keepdims=True))
    m = m / m.sum(axis=2, keepdims=True) + eps
    m = m / (m.sum(axis=1, keepdims=True) + eps)
    for _ in range(rounds - 1):
        m = m / (m.sum(axis=2, keepdims=True) + eps)
        m = m / (m.sum(axis=1, keepdims=True) + eps)
    return m


@pytest.mark.parametrize("tokens", [1, 17, 257])
@pytest.mark.parametrize("rounds", [1, 4, 20])
@pytest.mark.parametrize("eps", [1e-6, 0.01])
def test_comb(tokens, rounds, eps):
    rng = new_rng()
    mixes, scale, base = f32(rng.uniform(-8, 8, (tokens, 24))), f32(rng.uniform(-1, 1, 3)), f32(rng.uniform(-1, 1, 24))
    out = run_op(lambda g, *tensors: g.dsv4_hc_comb(*tensors, eps, rounds), mixes, scale, base).reshape(tokens, 4, 4)
    assert nmse(out, comb(mixes, scale, base, eps, rounds)) < LIMIT


def test_comb_of_a_view():
    rng = new_rng()
    mixes, scale, base = f32(rng.uniform(-2, 2, (9, 30))), f32(rng.uniform(-1, 1, 3)), f32(rng.uniform(-1, 1, 24))
    out = run_op(lambda g, m, s, b: g.dsv4_hc_comb(g.view_2d(m, 24, 5, m.nb[1], 2 * m.nb[1] + 8), s, b, 1e-6, 3), mixes, scale, base)
    assert nmse(out, comb(mixes[2:7, 2:26], scale, base, 1e-6, 3)) < LIMIT


def test_refusals():
    x, weights = np.ones((2, 4, 8), np.float32), np.ones((2, 4), np.float32)
    with Graph() as g:
        a = g.input(x)
        assert g.refusal(g.dsv4_hc_pre(a, g.input(weights))) is None
        lying = g.permute(g.input(x.swapaxes(1, 2)), 1, 0, 2, 3)
        assert "contiguous" in g.refusal(g.dsv4_hc_pre(lying, g.input(weights)))
