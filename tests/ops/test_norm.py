"""RMS_NORM against float64."""
import numpy as np
import pytest

from support.ops import new_rng, refusal_of, run_op
from support.values import assert_rounded, run_twice


def rms_norm(x, eps):
    x = x.astype(np.float64)
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + np.float64(np.float32(eps)))


@pytest.mark.parametrize("eps", [0.0, 1e-6, 10.0])
@pytest.mark.parametrize("row", [1, 3, 7, 15, 17, 63, 64, 65, 256, 576, 640, 1023, 1024, 1025, 1028, 2048, 4096, 5003])
def test_rows(row, eps):
    x = new_rng().uniform(-10, 10, (5, row)).astype(np.float32)
    out = run_twice(lambda g, a: g.rms_norm(a, eps), x)
    assert_rounded(out.reshape(x.shape), rms_norm(x, eps), "f32", 4)


@pytest.mark.parametrize("row", [100, 101, 1100, 1101])
def test_strides_and_in_place(row):
    x = new_rng().uniform(-10, 10, (3, 4, 5, row)).astype(np.float32)
    part = row - row // 3
    build = lambda g, a: g.rms_norm(g.view_4d(a, part, 3, 2, 3, a.nb[1], a.nb[2], a.nb[3], 4), 1e-6)
    assert_rounded(run_op(build, x), rms_norm(x[:, :2, :3, 1:part + 1], 1e-6), "f32", 4)
    assert_rounded(run_op(lambda g, a: g.rms_norm(g.permute(a, 0, 2, 1, 3), 1e-6), x), rms_norm(x.swapaxes(1, 2), 1e-6), "f32", 4)
    assert_rounded(run_op(lambda g, a: g.rms_norm_inplace(a, 1e-6), x), rms_norm(x, 1e-6), "f32", 4)


def test_a_row_does_not_depend_on_others():
    x = new_rng().standard_normal((9, 640), dtype=np.float32)
    together = run_op(lambda g, a: g.rms_norm(a, 1e-6), x)
    for i in (0, 8):
        np.testing.assert_array_equal(run_op(lambda g, a: g.rms_norm(a, 1e-6), x[i:i + 1]).ravel(), together[i])


@pytest.mark.parametrize("row", [64, 2048])
def test_special_values(row):
    """Zeros stay zeros; a NaN spoils its own row only."""
    x = np.zeros((3, row), np.float32)
    x[1, 5] = np.nan
    x[2] = 1e-30
    out = run_op(lambda g, a: g.rms_norm(a, 1e-6), x)
    assert np.all(out[0] == 0) and np.all(np.isnan(out[1])) and np.all(np.isfinite(out[2]))


def test_refusals():
    assert "f32" in refusal_of(lambda g, a: g.rms_norm(a, 1e-6), np.ones((2, 8), np.float16))
    assert "contiguous" in refusal_of(lambda g, a: g.rms_norm(g.transpose(a), 1e-6), np.ones((2, 8), np.float32))
