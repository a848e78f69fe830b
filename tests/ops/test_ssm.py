"""SSM_CONV and SSM_SCAN against float64."""
import numpy as np
import pytest
from support.ops import Graph, new_rng, nmse, refusal_of, run_op
from support.values import run_twice

LIMIT = 1e-12  # f32 arithmetic throughout


def convolution(x, weights):
    """x (sequences, channels, tokens + taps - 1), weights (channels, taps) to (sequences, tokens, channels)."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), weights.shape[1], axis=2)
    return np.einsum("sctk,ck->stc", windows, weights.astype(np.float64))


def check_convolution(out, x, weights):
    """Each sum of n products is within n roundings of the sum of their magnitudes."""
    expected, bound = convolution(x, weights), convolution(np.abs(x), np.abs(weights)) * weights.shape[1] * 2.0**-24
    assert np.all(np.abs(out.reshape(expected.shape) - expected) <= bound)


def conv_inputs(rng, taps, channels, tokens, sequences):
    return (rng.standard_normal((sequences, channels, tokens + taps - 1), dtype=np.float32),
            rng.standard_normal((channels, taps), dtype=np.float32))


@pytest.mark.parametrize("taps", [1, 2, 3, 4, 9, 65, 66])
@pytest.mark.parametrize("tokens", [1, 7, 8, 63, 64, 65, 200])
@pytest.mark.parametrize("channels, sequences", [(1, 1), (33, 3), (300, 1)])
def test_conv(taps, tokens, channels, sequences):
    x, weights = conv_inputs(new_rng(), taps, channels, tokens, sequences)
    out = run_twice(lambda g, a, b: g.ssm_conv(a, b), x, weights)
    check_convolution(out, x, weights)


@pytest.mark.parametrize("tokens", [2, 90])
def test_conv_of_a_view(tokens):
    """Rows, sequences and weights that lie apart."""
    x, weights = conv_inputs(new_rng(), 4, 70, tokens, 5)
    with Graph() as g:
        a, b = g.input(x), g.input(weights)
        part = g.view_3d(a, tokens + 3 - 1, 40, 3, a.nb[1], a.nb[2], a.nb[2] + 20 * a.nb[1] + 4)
        out = g.run(g.ssm_conv(part, g.view_2d(b, 3, 40, b.nb[1], 10 * b.nb[1])))
    check_convolution(out, x[1:4, 20:60, 1:], weights[10:50, :3])


@pytest.mark.parametrize("taps", [4, 9])
def test_conv_tokens_at_once_or_one_by_one(taps):
    x, weights = conv_inputs(new_rng(), taps, 40, 70, 1)
    together = run_op(lambda g, a, b: g.ssm_conv(a, b), x, weights)
    for t in (0, 33, 69):
        np.testing.assert_array_equal(run_op(lambda g, a, b: g.ssm_conv(a, b), x[:, :, t:t + taps], weights).ravel(), together[t])


def scan(state, x, dt, a, b, c, ids, snapshots):
    """state (rows, heads, dim, length), x (S, T, heads, dim), dt (S, T, heads), a (heads, 1 or length), b and c (S, T, groups, length), ids (S).
    Returns y (S, T, heads, dim) and the states after the last tokens, newest first."""
    state, x, dt, a, b, c = (v.astype(np.float64) for v in (state, x, dt, a, b, c))
    heads = x.shape[2]
    b, c = (np.repeat(v, heads // v.shape[2], axis=2) for v in (b, c))
    dt = np.where(dt > 20, dt, np.log1p(np.exp(np.minimum(dt, 20))))
    state, y, states = state[ids], np.empty_like(x), []
    for t in range(x.shape[1]):
        decay = np.exp(dt[:, t, :, None] * a)
        state = state * decay[:, :, None, :] + (x[:, t] * dt[:, t, :, None])[..., None] * b[:, t, :, None, :]
        y[:, t] = np.einsum("shdl,shl->shd", state, c[:, t])
        states = [state, *states][:snapshots]
    return y, states


def scan_inputs(rng, length, dim, heads, groups, tokens, sequences, each=False):
    """In the order of the op; the initial states are more rows than there are sequences."""
    f32 = lambda v: v.astype(np.float32)
    return [f32(rng.standard_normal((sequences + 2, heads, dim, length))), f32(rng.standard_normal((sequences, tokens, heads, dim))),
            f32(rng.uniform(-3, 3, (sequences, tokens, heads)) + 22 * (rng.random((sequences, tokens, heads)) < 0.05)),
            f32(-np.exp(rng.uniform(-4, 1, (heads, length if each else 1)))),
            f32(rng.standard_normal((sequences, tokens, groups, length))), f32(rng.standard_normal((sequences, tokens, groups, length))),
            rng.permutation(sequences + 2)[:sequences].astype(np.int32)]


def compute_scan(inputs, snapshots=1):
    state, x = inputs[:2]
    sequences, tokens, heads, dim = x.shape
    raw = run_op(lambda g, *tensors: g.ssm_scan(*tensors, snapshots), *inputs).ravel()
    y, states = np.split(raw, [x.size])
    states = states.reshape(snapshots, sequences, heads, dim, state.shape[-1])
    written = min(tokens, snapshots)
    assert np.all(states[written:].view(np.uint32) == 0xFFFFFFFF)
    return y.reshape(x.shape), states[:written]


def check_scan(inputs, snapshots=1):
    y, states = compute_scan(inputs, snapshots)
    expected, expected_states = scan(*inputs, snapshots)
    assert nmse(y, expected) < LIMIT
    for made, wanted in zip(states, expected_states, strict=True):
        assert nmse(made, wanted) < LIMIT


@pytest.mark.parametrize("length", [4, 16, 20, 32, 64, 96, 128, 256])
@pytest.mark.parametrize("tokens", [1, 17])
def test_scan_with_a_decay_a_head(length, tokens):
    """Mamba-2."""
    check_scan(scan_inputs(new_rng(), length, 5, 6, 3, tokens, 2))


@pytest.mark.parametrize("length", [4, 8, 16, 20, 128, 132, 256])
@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 33])
def test_scan_with_a_decay_each(length, tokens):
    """Mamba-1: heads of one element."""
    check_scan(scan_inputs(new_rng(), length, 1, 130, 1, tokens, 2, each=True))


def test_scan_with_a_decay_each_and_longer_heads():
    check_scan(scan_inputs(new_rng(), 16, 3, 10, 2, 5, 2, each=True))


@pytest.mark.parametrize("snapshots", [2, 3, 4])
@pytest.mark.parametrize("tokens", [1, 2, 8, 20])
def test_scan_snapshots(tokens, snapshots):
    check_scan(scan_inputs(new_rng(), 32, 8, 4, 2, tokens, 3), snapshots)


def test_scan_tokens_at_once_or_one_by_one():
    state, x, dt, a, b, c, _ = scan_inputs(new_rng(), 64, 8, 4, 2, 19, 1)
    y, states = compute_scan([state[:1], x, dt, a, b, c, np.zeros(1, np.int32)], 2)
    state, history = state[:1], []
    for t in range(19):
        now = slice(t, t + 1)
        step, new = compute_scan([state, x[:, now], dt[:, now], a, b[:, now], c[:, now], np.zeros(1, np.int32)])
        np.testing.assert_array_equal(step, y[:, now])
        state = new[0]
        history.append(state)
    np.testing.assert_array_equal(states, history[:-3:-1])


def test_scan_of_views():
    """x, B and C as models have them: parts of the rows of one tensor."""
    rng = new_rng()
    inputs = scan_inputs(rng, 16, 8, 4, 2, 5, 3)
    state, x, dt, a, b, c, ids = inputs
    mixed = np.concatenate([v.reshape(3, 5, -1) for v in (x, b, c)], axis=2)
    with Graph() as g:
        rows = g.input(mixed)
        part = lambda ne0, ne1, first: g.view_4d(rows, ne0, ne1, 5, 3, ne0 * 4, rows.nb[1], rows.nb[2], first * 4)
        out = g.ssm_scan(g.input(state), part(8, 4, 0), g.input(dt), g.input(a), part(16, 2, 32), part(16, 2, 64), g.input(ids), 1)
        raw = g.run(out).ravel()
    np.testing.assert_array_equal(raw[:x.size].reshape(x.shape), compute_scan(inputs)[0])


def test_a_long_scan():
    check_scan(scan_inputs(new_rng(), 128, 64, 2, 1, 600, 1))


def test_refusals():
    def reason(length, each):
        return refusal_of(lambda g, *tensors: g.ssm_scan(*tensors, 1), *scan_inputs(new_rng(), length, 1, 2, 1, 1, 1, each))

    assert reason(16, True) is None and reason(128, False) is None
    assert "length" in reason(18, False) and "length" in reason(260, False) and "length" in reason(18, True)
