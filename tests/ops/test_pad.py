"""PAD, PAD_REFLECT_1D and ROLL: exact against numpy."""
import numpy as np
import pytest

from support.ops import new_rng, refusal_of, run_op
from support.values import run_twice

SHAPES = [(1,), (33,), (5, 65), (2, 3, 4, 7)]


def some(rng, shape, type=np.float32):
    return rng.integers(-2000, 2000, shape).astype(type)


def four(values, dims):
    """One value a dimension, ggml's order, zeros for the outer ones."""
    return list(values[::-1]) + [0] * (4 - dims)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("type", [np.float32, np.int32, np.float16])
def test_pad(shape, around, type):
    rng = new_rng()
    x = some(rng, shape, type)
    before, behind = rng.integers(0, 6, len(shape)), rng.integers(0, 6, len(shape))
    b, e = four(before, len(shape)), four(behind, len(shape))
    widths = [int(v) for pair in zip(b, e) for v in pair]
    out = run_twice(lambda g, a: (g.pad_ext_circular if around else g.pad_ext)(a, *widths), x)
    wanted = np.pad(x, list(zip(before, behind)), mode="wrap" if around else "constant")
    np.testing.assert_array_equal(out.reshape(wanted.shape), wanted)


def test_pad_around_more_than_once():
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(run_op(lambda g, a: g.pad_ext_circular(a, 7, 8, 0, 0, 0, 0, 0, 0), x), np.pad(x, (7, 8), mode="wrap"))


def test_pad_of_views():
    x = some(new_rng(), (4, 5, 70))
    out = run_op(lambda g, a: g.pad(g.permute(a, 2, 1, 0, 3), 3, 2, 1, 0), x)
    np.testing.assert_array_equal(out, np.pad(x.transpose(2, 1, 0), [(0, 1), (0, 2), (0, 3)]))
    cut = run_op(lambda g, a: g.pad_ext(g.view_2d(a, 33, 3, a.nb[1], 4), 2, 0, 1, 0, 0, 0, 0, 0), x)
    np.testing.assert_array_equal(cut, np.pad(x[0, :3, 1:34], [(1, 0), (2, 0)]))


@pytest.mark.parametrize("shape, left, right", [((12,), 3, 5), ((2, 2), 1, 1), ((3, 5, 65), 64, 0), ((2, 3, 4, 300), 10, 9), ((4, 1), 0, 0)])
def test_reflect(shape, left, right):
    x = some(new_rng(), shape)
    out = run_twice(lambda g, a: g.pad_reflect_1d(a, left, right), x)
    wanted = np.pad(x, [(0, 0)] * (len(shape) - 1) + [(left, right)], mode="reflect")
    np.testing.assert_array_equal(out.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("shape, shifts", [((12,), (5,)), ((65, 3), (-64, 2)), ((2, 3, 4, 70), (1, -2, 3, -69)), ((1, 1), (0, 0))])
def test_roll(shape, shifts):
    x = some(new_rng(), shape)
    out = run_twice(lambda g, a: g.roll(a, *four(shifts, len(shape))), x)
    wanted = np.roll(x, shifts, tuple(range(len(shape))))
    np.testing.assert_array_equal(out.reshape(wanted.shape), wanted)
    if len(shape) == 4:
        permuted = run_op(lambda g, a: g.roll(g.permute(a, 0, 2, 1, 3), *four(shifts, 4)[:1], 0, 0, 1), x)
        np.testing.assert_array_equal(permuted, np.roll(x.transpose(0, 2, 1, 3), (1, shifts[-1]), (0, 3)))


def test_refusals():
    assert "bytes" in refusal_of(lambda g, a: g.pad(a, 1, 0, 0, 0), np.ones(4, np.int64))
