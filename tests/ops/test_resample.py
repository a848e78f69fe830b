"""POOL_1D, POOL_2D and UPSCALE against float64."""
import numpy as np
import pytest

from support.ggml import lib
from support.ops import new_rng, nmse, refusal_of, run_op
from support.values import assert_close, run_twice, uniform


def pooled(x, extents, strides, pads, kind):
    """x: (..., spatial). kind: max, average (zeros outside count) or inside (they do not)."""
    n = len(extents)
    outs = [(s + 2 * p - e) // st + 1 for s, e, st, p in zip(x.shape[-n:], extents, strides, pads)]
    result = np.zeros((*x.shape[:-n], *outs))
    for o in np.ndindex(*outs):
        window = tuple(slice(max(i * st - p, 0), max(i * st - p + e, 0)) for i, e, st, p in zip(o, extents, strides, pads))
        part = x[(..., *window)].reshape(*x.shape[:-n], -1)
        if part.shape[-1] == 0:
            value = np.float32(np.finfo(np.float32).min) if kind == "max" else 0.0
        else:
            value = part.max(-1) if kind == "max" else part.sum(-1) / (np.prod(extents) if kind == "average" else part.shape[-1])
        result[(..., *o)] = value
    return result


@pytest.mark.parametrize("type", ["f32", "f16"])
@pytest.mark.parametrize("kind", ["MAX", "AVG"])
@pytest.mark.parametrize("size, extent, stride, pad", [((10, 33), (3, 2), (2, 1), (1, 0)), ((1, 1), (1, 1), (1, 1), (0, 0)), ((7, 65), (4, 4), (4, 4), (0, 0)),
                                                       ((5, 6), (2, 3), (1, 2), (1, 2))])
def test_pool_2d(type, kind, size, extent, stride, pad):
    x, values = uniform(new_rng(), (2, 3, *size), type)
    op = getattr(lib, "GGML_OP_POOL_" + kind)
    out = run_twice(lambda g, a: g.pool_2d(a, op, *extent[::-1], *stride[::-1], *pad[::-1]), x)
    wanted = pooled(values, extent, stride, pad, "max" if kind == "MAX" else "average")
    assert nmse(out.reshape(wanted.shape), wanted) <= (0 if kind == "MAX" else 1e-13)


@pytest.mark.parametrize("type", ["f32", "f16"])
@pytest.mark.parametrize("kind", ["MAX", "AVG"])
@pytest.mark.parametrize("size, extent, stride, pad", [(10, 3, 1, 3), (1, 1, 1, 0), (128, 2, 2, 0), (65, 5, 3, 2)])
def test_pool_1d(type, kind, size, extent, stride, pad):
    x, values = uniform(new_rng(), (2, 2, 3, size), type)
    op = getattr(lib, "GGML_OP_POOL_" + kind)
    out = run_twice(lambda g, a: g.pool_1d(a, op, extent, stride, pad), x)
    wanted = pooled(values, (extent,), (stride,), (pad,), "max" if kind == "MAX" else "inside")
    assert nmse(out.reshape(wanted.shape), wanted) <= (0 if kind == "MAX" else 1e-13)


def test_pool_of_views():
    x, values = uniform(new_rng(), (3, 9, 14))
    out = run_op(lambda g, a: g.pool_2d(g.transpose(a), lib.GGML_OP_POOL_MAX, 2, 2, 2, 2, 0, 0), x)
    np.testing.assert_array_equal(out, pooled(values.swapaxes(1, 2), (2, 2), (2, 2), (0, 0), "max"))
    cut = run_op(lambda g, a: g.pool_1d(g.view_3d(a, 10, 5, 3, a.nb[1], a.nb[2], 8), lib.GGML_OP_POOL_MAX, 2, 2, 0), x)
    np.testing.assert_array_equal(cut, pooled(values[:, :5, 2:12], (2,), (2,), (0,), "max"))


# Weights of each input of a line (axis 1) for each output (axis 0).

def line_places(size, out, corners):
    scale = (out - 1) / (size - 1) if corners and out > 1 and size > 1 else out / size
    centre = 0.0 if corners else 0.5
    return (np.arange(out) + centre) / scale - centre, scale


def weights_of(size, out, corners, kernel, reach, scale_down):
    places, scale = line_places(size, out, corners)
    support = max(1.0, 1 / scale) if scale_down else 1.0
    weights = np.zeros((out, size))
    for o, place in enumerate(places):
        first = int(np.floor(place - reach * support)) - 1
        for i in range(first, int(np.ceil(place + reach * support)) + 2):
            if scale_down and not 0 <= i < size:
                continue
            weights[o, np.clip(i, 0, size - 1)] += kernel((i - place) / support)
    return weights / weights.sum(1, keepdims=True)


def triangle(t):
    return max(1 - abs(t), 0.0)


def keys(t, a=-0.75):
    t = abs(t)
    return ((a + 2) * t - (a + 3)) * t * t + 1 if t <= 1 else ((a * t - 5 * a) * t + 8 * a) * t - 4 * a if t < 2 else 0.0


MODES = {
    "nearest": lambda size, out, corners: np.eye(size)[np.floor(np.arange(out) * size / out + 1e-9).astype(int)],
    "bilinear": lambda size, out, corners: weights_of(size, out, corners, triangle, 1, False),
    "bicubic": lambda size, out, corners: weights_of(size, out, corners, keys, 2, False),
    "antialias": lambda size, out, corners: weights_of(size, out, corners, triangle, 1, True),
}
FLAGS = {"nearest": "GGML_SCALE_MODE_NEAREST", "bilinear": "GGML_SCALE_MODE_BILINEAR", "bicubic": "GGML_SCALE_MODE_BICUBIC"}


@pytest.mark.parametrize("size, out", [((1, 1, 4, 4), (1, 1, 8, 8)), ((2, 3, 5, 33), (4, 3, 7, 70)), ((2, 6, 9, 65), (1, 3, 4, 17)), ((1, 1, 1, 5), (1, 1, 3, 1)),
                                       ((3, 1, 16, 12), (3, 2, 16, 12))])
@pytest.mark.parametrize("mode, corners", [(mode, False) for mode in MODES] + [("bilinear", True), ("bicubic", True)])
def test_upscale(size, out, mode, corners):
    x, values = uniform(new_rng(), size)
    flags = getattr(lib, FLAGS.get(mode, "GGML_SCALE_MODE_BILINEAR"))
    flags |= lib.GGML_SCALE_FLAG_ANTIALIAS if mode == "antialias" else lib.GGML_SCALE_FLAG_ALIGN_CORNERS if corners else 0
    result = run_twice(lambda g, a: g.interpolate(a, *out[::-1], flags), x)
    outer = values[np.arange(out[0]) * size[0] // out[0]][:, np.arange(out[1]) * size[1] // out[1]]
    down, across = (MODES[mode](size[i], out[i], corners) for i in (2, 3))
    wanted = np.einsum("yi,xj,abij->abyx", down, across, outer)
    # The place of an output is three roundings off, relative to the line's length. With it change the weights: two by 1 a unit, or a cubic's
    # four by 3 together, while those of the other dimension add up to 1, or in magnitude to 1.6.
    bound = 0 if mode == "nearest" else 2.0**-24 * ((14 if mode == "bicubic" else 6) * sum(size[2:]) + 40)
    assert_close(result, wanted, np.abs(values).max(), bound)


def test_upscale_of_a_transposed_view():
    x, values = uniform(new_rng(), (3, 9, 14))
    out = run_op(lambda g, a: g.upscale(g.transpose(a), 2, lib.GGML_SCALE_MODE_NEAREST), x)
    np.testing.assert_array_equal(out, values.swapaxes(1, 2).repeat(2, 1).repeat(2, 2))


def test_refusals():
    assert "neither" in refusal_of(lambda g, a: g.pool_1d(a, lib.GGML_OP_POOL_MAX, 2, 2, 0), np.zeros((4, 8), np.int32))
