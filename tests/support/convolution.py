"""Float64 references of convolutions over any number of dimensions. Arrays are numpy's way round: the innermost dimension is last."""
import itertools

import numpy as np


def out_size(size: int, extent: int, stride: int, pad: int, dilation: int) -> int:
    return (size + 2 * pad - dilation * (extent - 1) - 1) // stride + 1


def patches(x: np.ndarray, extents, strides, pads, dilations) -> np.ndarray:
    """What each output meets: x is (..., spatial), the result (..., outputs, extents); zeros outside."""
    n = len(extents)
    padded = np.pad(x, [(0, 0)] * (x.ndim - n) + [(p, p) for p in pads])
    outs = [out_size(s, e, st, p, d) for s, e, st, p, d in zip(x.shape[-n:], extents, strides, pads, dilations)]
    result = np.zeros((*x.shape[:-n], *outs, *extents), x.dtype)
    for k in itertools.product(*map(range, extents)):
        window = tuple(slice(i * d, i * d + (o - 1) * st + 1, st) for i, d, o, st in zip(k, dilations, outs, strides))
        result[(..., *([slice(None)] * n), *k)] = padded[(..., *window)]
    return result


def conv(x: np.ndarray, weights: np.ndarray, strides, pads, dilations) -> np.ndarray:
    """x: (images, channels, spatial), weights: (channels out, channels in, spatial)."""
    n = weights.ndim - 2
    met = patches(x.astype(np.float64), weights.shape[2:], strides, pads, dilations)
    axes = [1, *range(2 + n, 2 + 2 * n)]
    out = np.tensordot(met, weights.astype(np.float64), (axes, range(1, 2 + n)))
    return np.moveaxis(out, -1, 1)


def conv_transpose(x: np.ndarray, weights: np.ndarray, stride: int) -> np.ndarray:
    """x: (images, channels, spatial), weights: (channels in, channels out, spatial)."""
    n = weights.ndim - 2
    outs = [(s - 1) * stride + e for s, e in zip(x.shape[2:], weights.shape[2:])]
    result = np.zeros((x.shape[0], weights.shape[1], *outs))
    for k in itertools.product(*map(range, weights.shape[2:])):
        window = tuple(slice(i, i + (s - 1) * stride + 1, stride) for i, s in zip(k, x.shape[2:]))
        part = np.tensordot(x.astype(np.float64), weights[(..., *k)].astype(np.float64), ([1], [0]))
        result[(..., *window)] += np.moveaxis(part, -1, 1)
    return result
