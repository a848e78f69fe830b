"""ADD, SUB, MUL, DIV against numpy: the results are the correctly rounded ones, so equality is exact."""
import numpy as np
import pytest

from support.ops import Graph, new_rng, refusal_of, run_op
from support.values import run_twice, typed, uniform

OPS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
TYPES = [("f32", "f32"), ("f16", "f16"), ("f16", "f32"), ("bf16", "bf16"), ("bf16", "f32")]


def expected(op, a, b, type):
    """Computed in f32 from the values held, rounded to the type of the result."""
    with np.errstate(all="ignore"):
        result = OPS[op](a.astype(np.float32), b.astype(np.float32))
        return typed(result, type)[1]


def check(op, shape_a, shape_b, types=("f32", "f32")):
    rng = new_rng()
    a, a_values = uniform(rng, shape_a, types[0])
    b, b_values = uniform(rng, shape_b, types[1])
    repeats = [n // m for n, m in zip(shape_a, shape_b)]
    out = run_twice(lambda g, x, y: getattr(g, op)(x, y), a, b)
    wanted = expected(op, a_values, np.tile(b_values, repeats), types[0])
    np.testing.assert_array_equal(np.asarray(out, np.float64).reshape(shape_a), wanted)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("op", OPS)
def test_types(op, types):
    check(op, (3, 65), (3, 65), types)
    check(op, (3, 300), (1, 300), types)
    check(op, (5, 7), (5, 1), types)


@pytest.mark.parametrize("shape", [(1,), (7,), (15,), (17,), (63,), (255,), (257,), (1030,), (2, 3, 5, 7), (640, 3)])
def test_same_shape(shape):
    check("add", shape, shape)


@pytest.mark.parametrize("shape_a, shape_b", [
    ((4, 33), (1, 33)), ((4, 33), (1, 1)), ((4, 33), (4, 1)), ((6, 33), (3, 33)), ((4, 640), (4, 1)), ((2, 3, 4, 40), (1, 3, 1, 40)),
    ((2, 3, 4, 40), (2, 1, 4, 1)), ((6, 10, 8, 20), (3, 5, 4, 10)), ((2, 3, 4, 64), (2, 3, 4, 32)), ((9, 1, 1, 256), (1, 1, 1, 256)),
    ((1, 70, 16, 16), (1, 70, 1, 1)), ((3, 1, 300), (1, 1, 100))])
def test_repeated(shape_a, shape_b):
    check("sub", shape_a, shape_b)


@pytest.mark.parametrize("op", OPS)
def test_special_values(op):
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, 1e-45, 1.17e-38], np.float32)
    a, b = (m.ravel() for m in np.meshgrid(values, values))
    out = run_op(lambda g, x, y: getattr(g, op)(x, y), a, b)
    with np.errstate(all="ignore"):
        wanted = OPS[op](a, b)
    np.testing.assert_array_equal(out, wanted)
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(out[number]), np.signbit(wanted[number]))


def test_division_is_correctly_rounded():
    rng = new_rng()
    bits = rng.integers(0, 2**32, (2, 4096), dtype=np.uint32)
    a, b = bits.view(np.float32)
    out = run_op(lambda g, x, y: g.div(x, y), a, b)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out, a / b)


def test_strides():
    rng = new_rng()
    a = rng.standard_normal((4, 5, 6, 70), dtype=np.float32)
    b = rng.standard_normal((5, 4, 6, 70), dtype=np.float32)
    c = rng.standard_normal((70, 6), dtype=np.float32)

    def build(g, x, y, z):
        part = g.view_4d(x, 33, 6, 5, 4, x.nb[1], x.nb[2], x.nb[3], 3 * 4)
        swapped = g.permute(y, 0, 1, 3, 2)
        columns = g.transpose(z)
        return g.mul(swapped, x), g.add(x, columns), g.add(part, g.view_2d(x, 33, 1, x.nb[1], 0)), g.mul(g.transpose(x), z)

    by_swapped, by_columns, by_part, transposed = run_twice(build, a, b, c)
    np.testing.assert_array_equal(by_swapped, b.transpose(1, 0, 2, 3) * a)
    np.testing.assert_array_equal(by_columns, a + c.T)
    np.testing.assert_array_equal(by_part, a[..., 3:36] + a[0, 0, 0, :33])
    np.testing.assert_array_equal(transposed, a.swapaxes(2, 3) * c)


def test_in_place():
    rng = new_rng()
    a = rng.standard_normal((3, 5, 130), dtype=np.float32)
    b = rng.standard_normal((1, 5, 130), dtype=np.float32)
    np.testing.assert_array_equal(run_op(lambda g, x, y: g.mul_inplace(x, y), a, b), a * b)

    def strided(g, x, y):
        view = g.view_3d(x, 60, 5, 3, x.nb[1], x.nb[2], 8)
        return g.add_inplace(view, g.view_2d(y, 60, 5, y.nb[1], 0)), x

    with Graph() as g:
        x, y = g.input(a), g.input(b)
        g.run(strided(g, x, y)[0])
        wanted = a.copy()
        wanted[..., 2:62] += b[..., :60]
        np.testing.assert_array_equal(g.get(x), wanted)


def test_operands_overlap():
    a = new_rng().standard_normal((6, 5, 10), dtype=np.float32)

    def build(g, x):
        return g.div(g.view_3d(x, 10, 5, 4, x.nb[1], x.nb[2], 0), g.view_3d(x, 10, 5, 4, x.nb[1], x.nb[2], 2 * x.nb[2]))

    np.testing.assert_array_equal(run_op(build, a), a[:4] / a[2:])


@pytest.mark.parametrize("inplace", [False, True])
def test_add1(inplace):
    rng = new_rng()
    x, one = rng.standard_normal((5, 65), dtype=np.float32), np.array([1.5], np.float32)
    add1 = lambda g, a, b: (g.add1_inplace if inplace else g.add1)(a, b)  # noqa: E731
    np.testing.assert_array_equal(run_op(add1, x, one), x + one)
    halves = x.astype(np.float16)
    np.testing.assert_array_equal(run_op(add1, halves, one), (halves.astype(np.float32) + one).astype(np.float16))


def test_empty():
    out = run_op(lambda g, x, y: g.add(g.view_2d(x, 8, 0, x.nb[1], 0), y), np.ones((4, 8), np.float32), np.ones((1, 8), np.float32))
    assert out.size == 0


def test_refusals():
    f32, f16, i32 = np.ones((2, 4), np.float32), np.ones((2, 4), np.float16), np.ones((2, 4), np.int32)
    assert "neither f32" in refusal_of(lambda g, x, y: g.add(x, y), f32, f16)
    assert "not f32, f16 or bf16" in refusal_of(lambda g, x, y: g.add(x, y), i32, i32)
    assert "2^31" in refusal_of(lambda g, x: g.add(g.tensor((1 << 16, 1 << 15)), x), np.ones(1, np.float32))
