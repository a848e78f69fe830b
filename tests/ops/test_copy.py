"""CONT, CPY, DUP: exact against numpy."""
import itertools

import numpy as np
import pytest

from support.ops import QUANTIZED_TYPES, WRITTEN_TYPES, Graph, Quantized, new_rng, quantize_reference, random_blocks, refusal_of, run_op
from support.values import run_twice, typed

NUMPY = {"f32": np.float32, "f16": np.float16, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}


def some(rng, shape, type):
    """Values that every type holds exactly enough to tell elements apart."""
    values = rng.integers(-30000, 30000, shape)
    if type == "bf16":
        return typed(values, "bf16")[0]
    return values.astype(NUMPY[type])


def held(x):
    return x.values if isinstance(x, Quantized) else x


def copy_to(source, ne, type, view=lambda g, t: t, destination=lambda g, t: t):
    """CPY of view(source) into destination(a new tensor of size ne); returns what that tensor holds afterwards."""
    with Graph() as g:
        made = g.tensor(ne, type)
        g.run(g.cpy(view(g, g.input(source)), destination(g, made)))
        return g.get(made)


@pytest.mark.parametrize("type", ["f32", "f16", "bf16", "i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("axes", list(itertools.permutations(range(3)))[1:])
def test_cont_of_permuted(axes, type):
    rng = new_rng()
    for shape in ((4, 5, 6), (3, 65, 33)):
        x = some(rng, shape, type)
        out = run_twice(lambda g, a: g.cont(g.permute(a, *axes, 3)), x)
        # Axis i of the source becomes axis axes[i], both counted from the innermost.
        order = [2 - axes.index(2 - i) for i in range(3)]
        np.testing.assert_array_equal(out, held(x).transpose(order))


@pytest.mark.parametrize("type", ["f32", "f16", "i8", "i16", "i64"])
@pytest.mark.parametrize("shape", [(1,), (63,), (7, 65), (2, 3, 5, 40), (300, 2)])
def test_dup(shape, type):
    x = some(new_rng(), shape, type)
    np.testing.assert_array_equal(run_twice(lambda g, a: g.dup(a), x).reshape(shape), x)


@pytest.mark.parametrize("shape", [(64, 2), (2, 64), (100, 130), (33, 1, 65), (3, 200, 37)])
def test_transposed(shape):
    rng = new_rng()
    for type in ("f32", "f16"):
        x = some(rng, shape, type)
        wanted = x.swapaxes(-1, -2)
        np.testing.assert_array_equal(run_op(lambda g, a: g.cont(g.transpose(a)), x).reshape(wanted.shape), wanted)


@pytest.mark.parametrize("source, target", [("f32", "f16"), ("f32", "bf16"), ("f16", "f32"), ("f16", "bf16"), ("bf16", "f32"),
                                            ("bf16", "f16"), ("f32", "f32")])
def test_conversions(source, target):
    rng = new_rng()
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 65519, 1e-7]
    values = np.concatenate([rng.standard_normal(200) * 10.0 ** rng.integers(-7, 5, 200), special])
    with np.errstate(over="ignore"):
        x, exact = typed(values, source)
        wanted = typed(exact, target)[1]
    out = copy_to(x, values.shape, target)
    np.testing.assert_array_equal(out, wanted)
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(out[number]), np.signbit(wanted[number]))


def test_integers():
    x = np.array([0.0, 1.9, -1.9, 2.5, -150.5, 1e6], np.float32)
    np.testing.assert_array_equal(copy_to(x, x.shape, "i32"), x.astype(np.int32))
    i = np.array([0, -5, 16777217, 2**31 - 1, -2**31], np.int32)
    np.testing.assert_array_equal(copy_to(i, i.shape, "f32"), i.astype(np.float32))


@pytest.mark.parametrize("source, target", [("f32", "f32"), ("f32", "f16"), ("f16", "f32")])
def test_into_permuted_and_strided(source, target):
    """Both sides permuted; and into a part of a larger tensor, whose other elements stay what they were."""
    rng = new_rng()
    x = some(rng, (4, 5, 6), source)
    out = copy_to(x, (4, 6, 5), target, lambda g, a: g.permute(a, 0, 2, 1, 3), lambda g, t: g.permute(t, 1, 0, 2, 3))
    np.testing.assert_array_equal(out, x.swapaxes(0, 1).swapaxes(1, 2).astype(NUMPY[target]))
    with Graph() as g:
        big = g.input(np.zeros((4, 9, 50), NUMPY[target]))
        a = g.input(some(rng, (4, 5, 40), source))
        g.run(g.cpy(a, g.view_3d(big, 40, 5, 4, big.nb[1], big.nb[2], 3 * big.nb[1] + 2 * big.nb[0])))
        wanted = np.zeros((4, 9, 50))
        wanted[:, 3:8, 2:42] = g.get(a).astype(NUMPY[target])
        np.testing.assert_array_equal(g.get(big), wanted)


@pytest.mark.parametrize("shape", [(3360,), (105, 32), (32, 7, 5, 3), (3, 7, 160)])
@pytest.mark.parametrize("type", ["f32", "f16"])
def test_into_another_shape(shape, type):
    x = some(new_rng(), (3, 5, 7, 32), type)
    np.testing.assert_array_equal(copy_to(x, shape[::-1], type), x.reshape(shape))


def test_strided_into_another_shape():
    """A part of a tensor, flattened: the pieces of both shapes fit into each other."""
    x = new_rng().standard_normal((4, 9, 50), dtype=np.float32)
    out = copy_to(x, (200, 4), "f32", lambda g, a: g.view_3d(a, 40, 5, 4, a.nb[1], a.nb[2], 8))
    np.testing.assert_array_equal(out, x[:, :5, 2:42].reshape(4, 200))
    out = run_op(lambda g, a: g.cont_2d(g.permute(a, 0, 2, 1, 3), 50 * 4, 9), x)
    np.testing.assert_array_equal(out, x.swapaxes(0, 1).reshape(9, 200))


@pytest.mark.parametrize("type", QUANTIZED_TYPES)
def test_quantized_blocks(type):
    """Blocks are moved as they are: in order, by rows, into permuted rows."""
    x = random_blocks(new_rng(), (4, 3, 2, 256), type)
    np.testing.assert_array_equal(copy_to(x, (256, 2, 3, 4), type), x.values)
    out = copy_to(x, (256, 3, 2, 4), type, lambda g, a: g.permute(a, 0, 2, 1, 3))
    np.testing.assert_array_equal(out, x.values.swapaxes(1, 2))


@pytest.mark.parametrize("type", QUANTIZED_TYPES)
def test_dequantize(type):
    x = random_blocks(new_rng(), (4, 3, 2, 512), type)
    np.testing.assert_array_equal(copy_to(x, (512, 2, 3, 4), "f32"), x.values)
    np.testing.assert_array_equal(copy_to(x, (512, 3, 2, 4), "f32", lambda g, a: g.permute(a, 0, 2, 1, 3)), x.values.swapaxes(1, 2))


@pytest.mark.parametrize("type", WRITTEN_TYPES)
def test_quantize(type):
    x = new_rng().standard_normal((4, 3, 2, 768), dtype=np.float32)
    with Graph() as g:
        made = g.tensor((768, 3, 2, 4), type)
        g.run(g.cpy(g.permute(g.input(x), 0, 2, 1, 3), made))
        np.testing.assert_array_equal(g.raw(made), quantize_reference(x.swapaxes(1, 2), type).ravel())


@pytest.mark.parametrize("type", [type for type in WRITTEN_TYPES if type != "q8_0"])
def test_quantize_from_bf16(type):
    x, values = typed(new_rng().standard_normal((3, 512)), "bf16")
    with Graph() as g:
        made = g.tensor((512, 3), type)
        g.run(g.cpy(g.input(x), made))
        np.testing.assert_array_equal(g.raw(made), quantize_reference(values, type).ravel())


def test_quantize_into_another_shape():
    """Rows that are no whole blocks, flattened."""
    x = new_rng().standard_normal((8, 12), dtype=np.float32)
    with Graph() as g:
        made = g.tensor((32, 3), "q4_0")
        g.run(g.cpy(g.input(x), made))
        np.testing.assert_array_equal(g.raw(made), quantize_reference(x.reshape(3, 32), "q4_0").ravel())


def test_empty():
    x = np.ones((4, 8), np.float32)
    assert run_op(lambda g, a: g.cont(g.view_2d(a, 8, 0, a.nb[1], 0)), x).size == 0


def test_refusals():
    x = np.ones((6, 10), np.float32)
    assert "conversion" in refusal_of(lambda g, a: g.cpy(a, g.tensor((10, 6), "i64")), x)
    assert "conversion" in refusal_of(lambda g: g.cpy(g.tensor((256, 4)), g.tensor((256, 4), "iq2_xs")))
    assert "conversion" in refusal_of(lambda g: g.cpy(g.tensor((32, 4), "q8_0"), g.tensor((32, 4), "q4_0")))
    # Pieces of 6 and of 4: neither divides the other.
    assert "fit" in refusal_of(lambda g, a: g.cpy(g.view_2d(a, 6, 2, a.nb[1], 0), g.view_2d(g.tensor((9, 9)), 4, 3, 36, 0)), x)
