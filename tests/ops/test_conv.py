"""Convolutions against float64."""
import numpy as np
import pytest

from support.convolution import conv, conv_transpose, out_size
from support.ops import new_rng, nmse, refusal_of, run_op
from support.values import run_twice, uniform

BOUND = 1e-12  # f32 sums of exact products, each fused: an error of 2^-24 a term at most
TYPES = ["f32", "f16"]
PLANES = [  # images, channels in, out, size, extent, stride, pad, dilation
    (1, 1, 1, (1, 1), (1, 1), (1, 1), (0, 0), (1, 1)), (2, 3, 5, (9, 33), (3, 3), (1, 1), (1, 1), (1, 1)), (1, 7, 17, (20, 17), (2, 5), (3, 2), (0, 4), (2, 1)),
    (3, 16, 8, (16, 16), (1, 1), (1, 1), (0, 0), (1, 1)), (1, 3, 33, (28, 42), (14, 14), (14, 14), (0, 0), (1, 1)), (2, 2, 9, (2, 1), (1, 1), (1, 1), (4, 3), (1, 1)),
]


def channels_innermost(g, t):
    """The same tensor with its channels (dimension 2) innermost in memory."""
    return g.permute(g.cont(g.permute(t, 1, 2, 0, 3)), 2, 0, 1, 3)


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("images, inputs, outputs, size, extent, stride, pad, dilation", PLANES)
@pytest.mark.parametrize("innermost", [False, True])
def test_planes(type, images, inputs, outputs, size, extent, stride, pad, dilation, innermost):
    rng = new_rng()
    x, values = uniform(rng, (images, inputs, *size))
    w, weights = uniform(rng, (outputs, inputs, *extent), type)

    def build(g, kernel, a):
        if innermost:
            kernel, a = channels_innermost(g, kernel), channels_innermost(g, a)
        return g.conv_2d_direct(kernel, a, *stride[::-1], *pad[::-1], *dilation[::-1])

    out = run_twice(build, w, x)
    wanted = conv(values, weights, stride, pad, dilation)
    assert nmse(out.reshape(wanted.shape), wanted) <= BOUND


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("images, inputs, outputs, size, extent, stride, pad, dilation", [
    (1, 1, 1, (1, 1, 1), (1, 1, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1)), (2, 3, 9, (5, 6, 17), (3, 2, 3), (1, 2, 1), (1, 0, 2), (1, 1, 2)),
    (1, 5, 17, (7, 9, 13), (2, 3, 4), (3, 1, 2), (2, 2, 3), (2, 1, 2))])
def test_volumes(type, images, inputs, outputs, size, extent, stride, pad, dilation):
    rng = new_rng()
    x, values = uniform(rng, (images * inputs, *size))
    w, weights = uniform(rng, (outputs * inputs, *extent), type)
    out = run_twice(lambda g, kernel, a: g.conv_3d_direct(kernel, a, *stride[::-1], *pad[::-1], *dilation[::-1], inputs, images, outputs), w, x)
    wanted = conv(values.reshape(images, inputs, *size), weights.reshape(outputs, inputs, *extent), stride, pad, dilation)
    assert nmse(out.reshape(wanted.shape), wanted) <= BOUND


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("images, channels, size, extent, stride, pad, dilation", [
    (1, 1, (1, 1), (1, 1), 1, 0, 1), (2, 9, (17, 34), (3, 3), 1, 0, 1), (1, 33, (8, 31), (3, 5), 2, 1, 2), (3, 65, (5, 5), (5, 5), 1, 2, 1)])
@pytest.mark.parametrize("innermost", [False, True])
def test_by_channel(type, images, channels, size, extent, stride, pad, dilation, innermost):
    rng = new_rng()
    x, values = uniform(rng, (images, channels, *size))
    w, weights = uniform(rng, (channels, 1, *extent), type)

    def build(g, kernel, a):
        if innermost:
            kernel, a = g.permute(g.cont(g.permute(kernel, 2, 3, 1, 0)), 3, 2, 0, 1), channels_innermost(g, a)
        return g.conv_2d_dw_direct(kernel, a, stride, stride, pad, pad, dilation, dilation)

    out = run_twice(build, w, x)
    wanted = np.concatenate([conv(values[:, c:c + 1], weights[c:c + 1], (stride,) * 2, (pad,) * 2, (dilation,) * 2) for c in range(channels)], 1)
    assert nmse(out.reshape(wanted.shape), wanted) <= BOUND


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("inputs, outputs, size, extent, stride", [(1, 1, 1, 1, 1), (7, 9, 13, 3, 2), (3, 2, 2, 65, 3), (16, 5, 33, 2, 4), (5, 33, 7, 16, 8)])
def test_transposed_lines(type, inputs, outputs, size, extent, stride):
    rng = new_rng()
    x, values = uniform(rng, (inputs, size))
    w, weights = uniform(rng, (inputs, outputs, extent), type)
    out = run_twice(lambda g, kernel, a: g.conv_transpose_1d(kernel, a, stride, 0, 1), w, x)
    wanted = conv_transpose(values[None], weights, stride)[0]
    assert nmse(out.reshape(wanted.shape), wanted) <= BOUND


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("images, inputs, outputs, size, extent, stride", [
    (1, 1, 1, (1, 1), (1, 1), 1), (2, 9, 3, (10, 7), (3, 3), 2), (1, 17, 33, (5, 33), (2, 4), 1), (2, 3, 5, (6, 5), (2, 2), 3)])
def test_transposed_planes(type, images, inputs, outputs, size, extent, stride):
    rng = new_rng()
    x, values = uniform(rng, (images, inputs, *size))
    w, weights = uniform(rng, (inputs, outputs, *extent), type)
    out = run_twice(lambda g, kernel, a: g.conv_transpose_2d_p0(kernel, a, stride), w, x)
    wanted = conv_transpose(values, weights, stride)
    assert nmse(out.reshape(wanted.shape), wanted) <= BOUND


def test_cut_sources():
    rng = new_rng()
    x, values = uniform(rng, (2, 3, 11, 14))
    w, weights = uniform(rng, (4, 3, 3, 3))
    view = lambda g, a: g.view_4d(a, 10, 8, 3, 2, a.nb[1], a.nb[2], a.nb[3], 8)  # noqa: E731
    out = run_op(lambda g, kernel, a: g.conv_2d_direct(kernel, view(g, a), 1, 1, 1, 1, 1, 1), w, x)
    assert nmse(out, conv(values[:, :, :8, 2:12], weights, (1, 1), (1, 1), (1, 1))) <= BOUND


def test_outputs_whose_window_is_outside_are_zero():
    x = np.full((1, 1, 2, 2), np.inf, np.float32)
    out = run_op(lambda g, kernel, a: g.conv_2d_direct(kernel, a, 1, 1, 5, 5, 1, 1), np.ones((1, 1, 1, 1), np.float32), x)
    assert out.shape[-2:] == (out_size(2, 1, 1, 5, 1),) * 2
    wanted = np.zeros((12, 12))
    wanted[5:7, 5:7] = np.inf
    np.testing.assert_array_equal(out.reshape(12, 12), wanted)


def test_refusals():
    x = np.zeros((1, 1, 4, 4), np.float32)
    assert "weights" in refusal_of(lambda g, kernel, a: g.conv_2d_direct(kernel, a, 1, 1, 0, 0, 1, 1), np.zeros((1, 1, 2, 2), np.int32), x)
    assert "not f32" in refusal_of(lambda g, kernel, a: g.conv_2d_direct(kernel, a, 1, 1, 0, 0, 1, 1), np.zeros((1, 1, 2, 2), np.float16), x.astype(np.float16))
