"""CUMSUM against float64."""
import numpy as np
import pytest
from support.ops import new_rng, nmse, refusal_of, run_op
from support.values import run_twice

WIDTHS = [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 67, 127, 128, 129, 511, 512, 513, 1000, 4095, 4096, 4097, 8193, 20481]


def expected(x):
    return np.cumsum(x.astype(np.float64), axis=-1)


@pytest.mark.parametrize("width", WIDTHS)
def test_widths(width):
    x = new_rng().uniform(-1, 1, (3, width)).astype(np.float32)
    out = run_twice(lambda g, a: g.cumsum(a), x).reshape(x.shape)
    assert nmse(out, expected(x)) < 1e-12


@pytest.mark.parametrize("width", [33, 700, 5000])
def test_every_sum(width):
    """Small whole numbers: exact everywhere."""
    x = new_rng().integers(-100, 100, (5, width)).astype(np.float32)
    np.testing.assert_array_equal(run_op(lambda g, a: g.cumsum(a), x), expected(x))


@pytest.mark.parametrize("width", [130, 5001])
def test_strides(width):
    x = new_rng().uniform(-1, 1, (3, 4, 5, width)).astype(np.float32)
    part = run_op(lambda g, a: g.cumsum(g.view_4d(a, width - 7, 3, 2, 3, a.nb[1], a.nb[2], a.nb[3], 4)), x)
    assert nmse(part, expected(x[:, :2, :3, 1:width - 6])) < 1e-12
    assert nmse(run_op(lambda g, a: g.cumsum(g.permute(a, 0, 2, 1, 3)), x), expected(x.swapaxes(1, 2))) < 1e-12


def test_a_vocabulary():
    """As samplers sum probabilities: of 131,072 candidates, in one row."""
    x = new_rng().exponential(size=(1, 131072)).astype(np.float32)
    x /= x.sum()
    out = run_op(lambda g, a: g.cumsum(a), x)
    assert np.max(np.abs(out - expected(x).ravel())) < 2e-6


@pytest.mark.parametrize("width", [64, 5000])
def test_infinity_and_nan_spoil_what_follows(width):
    x = np.ones((1, width), np.float32)
    x[0, 37], x[0, 50] = np.inf, np.nan
    out = run_op(lambda g, a: g.cumsum(a), x).ravel()
    np.testing.assert_array_equal(out[:37], np.arange(1, 38))
    assert np.all(out[37:50] == np.inf) and np.all(np.isnan(out[50:]))


def test_refusals():
    assert "contiguous" in refusal_of(lambda g, a: g.cumsum(g.transpose(a)), np.ones((3, 4), np.float32))
