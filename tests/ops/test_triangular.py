"""TRI, DIAG, DIAG_MASK_INF, DIAG_MASK_ZERO, FILL and SOLVE_TRI."""
import numpy as np
import pytest
from support.ggml import lib
from support.ops import Graph, new_rng, nmse, refusal_of, run_op
from support.values import run_twice

KEPT = {"LOWER": lambda i, row: i < row, "LOWER_DIAG": lambda i, row: i <= row,
        "UPPER": lambda i, row: i > row, "UPPER_DIAG": lambda i, row: i >= row}


def indices(shape):
    """Column and row numbers of the last two axes."""
    return np.arange(shape[-1])[None, :], np.arange(shape[-2])[:, None]


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 63, 65, 300])
def test_triangles(kind, n):
    x = new_rng().standard_normal((2, 3, n, n), dtype=np.float32)
    x[..., 0, 0] = np.nan   # what is not kept becomes 0, whatever it was
    out = run_op(lambda g, a: g.tri(a, getattr(lib, "GGML_TRI_TYPE_" + kind)), x)
    np.testing.assert_array_equal(out.reshape(x.shape), np.where(KEPT[kind](*indices(x.shape)), x, 0))


@pytest.mark.parametrize("n", [1, 5, 79, 256])
def test_diagonals(n):
    x = new_rng().standard_normal((3, 2, 1, n), dtype=np.float32)
    out = run_op(lambda g, a: g.diag(a), x)
    np.testing.assert_array_equal(out.reshape(3, 2, n, n), np.where(np.eye(n) == 1, x, 0))


def test_diagonal_of_views():
    x = new_rng().standard_normal((3, 4, 5, 9), dtype=np.float32)
    out = run_op(lambda g, a: g.diag(g.view_4d(a, 7, 1, 3, 2, a.nb[1], a.nb[2], a.nb[3], a.nb[3] + a.nb[1] + 4)), x)
    np.testing.assert_array_equal(out, np.where(np.eye(7) == 1, x[1:3, 0:3, 1:2, 1:8], 0))


@pytest.mark.parametrize("value", ["inf", "zero"])
@pytest.mark.parametrize("shape, past", [((1, 1), 0), ((3, 2, 10, 10), 5), ((2, 7, 130), 0), ((5, 3), 9), ((65, 257), 100)])
def test_masks(value, shape, past):
    x = new_rng().standard_normal(shape, dtype=np.float32)
    i, row = indices(shape)
    expected = np.where(i > past + row, -np.inf if value == "inf" else 0, x)
    for form in ("", "_inplace"):
        out = run_op(lambda g, a: getattr(g, f"diag_mask_{value}{form}")(a, past), x)
        np.testing.assert_array_equal(out.reshape(shape), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(1,), (5,), (3, 7), (2, 3, 5, 129)])
@pytest.mark.parametrize("form", ["fill", "fill_inplace"])
def test_fill(dtype, shape, form):
    out = run_op(lambda g, a: getattr(g, form)(a, -1.7), np.full(shape, np.nan, dtype))
    np.testing.assert_array_equal(out.reshape(shape), np.full(shape, dtype(-1.7)))


def substitute(a, b):
    """X of A X = B with lower triangular A, in float64."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    x = np.zeros_like(b)
    for i in range(a.shape[-1]):
        x[..., i, :] = (b[..., i, :] - np.einsum("...t,...tc->...c", a[..., i, :i], x[..., :i, :])) / a[..., i, i, None]
    return x


def system(rng, n, columns, *matrices):
    """As the delta net's: 1 on the diagonal or near it, small below, anything above, which is not read."""
    a = rng.uniform(-1, 1, (*matrices, n, n)) / n + np.eye(n) * rng.uniform(0.5, 2, (*matrices, n, 1))
    a[..., np.triu_indices(n, 1)[0], np.triu_indices(n, 1)[1]] = np.nan
    return a.astype(np.float32), rng.standard_normal((*matrices, n, columns)).astype(np.float32)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 11, 17, 64, 65, 130])
@pytest.mark.parametrize("columns", [1, 5, 32, 33, 100])
def test_solutions(n, columns):
    a, b = system(new_rng(), n, columns, 2, 3)
    lower = np.nan_to_num(a)
    out = run_twice(lambda g, a, b: g.solve_tri(a, b, True, True, False), lower, b)
    assert nmse(out.reshape(b.shape), substitute(lower, b)) < 1e-12


def test_what_lies_above_the_diagonal_is_not_used():
    a, b = system(new_rng(), 37, 40)
    out = run_op(lambda g, a, b: g.solve_tri(a, b, True, True, False), a, b)
    assert nmse(out, substitute(np.nan_to_num(a), b)) < 1e-12


def test_the_largest_system_and_beyond():
    a, b = system(new_rng(), 512, 33)
    a = np.nan_to_num(a)
    assert nmse(run_op(lambda g, a, b: g.solve_tri(a, b, True, True, False), a, b), substitute(a, b)) < 1e-12
    with Graph() as g:
        assert "512" in g.refusal(g.solve_tri(g.tensor([513, 513]), g.tensor([4, 513]), True, True, False))


def test_refusals():
    assert "f32" in refusal_of(lambda g, a: g.diag(a), np.ones((1, 4), np.float16))
    transposed = lambda g, a: g.diag_mask_inf_inplace(g.transpose(a), 0)
    assert "contiguous" in refusal_of(transposed, np.ones((4, 5), np.float32))
