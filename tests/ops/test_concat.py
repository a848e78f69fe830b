"""CONCAT and REPEAT: exact against numpy."""
import numpy as np
import pytest

from support.ops import Graph, Quantized, new_rng, refusal_of, run_op
from support.values import run_twice, typed

TYPES = ["f32", "f16", "bf16", "i8", "i16", "i32", "i64"]


NUMPY = {"f32": np.float32, "f16": np.float16, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}


def some(rng, shape, type):
    values = rng.integers(-120, 120, shape)
    return typed(values, "bf16")[0] if type == "bf16" else values.astype(NUMPY[type])


def held(x):
    return x.values if isinstance(x, Quantized) else x


@pytest.mark.parametrize("dim", range(4))
@pytest.mark.parametrize("type", TYPES)
def test_concat(type, dim):
    rng = new_rng()
    for extent in (1, 63):
        shape = [3, 2, 5, 33]
        a = some(rng, shape, type)
        shape[3 - dim] = extent
        b = some(rng, shape, type)
        out = run_twice(lambda g, x, y: g.concat(x, y, dim), a, b)
        np.testing.assert_array_equal(out, np.concatenate([held(a), held(b)], 3 - dim))


@pytest.mark.parametrize("dim", range(4))
@pytest.mark.parametrize("type", ["f32", "i8", "i64"])
def test_concat_of_permuted_and_cut(type, dim):
    """A conv state and the transposed projections behind it are concatenated so."""
    rng = new_rng()
    a, b = some(rng, (2, 3, 4, 40), type), some(rng, (2, 3, 40, 4), type)
    out = run_op(lambda g, x, y: g.concat(x, g.transpose(y), dim), a, b)
    np.testing.assert_array_equal(out, np.concatenate([a, b.swapaxes(2, 3)], 3 - dim))
    cut = run_op(lambda g, x, y: g.concat(g.view_4d(x, 37, 3, 2, 1, x.nb[1], x.nb[2], x.nb[3], 2 * x.nb[0]),
                                          g.view_4d(y, 37, 3, 2, 1, y.nb[1], y.nb[2], y.nb[3], x.nb[0]), dim), a, a)
    left, right = a[:1, :2, :3, 2:39], a[:1, :2, :3, 1:38]
    np.testing.assert_array_equal(cut.reshape(np.concatenate([left, right], 3 - dim).shape), np.concatenate([left, right], 3 - dim))


@pytest.mark.parametrize("dim", range(4))
@pytest.mark.parametrize("type", ["q4_0", "q5_1", "q8_0", "q4_K", "q6_K"])
def test_concat_of_quantized(type, dim):
    rng = new_rng()
    row = 256
    a, b = Quantized(rng.standard_normal((2, 3, 2, row)), type), Quantized(rng.standard_normal((2, 3, 2, row)), type)
    out = run_op(lambda g, x, y: g.concat(x, y, dim), a, b)
    np.testing.assert_array_equal(out, np.concatenate([a.values, b.values], 3 - dim))


def test_concat_with_an_empty_tensor():
    x = new_rng().standard_normal((3, 40), dtype=np.float32)
    for order in (1, -1):
        with Graph() as g:
            a, empty = g.input(x), g.tensor((40, 0))
            out = g.run(g.concat(*[a, empty][::order], 1))
            np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("type", ["f32", "f16", "bf16", "i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("shape, times", [((5,), (1,)), ((33,), (7,)), ((2, 3, 5, 4), (2, 1, 3, 2)), ((1, 1, 1, 65), (3, 2, 2, 2)), ((3, 1, 40), (1, 63, 1))])
def test_repeat(type, shape, times):
    x = some(new_rng(), shape, type)
    wanted = np.tile(held(x), times)
    out = run_twice(lambda g, a: g.repeat(a, g.tensor(wanted.shape[::-1])), x)
    np.testing.assert_array_equal(out.reshape(wanted.shape), wanted)


def test_repeat_of_a_permuted_tensor():
    x = some(new_rng(), (4, 5, 6), "f32")
    out = run_op(lambda g, a: g.repeat(g.transpose(a), g.tensor((10, 12, 4))), x)
    np.testing.assert_array_equal(out, np.tile(x.swapaxes(1, 2), (1, 2, 2)))


def test_refusals():
    q = Quantized(np.ones((2, 64), np.float32), "q8_0")
    assert "quantized" in refusal_of(lambda g, a: g.repeat(a, g.tensor((64, 4))), q)
