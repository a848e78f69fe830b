"""ARGSORT, TOP_K and ARGMAX against numpy: exact, equal numbers in the order of their columns."""
import numpy as np
import pytest

from support.ggml import lib
from support.ops import Graph, new_rng, refusal_of, run_op
from support.values import run_twice

ASCENDING, DESCENDING = lib.GGML_SORT_ORDER_ASC, lib.GGML_SORT_ORDER_DESC
# Around what a workgroup of either kernel sorts, and around the merges that follow.
WIDTHS = [1, 2, 3, 5, 8, 15, 17, 31, 33, 60, 64, 65, 127, 129, 255, 256, 257, 300, 511, 513, 1000, 1025, 2047, 2048, 2049, 4095, 4097, 6145, 10000]


def argsort(x, order):
    return np.argsort(x if order == ASCENDING else -x, axis=-1, kind="stable")


def rows(rng, shape, ties):
    """Numbers of both signs, all different in a row, or few different ones."""
    if ties:
        return rng.integers(-3, 4, shape).astype(np.float32) * np.float32(0.5)
    return (rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1) - shape[-1] // 3).astype(np.float32)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("order", [ASCENDING, DESCENDING])
def test_argsort(order, ties):
    rng = new_rng()
    for width in WIDTHS:
        x = rows(rng, (3, width), ties)
        out = run_op(lambda g, a: g.argsort(a, order), x).reshape(x.shape)
        np.testing.assert_array_equal(out, argsort(x, order), f"{width} columns")


def test_argsort_of_many_rows():
    rng = new_rng()
    for shape in ((700, 2), (41, 2, 3, 60), (2, 9, 7, 1), (40, 300), (7, 5, 2049)):
        x = rows(rng, shape, False)
        out = run_twice(lambda g, a: g.argsort(a, DESCENDING), x).reshape(shape)
        np.testing.assert_array_equal(out, argsort(x, DESCENDING))


def test_argsort_of_a_sampler():
    """131,072 candidates."""
    x = new_rng().standard_normal((1, 131072), dtype=np.float32)
    np.testing.assert_array_equal(run_op(lambda g, a: g.argsort(a, DESCENDING), x).reshape(x.shape), argsort(x, DESCENDING))


def test_special_numbers():
    """Zeros of both signs are equal; infinities lie at the ends; numbers next to each other, subnormal ones too, are told apart."""
    x = np.array([[0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-45, 1.0, np.nextafter(np.float32(1), np.float32(2)), -0.0, 0.0, -3e38, 3e38]], np.float32)
    for order in (ASCENDING, DESCENDING):
        np.testing.assert_array_equal(run_op(lambda g, a: g.argsort(a, order), x).reshape(x.shape), argsort(x, order))
    assert run_op(lambda g, a: g.argmax(a), x).item() == 2


@pytest.mark.parametrize("op", ["argsort", "top_k"])
def test_views(op):
    """Rows that lie apart, in all dimensions."""
    rng = new_rng()
    x = rows(rng, (3, 4, 5, 90), False)

    def build(g, a):
        part = g.permute(g.view_4d(a, 33, 4, 2, 3, a.nb[1], a.nb[2], a.nb[3], a.nb[1] + 8), 0, 2, 1, 3)
        return g.argsort(part, DESCENDING) if op == "argsort" else g.top_k(part, 7)

    part = x[:, :2, 1:5, 2:35].transpose(0, 2, 1, 3)
    wanted = argsort(part, DESCENDING)[..., :7 if op == "top_k" else None]
    np.testing.assert_array_equal(run_op(build, x).reshape(wanted.shape), wanted)


@pytest.mark.parametrize("ties", [False, True])
def test_top_k(ties):
    rng = new_rng()
    for width, k in ((1, 1), (2, 1), (2, 2), (16, 15), (60, 7), (256, 8), (257, 100), (1023, 3), (2048, 2048), (2049, 1), (2049, 2049), (4096, 2047),
                     (4100, 2051), (8193, 40), (8193, 3000), (30000, 1), (30000, 9999)):
        x = rows(rng, (2, width), ties)
        out = run_op(lambda g, a: g.top_k(a, k), x).reshape(2, k)
        np.testing.assert_array_equal(out, argsort(x, DESCENDING)[:, :k], f"{k} of {width}")


def test_top_k_of_a_sampler():
    rng = new_rng()
    for width, k in ((131072, 40), (202048, 8)):
        x = rng.standard_normal((1, width), dtype=np.float32)
        np.testing.assert_array_equal(run_twice(lambda g, a: g.top_k(a, k), x).reshape(1, k), argsort(x, DESCENDING)[:, :k])


def test_argmax():
    rng = new_rng()
    for width in (1, 2, 7, 31, 33, 255, 257, 5438):
        x = rows(rng, (5, width), False)
        np.testing.assert_array_equal(run_twice(lambda g, a: g.argmax(a), x), np.argmax(x, -1))
    x = rows(rng, (9, 400), True)
    np.testing.assert_array_equal(run_op(lambda g, a: g.argmax(a), x), 399 - np.argmax(x[:, ::-1], -1))   # of equal ones the last
    part = run_op(lambda g, a: g.argmax(g.view_2d(a, 100, 9, a.nb[1], 400)), x)
    np.testing.assert_array_equal(part, 99 - np.argmax(x[:, 199:99:-1], -1))


def test_argmax_passes_over_nan():
    x = np.array([[np.nan, 1, 3, np.nan, 2], [np.nan] * 5, [-np.inf, np.nan, -np.inf, np.nan, np.nan]], np.float32)
    np.testing.assert_array_equal(run_op(lambda g, a: g.argmax(a), x), [2, 0, 2])


def test_refusals():
    assert "f32" in refusal_of(lambda g: g.argsort(g.tensor((8, 4), "f16"), ASCENDING))
    with Graph() as g:
        assert "transposed" in g.refusal(g.argsort(g.transpose(g.tensor((8, 4))), ASCENDING))
        assert "transposed" in g.refusal(g.top_k(g.transpose(g.tensor((8, 4))), 2))
