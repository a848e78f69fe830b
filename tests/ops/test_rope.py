"""ROPE against a float64 model written from the definition. The device holds angles as f32: of thousands of radians they are a few units in the
last place off, and a pair turns by so much too far."""
import math

import numpy as np
import pytest

from support.ggml import ffi
from support.ops import Graph, new_rng, refusal_of, run_op
from support.values import ROUNDING, SMALLEST, run_twice

NORMAL, NEOX, MROPE, VISION, IMROPE = 0, 2, 8, 24, 40


def rope(x, positions, n_dims, mode, base=10000.0, freq_scale=1.0, ext=0.0, attn=1.0, fast=32.0, slow=1.0, n_ctx=0, factors=None,
         sections=(0, 0, 0, 0), n_offs=0):
    """(x [batches, tokens, heads, row] turned, how far off f32 may be) in float64."""
    x = x.astype(np.float64)
    pairs = n_dims if mode == VISION else n_dims // 2
    positions = np.asarray(positions, np.float64).reshape(-1, x.shape[1])
    k = np.arange(pairs)
    which, power = np.zeros(pairs, int), k.copy()
    if mode & MROPE:
        for i in k:
            sector = i % sum(sections)
            ends = np.cumsum(sections)
            if mode == IMROPE:
                which[i] = sector % 3 if sector < 3 * sections[sector % 3] else 3
            else:
                which[i] = int(np.searchsorted(ends[:3], sector, side="right"))
                if mode == VISION:
                    power[i] = sector - (ends[which[i] - 1] if which[i] else 0)
    angle = positions[which].T * float(np.float32(base)) ** (-2.0 * power / n_dims)  # [tokens, pairs]
    if factors is not None:
        angle = angle / factors[:pairs]
    extrapolated, angle, magnitude = angle, freq_scale * angle, attn
    if ext:
        correction = lambda n: (n_dims * math.log(n_ctx / (n * 2 * math.pi)) / (2 * math.log(base))) if n_ctx else -math.inf
        low, high = correction(fast), correction(slow)
        low = max(0, math.floor(low)) if n_ctx else 0
        high = min(n_dims - 1, math.ceil(high)) if n_ctx else -math.inf
        mix = ext * (1 - np.clip((k - low) / max(0.001, high - low), 0, 1))
        angle = angle * (1 - mix) + extrapolated * mix
        magnitude *= 1 + 0.1 * math.log(1 / freq_scale)
    c, s = (magnitude * f(angle)[None, :, None, :] for f in (np.cos, np.sin))
    # In half units in the last place of the angle: the frequency within 2.5, roundings by the position and by the scale, by a factor, and on
    # the way to the mixture. Sine and cosine are within 4 of theirs, and turning rounds twice.
    halves = 4.5 + (factors is not None) + (6 if ext else 0)
    off = magnitude * 2.0**-24 * (halves * np.maximum(np.abs(angle), np.abs(extrapolated)) + 8)
    first, second = (n_offs + 2 * k, n_offs + 2 * k + 1) if mode == NORMAL else (n_offs + k, n_offs + k + pairs)
    out = x.copy()
    out[..., first] = x[..., first] * c - x[..., second] * s
    out[..., second] = x[..., first] * s + x[..., second] * c
    error = np.zeros_like(x)
    error[..., first] = error[..., second] = np.hypot(x[..., first], x[..., second]) * off[None, :, None, :]
    return out, error


def assert_turned(out, wanted, error):
    """`out` is what rope() wants of it, rounded to its type."""
    type = {np.float16: "f16", np.float32: "f32"}[out.dtype.type]
    bound = error + ROUNDING[type] * np.maximum(np.abs(wanted) + error, SMALLEST[type])
    ratio = np.abs(out.astype(np.float64).reshape(wanted.shape) - wanted) / bound
    assert ratio.max() <= 1, f"{ratio.max():.3g} times the bound ({np.sum(ratio > 1)} of {ratio.size} wrong)"


def check(shape, n_dims, mode, type=np.float32, view=None, in_place=False, positions=None, **options):
    """shape is [batches, tokens, heads, row]; view picks a part: a function (graph, tensor) -> tensor and one array -> array."""
    rng = new_rng()
    x = rng.uniform(-1, 1, shape).astype(type)
    tokens = shape[1]
    if positions is None:
        positions = rng.integers(0, 4096, tokens * (4 if mode & MROPE else 1))
    positions = np.asarray(positions, np.int32)
    given = {"base": 10000.0, "freq_scale": 1.0, "ext": 0.0, "attn": 1.0, "fast": 32.0, "slow": 1.0, "n_ctx": 0} | options
    factors = given.pop("factors", None)
    sections = given.pop("sections", (0, 0, 0, 0))
    n_offs = given.pop("n_offs", 0)
    build_view, take = view or ((lambda g, t: t), (lambda a: a))

    def build(g, a, p, *rest):
        common = (given["n_ctx"], given["base"], given["freq_scale"], given["ext"], given["attn"], given["fast"], given["slow"])
        where = rest[0] if rest else ffi.NULL
        name = ("rope_multi" if mode & MROPE else "rope_ext") + ("_inplace" if in_place else "")
        dims = (n_dims, list(sections), mode) if mode & MROPE else (n_dims, mode)
        out = getattr(g, name)(build_view(g, a), p, where, *dims, *common)
        if n_offs:
            out.op_params[15] = n_offs
        return out

    inputs = [x, positions] + ([factors] if factors is not None else [])
    out = (run_op if in_place else run_twice)(build, *inputs)
    assert_turned(out, *rope(take(x), positions, n_dims, mode, factors=factors, sections=sections, n_offs=n_offs, **given))


@pytest.mark.parametrize("type", [np.float32, np.float16])
@pytest.mark.parametrize("mode", [NORMAL, NEOX])
@pytest.mark.parametrize("shape, n_dims", [((1, 1, 9, 64), 64), ((1, 3, 4, 256), 256), ((2, 5, 3, 80), 32), ((1, 130, 2, 18), 6),
                                           ((1, 2, 1, 700), 700)])
def test_rope(shape, n_dims, mode, type):
    check(shape, n_dims, mode, type)


@pytest.mark.parametrize("mode", [NORMAL, NEOX])
def test_exact_for_small_positions(mode):
    """With small angles only the last places are free."""
    check((1, 8, 3, 64), 64, mode, positions=np.arange(8))


def test_first_position_is_the_identity():
    x = new_rng().standard_normal((4, 3, 64), dtype=np.float32)
    out = run_op(lambda g, a, p: g.rope_ext(a, p, ffi.NULL, 64, NEOX, 0, 1e6, 1.0, 0.0, 1.0, 32.0, 1.0), x, np.zeros(4, np.int32))
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("mode", [NORMAL, NEOX])
def test_factors(mode):
    factors = np.linspace(1, 32, 32).astype(np.float32)
    check((1, 4, 5, 64), 64, mode, factors=factors, base=500000.0)


@pytest.mark.parametrize("n_ctx", [0, 512, 4096])
@pytest.mark.parametrize("mode", [NORMAL, NEOX])
def test_yarn(mode, n_ctx):
    check((1, 4, 5, 64), 64, mode, freq_scale=1 / 32, ext=1.0, attn=1.4245, n_ctx=n_ctx, base=150000.0)
    check((1, 4, 5, 128), 128, mode, freq_scale=1.4245, ext=0.7465, attn=1.4245, n_ctx=n_ctx, fast=1.0)


@pytest.mark.parametrize("mode", [MROPE, IMROPE])
@pytest.mark.parametrize("n_dims, sections", [(64, (11, 11, 10, 0)), (128, (16, 24, 24, 0)), (24, (3, 4, 2, 3)), (64, (8, 8, 8, 8))])
def test_four_positions(n_dims, sections, mode):
    """Time, height, width and extra differ: text, where they are equal, would hide a wrong choice."""
    check((1, 5, 3, 128), n_dims, mode, sections=sections)


def test_vision():
    check((1, 6, 4, 80), 40, VISION, sections=(20, 20, 0, 0))
    check((1, 6, 4, 80), 40, VISION, np.float16, sections=(10, 10, 12, 8))


@pytest.mark.parametrize("mode", [NORMAL, NEOX])
@pytest.mark.parametrize("in_place", [False, True])
def test_window(mode, in_place):
    check((1, 3, 4, 128), 32, mode, n_offs=32, in_place=in_place)
    check((1, 3, 4, 96), 64, mode, n_offs=32, in_place=in_place)


@pytest.mark.parametrize("type", [np.float32, np.float16])
@pytest.mark.parametrize("in_place", [False, True])
def test_views(type, in_place):
    size = np.dtype(type).itemsize
    view = (lambda g, t: g.view_4d(t, 64, 2, 3, 2, t.nb[1], t.nb[2], t.nb[3], 36 * size), lambda a: a[:, :3, :2, 36:100])
    rng = new_rng()
    x = rng.uniform(-1, 1, (2, 4, 3, 101)).astype(type)
    positions = np.arange(3, dtype=np.int32)
    name = "rope_ext_inplace" if in_place else "rope_ext"
    for mode in (NORMAL, NEOX):
        out = run_op(lambda g, a, p: getattr(g, name)(view[0](g, a), p, ffi.NULL, 48, mode, 0, 1e4, 1.0, 0.0, 1.0, 32.0, 1.0), x, positions)
        assert_turned(out, *rope(view[1](x), positions, 48, mode))


def test_shift_back_and_forth():
    """A context shift turns cached keys by a negative number of positions."""
    x = new_rng().standard_normal((4, 3, 64), dtype=np.float32)
    turn = lambda g, a, p: g.rope_ext(a, p, ffi.NULL, 64, NEOX, 0, 1e4, 1.0, 0.0, 1.0, 32.0, 1.0)
    shift = np.array([5, 100, 7, 0], np.int32)
    out = run_op(lambda g, a, p, q: turn(g, turn(g, a, p), q), x, shift, -shift)
    np.testing.assert_allclose(out, x, atol=2e-5)


@pytest.mark.parametrize("mode", [NORMAL, NEOX])
@pytest.mark.parametrize("type", [np.float32, np.float16])
def test_backward_turns_by_the_opposite(mode, type):
    rng = new_rng()
    x, p, factors = rng.uniform(-1, 1, (4, 3, 64)).astype(type), rng.integers(0, 512, 4).astype(np.int32), rng.uniform(0.5, 2, 24).astype(np.float32)
    out = run_twice(lambda g, a, q, f: g.rope_ext_back(a, q, f, 48, mode, 0, 1e4, 1.0, 0.0, 1.0, 32.0, 1.0), x, p, factors)
    assert_turned(out, *rope(x[None], -p, 48, mode, factors=factors.astype(np.float64)))


@pytest.mark.parametrize("type", [np.float16, np.float32])
@pytest.mark.parametrize("mode", [NORMAL, NEOX])
def test_shift_of_a_key_cache(type, mode):
    """In place, in the part of a cache that one layer's keys have, with a position a cell; the rest stays as it is."""
    rng = new_rng()
    cells, heads, row = 17, 2, 64
    cache, shift = rng.uniform(-1, 1, (3, cells, heads * row)).astype(type), rng.integers(-40, 1, cells).astype(np.int32)
    with Graph() as g:
        whole, positions = g.input(cache), g.input(shift)
        size = np.dtype(type).itemsize
        view = g.view_3d(whole, row, heads, cells, row * size, heads * row * size, whole.nb[2])
        g.run(g.rope_ext_inplace(view, positions, ffi.NULL, row, mode, 0, 1e4, 1.0, 0.0, 1.0, 32.0, 1.0))
        after = g.get(whole)
    np.testing.assert_array_equal(after[[0, 2]], cache[[0, 2]])
    assert_turned(after[1], *rope(cache[1].reshape(1, cells, heads, row), shift, row, mode))


@pytest.mark.parametrize("mode", [NORMAL, NEOX])
def test_nothing_rotated_is_a_copy(mode):
    """llama.cpp asks for this, with base and scale 0, to see where frequency factors can be."""
    x, factors = new_rng().standard_normal((2, 5, 3, 64), dtype=np.float32), np.ones(32, np.float32)
    build = lambda g, a, q, f: g.rope_ext(a, q, f, 0, mode, 0, 0, 0, 0, 0, 0, 0)
    np.testing.assert_array_equal(run_op(build, x, np.arange(5, dtype=np.int32), factors), x)


def test_refusals():
    x, p = np.ones((2, 1, 64), np.float32), np.zeros(2, np.int32)
    turn = lambda n_dims, mode: lambda g, a, q: g.rope_ext(a, q, ffi.NULL, n_dims, mode, 0, 1e4, 1.0, 0.0, 1.0, 32.0, 1.0)
    assert refusal_of(turn(64, NEOX), x, p) is None
    assert "mode" in refusal_of(turn(64, 4), x, p)
    assert "contiguous" in refusal_of(lambda g, a, q: turn(2, NEOX)(g, g.permute(a, 1, 0, 2, 3), q), x, p)
