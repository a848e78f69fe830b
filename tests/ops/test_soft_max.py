"""SOFT_MAX against a float64 reference."""
import numpy as np
import pytest
from support.alibi import alibi_slopes
from support.ggml import ffi, lib
from support.ops import Graph, new_rng, nmse

LIMIT = 1e-12  # f32 arithmetic throughout


def reference(x, mask, scale, max_bias, sinks):
    """(batches, heads, rows, width) float64"""
    s = x.astype(np.float64) * scale
    heads = s.shape[1]
    if mask is not None:
        m = mask.astype(np.float64)
        m = np.tile(m, (s.shape[0] // m.shape[0], heads // m.shape[1], 1, 1))[:, :, : s.shape[2]]
        s = s + np.where(np.isinf(m), -np.inf, alibi_slopes(heads, max_bias)[:, None, None] * m)
    top = s.max(axis=-1, keepdims=True)
    extra = 0
    if sinks is not None:
        sinks = sinks.astype(np.float64)[None, :, None, None]
        top = np.maximum(top, sinks)
        extra = np.exp(sinks - top)
    w = np.exp(s - top)
    return w / (w.sum(axis=-1, keepdims=True) + extra)


def soft_max(x, mask, scale, max_bias, sinks, in_place=False):
    with Graph() as g:
        t = g.input(x)
        # a copy of the input keeps the input itself intact, which Graph checks
        source = g.dup(t) if in_place else t
        function = g.soft_max_ext_inplace if in_place else g.soft_max_ext
        out = function(source, ffi.NULL if mask is None else g.input(mask), scale, max_bias)
        if sinks is not None:
            lib.ggml_soft_max_add_sinks(out, g.input(sinks))
        return g.run(out).reshape(x.shape)


def make(rng, shape, mask=None, mask_shape=None, sinks=False):
    """Inputs; the mask has -inf in a third of its places, never in the first of a row."""
    x = (rng.standard_normal(shape) * 4).astype(np.float32)
    m = None
    if mask:
        m = rng.uniform(-3, 3, mask_shape or shape)
        m = np.where(rng.random(m.shape) < 1 / 3, -np.inf, m)
        m[..., 0] = 0
        m = m.astype(np.float16 if mask == "f16" else np.float32)
    return x, m, rng.uniform(-5, 5, shape[1]).astype(np.float32) if sinks else None


WIDTHS = [1, 2, 3, 4, 31, 113, 127, 128, 129, 511, 512, 513, 1023, 1024, 1025, 4095, 4096, 4097, 20001]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("mask", [None, "f16", "f32"])
def test_widths(width, mask):
    x, m, _ = make(new_rng(), (1, 2, 5, width), mask, (1, 1, 5, width))
    out = soft_max(x, m, 0.3, 0.0, None)
    assert nmse(out, reference(x, m, 0.3, 0.0, None)) < LIMIT
    np.testing.assert_array_equal(out, soft_max(x, m, 0.3, 0.0, None))


@pytest.mark.parametrize("width", [7, 300, 1000, 3000, 9000])
@pytest.mark.parametrize("mask", [None, "f16", "f32"])
def test_in_place(width, mask):
    x, m, sinks = make(new_rng(), (2, 3, 4, width), mask, (1, 3, 6, width), sinks=True)
    np.testing.assert_array_equal(soft_max(x, m, 1.0, 0.0, sinks, in_place=True), soft_max(x, m, 1.0, 0.0, sinks))


@pytest.mark.parametrize("width", [16, 700, 2000, 5000])
@pytest.mark.parametrize("max_bias, sinks", [(8.0, False), (0.0, True), (8.0, True)])
@pytest.mark.parametrize("mask_shape", [(3, 1), (1, 6), (1, 1), (3, 3)])
def test_broadcast_bias_and_sinks(width, max_bias, sinks, mask_shape):
    """6 heads: not a power of two. The mask has more rows than the source."""
    x, m, s = make(new_rng(), (3, 6, 3, width), "f16", (*mask_shape, 5, width), sinks)
    assert nmse(soft_max(x, m, 0.1, max_bias, s), reference(x, m, 0.1, max_bias, s)) < LIMIT


@pytest.mark.parametrize("width", [100, 1000, 4000, 100000])
def test_extreme_values(width):
    """Large scores, and values at the ends of the f32 range."""
    rng = new_rng()
    x = (rng.standard_normal((1, 1, 4, width)) * 1e4).astype(np.float32)
    x[0, 0, 1] = -3e38
    x[0, 0, 2, width // 2] = 3e38
    x[0, 0, 3, 1:] = -np.inf
    assert nmse(soft_max(x, None, 1.0, 0.0, None), reference(x, None, 1.0, 0.0, None)) < LIMIT


@pytest.mark.parametrize("width", [100, 1000, 4000, 10000])
def test_a_fully_masked_row_is_nan_as_on_the_cpu(width):
    x = np.zeros((1, 1, 2, width), np.float32)
    x[0, 0, 1] = -np.inf
    out = soft_max(x, None, 1.0, 0.0, None)
    np.testing.assert_allclose(out[0, 0, 0], 1 / width, rtol=1e-6)
    assert np.isnan(out[0, 0, 1]).all()


def test_refusals():
    with Graph() as g:
        x = g.tensor([32, 3, 2, 1])
        assert g.refusal(g.soft_max(x)) is None
        f16 = g.tensor([32, 3, 2, 1], "f16")
        assert g.refusal(g.soft_max(f16)) == "type"
