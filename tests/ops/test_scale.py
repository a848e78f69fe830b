"""SCALE against numpy in float64: x * scale + bias, rounded once."""
import numpy as np
import pytest

from support.ops import new_rng, refusal_of, run_op
from support.values import assert_rounded, run_twice, uniform


@pytest.mark.parametrize("type", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", [(1,), (31,), (3, 5, 300)])
@pytest.mark.parametrize("scale, bias", [(0.37, 0.0), (-2.0, 1.25), (0.0, 0.0)])
def test_scale(type, shape, scale, bias):
    scale, bias = np.float32(scale), np.float32(bias)
    x, values = uniform(new_rng(), shape, type)
    out = run_twice(lambda g, a: g.scale_bias(a, scale, bias), x)
    assert_rounded(out, (values * np.float64(scale) + np.float64(bias)).reshape(out.shape), type, ulps=0.502 if type == "f32" else 0.51)


def test_a_product_alone_is_the_product():
    x = new_rng().standard_normal((7, 65), dtype=np.float32)
    np.testing.assert_array_equal(run_op(lambda g, a: g.scale(a, np.float32(0.1)), x), x * np.float32(0.1))


def test_in_place_and_views():
    x = new_rng().standard_normal((4, 6, 40), dtype=np.float32)
    np.testing.assert_array_equal(run_op(lambda g, a: g.scale_inplace(a, 3.0), x), x * np.float32(3))
    part = run_op(lambda g, a: g.scale(g.view_2d(a, 33, 24, a.nb[1], 4), 3.0), x)
    np.testing.assert_array_equal(part, x.reshape(24, 40)[:, 1:34] * np.float32(3))


def test_zero_clears_only_numbers():
    """Scaling a state by zero must leave zeros; ggml keeps a NaN a NaN, and so do we."""
    out = run_op(lambda g, a: g.scale(a, 0.0), np.array([1.0, -5.0, np.nan, np.inf], np.float32))
    np.testing.assert_array_equal(out, np.array([0.0, 0.0, np.nan, np.nan], np.float32))


def test_refusal():
    assert refusal_of(lambda g, a: g.scale(a, 2.0), np.ones(4, np.int32)) is not None
