"""ACC and SET against numpy: exact."""
import numpy as np
import pytest

from support.ops import Graph, new_rng, refusal_of, run_op
from support.values import run_twice

# (shape of the whole, shape of the part, where it begins), innermost last
REGIONS = [((40,), (7,), (5,)), ((5, 65), (3, 33), (1, 30)), ((2, 3, 17, 100), (2, 2, 16, 64), (0, 1, 1, 36)), ((2, 2, 3, 4), (2, 2, 3, 4), (0, 0, 0, 0)),
           ((3, 300), (3, 1), (0, 299))]


def call(g, name, *arguments):
    """ggml_set is hidden behind a method of Graph."""
    return g.__getattr__(name)(*arguments)


def region(g, whole, part, at, name):
    """g.acc or g.set of `part` into `whole` with the strides of the whole."""
    begin = [0] * (4 - len(at)) + list(at)
    offset = sum(index * whole.nb[3 - i] for i, index in enumerate(begin))
    return call(g, name, whole, part, whole.nb[1], whole.nb[2], whole.nb[3], offset)


@pytest.mark.parametrize("shape, part, at", REGIONS)
@pytest.mark.parametrize("inplace", [False, True])
def test_acc(shape, part, at, inplace):
    rng = new_rng()
    x, y = rng.standard_normal(shape, dtype=np.float32), rng.standard_normal(part, dtype=np.float32)
    out = run_twice(lambda g, a, b: region(g, a, b, at, "acc_inplace" if inplace else "acc"), x, y)
    wanted = x.copy()
    wanted[tuple(slice(i, i + n) for i, n in zip(at, part))] += y
    np.testing.assert_array_equal(out.reshape(shape), wanted)


@pytest.mark.parametrize("shape, part, at", REGIONS)
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("type", [np.float32, np.int32, np.float16])
def test_set(shape, part, at, inplace, type):
    rng = new_rng()
    x, y = rng.integers(-999, 999, shape).astype(type), rng.integers(-999, 999, part).astype(type)
    out = run_twice(lambda g, a, b: region(g, a, b, at, "set_inplace" if inplace else "set"), x, y)
    wanted = x.copy()
    wanted[tuple(slice(i, i + n) for i, n in zip(at, part))] = y
    np.testing.assert_array_equal(out.reshape(shape), wanted)


def test_a_permuted_part():
    rng = new_rng()
    x, y = rng.standard_normal((20, 40), dtype=np.float32), rng.standard_normal((40, 20), dtype=np.float32)
    np.testing.assert_array_equal(run_op(lambda g, a, b: region(g, a, g.transpose(b), (0, 0), "acc"), x, y), x + y.T)
    np.testing.assert_array_equal(run_op(lambda g, a, b: region(g, a, g.transpose(b), (0, 0), "set"), x, y), y.T)


def test_an_empty_part_leaves_the_whole():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    with Graph() as g:
        whole, part = g.input(x), g.tensor((4, 0))
        np.testing.assert_array_equal(g.run(g.acc(whole, part, whole.nb[1], whole.nb[2], whole.nb[3], 0)), x)


def test_refusals():
    x = np.zeros((4, 8), np.float32)
    assert "overlaps" in refusal_of(lambda g, a, b: g.acc(a, b, 4, a.nb[2], a.nb[3], 0), x, np.zeros((2, 8), np.float32))
    assert "beyond" in refusal_of(lambda g, a, b: call(g, "set", a, b, a.nb[1], a.nb[2], a.nb[3], 96), x, np.zeros((2, 8), np.float32))
    assert "types" in refusal_of(lambda g, a, b: call(g, "set", a, b, a.nb[1], a.nb[2], a.nb[3], 0), x, np.zeros((2, 8), np.int32))
