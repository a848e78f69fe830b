"""SUM_ROWS, MEAN, SUM and COUNT_EQUAL against numpy in float64."""
import numpy as np
import pytest

from support.ops import Graph, new_rng, refusal_of, run_op
from support.values import assert_rounded, run_twice, uniform

LENGTHS = [1, 2, 7, 31, 32, 33, 63, 65, 127, 128, 130, 1023, 1024, 1025, 5000, 32769]


def close(actual, values, axis, mean=False):
    """The f32 sum is within the error of adding in any sensible order: half a unit a level of the tree and partial sum."""
    exact, magnitude = values.sum(axis), np.abs(values).sum(axis)
    count = values.size // exact.size
    if mean:
        exact, magnitude = exact / count, magnitude / count
    steps = np.ceil(count / 256) + 10
    assert np.all(np.abs(actual - exact) <= 2.0**-24 * (steps * magnitude + np.abs(exact))), np.max(np.abs(actual - exact) / magnitude)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("mean", [False, True])
def test_rows(length, mean):
    x, values = uniform(new_rng(), (2, 3, length))
    out = run_twice(lambda g, a: (g.mean if mean else g.sum_rows)(a), x)
    assert out.shape == (2, 3, 1)
    close(out[..., 0], values, -1, mean)


@pytest.mark.parametrize("axes", [(1, 0, 2, 3), (0, 2, 3, 1), (2, 0, 1, 3), (3, 1, 2, 0)])
def test_rows_of_a_permuted_view(axes):
    x, values = uniform(new_rng(), (3, 4, 5, 70))
    order = [3 - axes.index(3 - i) for i in range(4)]
    permuted = values.transpose(order)
    out = run_op(lambda g, a: g.sum_rows(g.permute(a, *axes)), x)
    close(out.reshape(permuted.shape[:3]), permuted, -1)
    cut = run_op(lambda g, a: g.mean(g.view_3d(a, 33, 3, 2, a.nb[1], a.nb[2], 8)), x)
    close(cut[..., 0], values[0, :2, :3, 2:35], -1, mean=True)


def test_no_elements_a_row():
    with Graph() as g:
        np.testing.assert_array_equal(g.run(g.sum_rows(g.tensor((0, 5)))), np.zeros((5, 1), np.float32))


@pytest.mark.parametrize("type", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("shape", [(1,), (33,), (7, 65), (3, 5, 7, 11), (16385,), (40, 1025)])
def test_sum(type, shape):
    x, values = uniform(new_rng(), shape, type)
    out = run_twice(lambda g, a: g.sum(a), x)
    if type == "f32":
        close(out[0], values, None)
    else:
        assert_rounded(out, values.sum(keepdims=True).reshape(1), type, ulps=0.55, absolute=2.0**-20 * np.abs(values).sum())


def test_sum_of_views():
    x, values = uniform(new_rng(), (5, 6, 70))
    close(run_op(lambda g, a: g.sum(g.permute(a, 0, 2, 1, 3)), x)[0], values, None)
    close(run_op(lambda g, a: g.sum(g.view_3d(a, 33, 3, 5, a.nb[1], a.nb[2], 8)), x)[0], values[:, :3, 2:35], None)
    with Graph() as g:
        np.testing.assert_array_equal(g.run(g.sum(g.tensor((4, 0)))), [0.0])


@pytest.mark.parametrize("shape", [(1,), (500,), (3, 5, 65), (33000,)])
def test_count_equal(shape):
    rng = new_rng()
    x, y = rng.integers(0, 3, shape).astype(np.int32), rng.integers(0, 3, shape).astype(np.int32)
    out = run_twice(lambda g, a, b: g.count_equal(a, b), x, y)
    assert out.dtype == np.int64 and out[0] == np.sum(x == y)


def test_count_equal_of_views():
    rng = new_rng()
    x, y = rng.integers(0, 2, (40, 30)).astype(np.int32), rng.integers(0, 2, (30, 40)).astype(np.int32)
    assert run_op(lambda g, a, b: g.count_equal(a, g.transpose(b)), x, y)[0] == np.sum(x == y.T)


def test_refusals():
    assert refusal_of(lambda g, a: g.sum_rows(a), np.ones((2, 4), np.float16)) == "not f32"
    assert refusal_of(lambda g, a: g.sum(a), np.ones(4, np.int32)) is not None
    assert "contiguous" in refusal_of(lambda g, a: g.sum(g.transpose(a)), np.ones((2, 4), np.float32))
    assert refusal_of(lambda g, a: g.count_equal(a, a), np.ones(4, np.int64)) is not None
