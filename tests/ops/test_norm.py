"""The row norms against float64: RMS_NORM, NORM, L2_NORM, GROUP_NORM."""
import numpy as np
import pytest

from support.ops import new_rng, nmse, refusal_of, run_op
from support.values import assert_rounded, run_twice

KINDS = ("rms_norm", "norm", "l2_norm")
ROWS = [1, 3, 7, 15, 17, 63, 64, 65, 256, 576, 640, 1023, 1024, 1025, 1028, 2048, 4096, 5003]


def reference(kind, x, eps):
    x, eps = x.astype(np.float64), np.float64(np.float32(eps))
    if kind == "norm":
        x = x - np.mean(x, axis=-1, keepdims=True)
    if kind == "l2_norm":
        return x / np.maximum(np.sqrt(np.sum(x**2, axis=-1, keepdims=True)), eps)
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps)


def check(kind, out, x, eps):
    assert_rounded(out.reshape(x.shape), reference(kind, x, eps), "f32", 4, absolute=of_mean(x, eps) if kind == "norm" else 0)


def of_mean(x, eps):
    """What the rounding of a row's mean makes of its elements: half a unit a level of the tree and partial sum, relative to the magnitudes,
    times what the row is multiplied by, which is large where its elements are all but equal."""
    x = x.astype(np.float64)
    steps = np.ceil(x.shape[-1] / 256) + 10
    return 2.0**-24 * steps * np.mean(np.abs(x), axis=-1, keepdims=True) / np.sqrt(np.var(x, axis=-1, keepdims=True) + eps)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("eps", [1e-6, 10.0])
@pytest.mark.parametrize("row", ROWS)
def test_rows(kind, row, eps):
    x = new_rng().uniform(-10, 10, (5, row)).astype(np.float32)
    if kind == "norm" and row == 1:
        x = np.float32(3) + np.zeros_like(x)   # a row of one element less its mean is 0
    check(kind, run_twice(lambda g, a: getattr(g, kind)(a, eps), x), x, eps)


@pytest.mark.parametrize("kind", KINDS)
def test_no_epsilon(kind):
    x = new_rng().uniform(-10, 10, (5, 65)).astype(np.float32)
    check(kind, run_op(lambda g, a: getattr(g, kind)(a, 0.0), x), x, 0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", [100, 101, 1100, 1101])
def test_strides_and_in_place(kind, row):
    x = new_rng().uniform(-10, 10, (3, 4, 5, row)).astype(np.float32)
    part = row - row // 3
    norm = lambda g, a: getattr(g, kind)(a, 1e-6)
    check(kind, run_op(lambda g, a: norm(g, g.view_4d(a, part, 3, 2, 3, a.nb[1], a.nb[2], a.nb[3], 4)), x), x[:, :2, :3, 1:part + 1], 1e-6)
    check(kind, run_op(lambda g, a: norm(g, g.permute(a, 0, 2, 1, 3)), x), x.swapaxes(1, 2), 1e-6)
    check(kind, run_op(lambda g, a: getattr(g, kind + "_inplace")(a, 1e-6), x), x, 1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", [1, 5, 33, 300, 1030])
def test_scattered_rows(kind, row):
    """Rows whose elements lie apart; in place, the result is as scattered."""
    x = new_rng().uniform(-10, 10, (2, row, 7)).astype(np.float32)
    turned = x.swapaxes(1, 2)
    check(kind, run_twice(lambda g, a: getattr(g, kind)(g.permute(a, 1, 0, 2, 3), 1e-6), x), turned, 1e-6)
    check(kind, run_op(lambda g, a: getattr(g, kind + "_inplace")(g.permute(a, 1, 0, 2, 3), 1e-6), x), turned, 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_others(kind):
    x = new_rng().standard_normal((9, 640), dtype=np.float32)
    norm = lambda g, a: getattr(g, kind)(a, 1e-6)
    together = run_op(norm, x)
    for i in (0, 8):
        np.testing.assert_array_equal(run_op(norm, x[i:i + 1]).ravel(), together[i])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", [64, 2048])
def test_special_values(kind, row):
    """Zeros stay zeros; a NaN spoils its own row only (L2_NORM, as ggml's: the larger of a NaN and epsilon is epsilon)."""
    x = np.zeros((3, row), np.float32)
    x[1, 5] = np.nan
    x[2] = 1e-30
    out = run_op(lambda g, a: getattr(g, kind)(a, 1e-6), x)
    assert np.all(out[0] == 0) and np.isnan(out[1, 5]) and np.all(np.isfinite(out[2]))
    assert kind == "l2_norm" or np.all(np.isnan(out[1]))


@pytest.mark.parametrize("row", [1000, 5000])
def test_a_large_mean_does_not_hide_the_variance(row):
    x = (new_rng().standard_normal((3, row)) + 100).astype(np.float32)
    assert nmse(run_op(lambda g, a: g.norm(a, 1e-6), x), reference("norm", x, 1e-6)) < 1e-9


@pytest.mark.parametrize("shape, groups", [((2, 12, 5, 7), 4), ((1, 8, 3, 3), 8), ((2, 7, 4, 9), 3), ((3, 2, 1, 5), 4), ((1, 6, 33, 65), 2),
                                           ((2, 10, 1, 1), 1)])
def test_groups(shape, groups):
    """Also groups that do not go into the number of channels, and more groups than channels."""
    x = new_rng().uniform(-3, 5, shape).astype(np.float32)
    channels = -(-shape[1] // groups)
    for form in ("group_norm", "group_norm_inplace"):
        out = run_twice(lambda g, a: getattr(g, form)(a, groups, 1e-5), x).reshape(shape)
        for c in range(0, shape[1], channels):
            check("norm", out[:, c:c + channels], x[:, c:c + channels].reshape(shape[0], -1), 1e-5)


def test_groups_of_a_view():
    x = new_rng().uniform(-3, 5, (3, 8, 5, 6)).astype(np.float32)
    out = run_op(lambda g, a: g.group_norm(g.view_4d(a, 6, 5, 4, 3, a.nb[1], a.nb[2], a.nb[3], 2 * a.nb[2]), 2, 1e-5), x)
    check("norm", out, x[:, 2:6].reshape(3, 2, -1), 1e-5)


def test_refusals():
    for kind in KINDS:
        assert "f32" in refusal_of(lambda g, a: getattr(g, kind)(a, 1e-6), np.ones((2, 8), np.float16))
        assert refusal_of(lambda g, a: getattr(g, kind)(g.transpose(a), 1e-6), np.ones((2, 8), np.float32)) is None
    assert "contiguous" in refusal_of(lambda g, a: g.group_norm(g.transpose(a), 1, 1e-6), np.ones((1, 4, 2, 8), np.float32))
