"""OUT_PROD and backward passes against float64. ROPE_BACK: test_rope.py."""
import numpy as np
import pytest

from support.ops import Quantized, new_rng, nmse, refusal_of, run_op
from support.values import assert_close, run_twice, uniform

BOUND = 1e-11


@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (256, 16, 16), (65, 9, 33), (300, 17, 1), (7, 63, 130)])
def test_out_prod(m, n, k):
    rng = new_rng()
    (a, a_values), (b, b_values) = uniform(rng, (k, m)), uniform(rng, (k, n))
    out = run_twice(lambda g, x, y: g.out_prod(x, y), a, b)
    assert nmse(out.reshape(n, m), b_values.T @ a_values) < BOUND


@pytest.mark.parametrize("type", ["f32", "f16", "bf16", "q4_0", "q6_K"])
def test_out_prod_of_other_types(type):
    rng = new_rng()
    a = Quantized(rng.standard_normal((33, 256)), type) if type[0] in "qb" else rng.standard_normal((33, 256)).astype({"f32": np.float32, "f16": np.float16}[type])
    b = rng.standard_normal((33, 9), dtype=np.float32)
    values = a.values if isinstance(a, Quantized) else a
    assert nmse(run_op(lambda g, x, y: g.out_prod(x, y), a, b), b.T.astype(np.float64) @ values.astype(np.float64)) < BOUND


def test_out_prod_shares_and_transposes():
    rng = new_rng()
    (a, a_values), (b, b_values) = uniform(rng, (2, 3, 5, 33)), uniform(rng, (4, 6, 5, 7))
    wanted = np.einsum("abkm,abkn->abnm", a_values.repeat(2, 0).repeat(2, 1), b_values)
    assert nmse(run_op(lambda g, x, y: g.out_prod(x, y), a, b), wanted) < BOUND
    turned = np.ascontiguousarray(b.swapaxes(2, 3))
    assert nmse(run_op(lambda g, x, y: g.out_prod(x, g.transpose(y)), a, turned), wanted) < BOUND


@pytest.mark.parametrize("shape", [(1,), (5, 65), (2, 3, 4, 300)])
def test_silu(shape):
    rng = new_rng()
    (dy, dy_values), (x, values) = uniform(rng, shape), uniform(rng, shape, low=-10, high=10)
    out = run_twice(lambda g, a, b: g.silu_back(a, b), dy, x)
    s = 1 / (1 + np.exp(-values))
    # The sigmoid is within 2.5 units in the last place, before and inside of the bracket, which has a zero near -1.28; four more roundings.
    assert_close(out, dy_values * s * (1 + values * (1 - s)), np.abs(dy_values) * s * (1 + np.abs(values) * (1 + s)), 14 * 2.0**-24)


@pytest.mark.parametrize("shape", [(1,), (5, 31), (2, 3, 5, 64), (3, 1025)])
@pytest.mark.parametrize("eps", [1e-6, 1e-1])
def test_rms_norm(shape, eps):
    rng = new_rng()
    (dz, dz_values), (x, values) = uniform(rng, shape), uniform(rng, shape)
    out = run_twice(lambda g, a, b: g.rms_norm_back(a, b, eps), dz, x)
    n, squares, products = shape[-1], (values**2).sum(-1, keepdims=True), (values * dz_values).sum(-1, keepdims=True)
    scale, along = 1 / np.sqrt(squares / n + eps), products / (squares + eps * n)
    wanted = (dz_values - values * along) * scale
    # Where the gradient is almost along the row, little of it is left.
    assert np.abs(out.reshape(shape) - wanted).max() <= 2e-6 * np.abs(dz_values * scale).max()


@pytest.mark.parametrize("shape", [(1,), (5, 31), (2, 3, 5, 64), (3, 1025)])
def test_soft_max(shape):
    rng = new_rng()
    dy, y = rng.standard_normal(shape, dtype=np.float32), rng.dirichlet(np.ones(shape[-1]), shape[:-1]).astype(np.float32)
    out = run_twice(lambda g, a, b: g.soft_max_ext_back(a, b, 0.5, 0.0), dy, y)
    exact = dy.astype(np.float64)
    wanted = (exact - (exact * y).sum(-1, keepdims=True)) * y * 0.5
    assert np.abs(out.reshape(shape) - wanted).max() <= 1e-6 * np.abs(exact).max()


@pytest.mark.parametrize("shape, times", [((5,), (1,)), ((33,), (7,)), ((2, 3, 5, 4), (2, 1, 3, 2)), ((1, 1, 1, 65), (3, 2, 2, 2))])
def test_repeat(shape, times):
    large = [n * t for n, t in zip(shape, times)]
    x, values = uniform(new_rng(), large)
    out = run_twice(lambda g, a: g.repeat_back(a, g.tensor(shape[::-1])), x)
    split = values.reshape([size for pair in zip(times, shape) for size in pair])
    assert nmse(out.reshape(shape), split.sum(tuple(range(0, 2 * len(shape), 2)))) < BOUND


@pytest.mark.parametrize("type", ["f32", "f16"])
@pytest.mark.parametrize("row, rows, count", [(1, 8, 2), (65, 5, 7), (300, 3, 1)])
def test_get_rows(type, row, rows, count):
    rng = new_rng()
    x, values = uniform(rng, (count, row), type)
    index = rng.integers(0, rows, count).astype(np.int32)
    out = run_twice(lambda g, a, i: g.get_rows_back(a, i, g.tensor((row, rows))), x, index)
    wanted = np.zeros((rows, row))
    np.add.at(wanted, index, values)
    assert nmse(out.reshape(rows, row), wanted) < BOUND


def test_refusals():
    x = np.ones((2, 4), np.float32)
    assert refusal_of(lambda g, a: g.soft_max_ext_back(a, a, 1.0, 8.0), x) == "ALiBi"
    assert refusal_of(lambda g, a: g.silu_back(a, a), x.astype(np.float16)) == "not f32"
