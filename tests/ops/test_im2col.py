"""IM2COL, IM2COL_3D: exact against numpy. COL2IM_1D against float64."""
import numpy as np
import pytest

from support.convolution import patches
from support.ggml import TYPES
from support.ops import new_rng, nmse, refusal_of, run_op
from support.values import run_twice, uniform

PLANES = [  # size, extent, stride, pad, dilation; outermost first
    ((1, 1), (1, 1), (1, 1), (0, 0), (1, 1)), ((9, 33), (3, 3), (1, 1), (1, 1), (1, 1)), ((20, 17), (2, 5), (3, 2), (0, 4), (2, 1)),
    ((7, 7), (7, 1), (1, 3), (3, 0), (1, 3)), ((4, 70), (4, 14), (4, 14), (0, 0), (1, 1)),
]


def rows(met, dims):
    """patches() of (images, channels, spatial) as im2col's rows: (images, outputs, channels * window)."""
    met = np.moveaxis(met, 1, 1 + dims)
    return met.reshape(*met.shape[:1 + dims], -1)


@pytest.mark.parametrize("size, extent, stride, pad, dilation", PLANES)
@pytest.mark.parametrize("source, target", [("f32", "f32"), ("f32", "f16"), ("f16", "f16")])
def test_planes(size, extent, stride, pad, dilation, source, target):
    x, values = uniform(new_rng(), (2, 3, *size), source)
    weights = np.zeros((5, 3, *extent), np.float16)
    out = run_twice(lambda g, w, a: g.im2col(w, a, stride[1], stride[0], pad[1], pad[0], dilation[1], dilation[0], True, TYPES[target]), weights, x)
    wanted = rows(patches(values, extent, stride, pad, dilation), 2)
    np.testing.assert_array_equal(out.reshape(wanted.shape), wanted.astype(np.float16 if target == "f16" else np.float32))


@pytest.mark.parametrize("size, extent, stride, pad, dilation", [(1, 1, 1, 0, 1), (65, 3, 1, 1, 1), (33, 4, 3, 5, 2)])
@pytest.mark.parametrize("target", ["f32", "f16"])
def test_lines(size, extent, stride, pad, dilation, target):
    x, values = uniform(new_rng(), (2, 3, size))
    weights = np.zeros((5, 3, extent), np.float32)
    out = run_twice(lambda g, w, a: g.im2col(w, a, stride, 0, pad, 0, dilation, 0, False, TYPES[target]), weights, x)
    wanted = rows(patches(values, (extent,), (stride,), (pad,), (dilation,)), 1)
    np.testing.assert_array_equal(out.reshape(wanted.shape), wanted.astype(np.float16 if target == "f16" else np.float32))


@pytest.mark.parametrize("size, extent, stride, pad, dilation", [
    ((1, 1, 1), (1, 1, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1)), ((5, 6, 17), (3, 2, 3), (1, 2, 1), (1, 0, 2), (1, 1, 2)), ((4, 9, 7), (2, 3, 1), (2, 3, 1), (0, 3, 1), (2, 1, 1))])
@pytest.mark.parametrize("target", ["f32", "f16"])
@pytest.mark.parametrize("cut", [False, True])
def test_volumes(size, extent, stride, pad, dilation, target, cut):
    images, channels = 2, 3
    larger = [n + 2 for n in size] if cut else size
    x, values = uniform(new_rng(), (images * channels, *larger))
    weights = np.zeros((channels * 4, *extent), np.float16)

    def build(g, w, a):
        if cut:
            a = g.view_4d(a, size[2], size[1], size[0], images * channels, a.nb[1], a.nb[2], a.nb[3], 0)
        return g.im2col_3d(w, a, channels, *stride[::-1], *pad[::-1], *dilation[::-1], TYPES[target])

    out = run_twice(build, weights, x)
    part = values[:, :size[0], :size[1], :size[2]].reshape(images, channels, *size)
    wanted = rows(patches(part, extent, stride, pad, dilation), 3)
    np.testing.assert_array_equal(out.reshape(wanted.shape), wanted.astype(np.float16 if target == "f16" else np.float32))


def test_planes_of_a_view():
    """Whatever the strides of the source are."""
    x, values = uniform(new_rng(), (2, 3, 9, 12))
    weights = np.zeros((5, 3, 3, 3), np.float16)
    out = run_op(lambda g, w, a: g.im2col(w, g.view_4d(a, 10, 8, 3, 2, a.nb[1], a.nb[2], a.nb[3], 4), 1, 1, 1, 1, 1, 1, True, TYPES["f32"]), weights, x)
    np.testing.assert_array_equal(out, rows(patches(values[:, :, :8, 1:11], (3, 3), (1, 1), (1, 1), (1, 1)), 2).astype(np.float32))


@pytest.mark.parametrize("type, bound", [("f32", 1e-12), ("f16", 1e-6), ("bf16", 1e-4)])
@pytest.mark.parametrize("kernel, channels, columns, stride, pad", [(1, 1, 1, 1, 0), (4, 3, 7, 2, 0), (16, 5, 65, 8, 3), (2, 3, 9, 3, 0), (5, 4, 11, 2, 1),
                                                                   (8, 2, 3, 2, 5)])
def test_col2im(type, bound, kernel, channels, columns, stride, pad):
    x, values = uniform(new_rng(), (columns, channels * kernel), type)
    out = run_twice(lambda g, a: g.col2im_1d(a, stride, channels, pad), x)
    wanted = np.zeros((channels, (columns - 1) * stride + kernel))
    for column in range(columns):
        wanted[:, column * stride:column * stride + kernel] += values[column].reshape(channels, kernel)
    wanted = wanted[:, pad:wanted.shape[1] - pad]
    assert nmse(out.reshape(wanted.shape), wanted) <= bound


def test_refusals():
    assert "types" in refusal_of(lambda g, w, a: g.im2col(w, a, 1, 1, 0, 0, 1, 1, True, TYPES["f32"]), np.zeros((1, 1, 3, 3), np.float16), np.zeros((1, 1, 9, 9), np.float16))
