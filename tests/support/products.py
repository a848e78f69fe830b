"""Matrix products: weights of every type, activations as the kernels round them, and the comparison with a float64 product."""
import contextlib

import numpy as np

from .ggml import plugin
from .ops import QUANTIZED_TYPES, Quantized, block_elements, random_blocks
from .values import typed

BLOCKS = {type: block_elements(type) for type in QUANTIZED_TYPES}
FLOATS = ["f32", "f16", "bf16"]
ALL = [*FLOATS, *BLOCKS]
SLOW_TO_QUANTIZE = {type for type in BLOCKS if type.startswith("iq")}   # ggml searches a grid
MAT_VEC = 8          # up to so many columns a mat-vec does it
BOUND = 2e-6         # error of a result over the sum of the magnitudes of its products


def tile_widths(type):
    """Columns J that the tile kernels of a type come in."""
    return [64] if type == "f32" else [16, 64] if type in FLOATS else [16, 32, 48, 64, 128]


@contextlib.contextmanager
def tiles_of(columns):
    """Products in tiles take those of J columns."""
    assert plugin().strata_hip_force_tile_columns(columns) == 1
    try:
        yield
    finally:
        plugin().strata_hip_force_tile_columns(0)


def weights(rng, shape, type):
    """(input, the values it holds as float64)"""
    values = rng.standard_normal(shape, dtype=np.float32)
    if type in FLOATS:
        return typed(values, type)
    made = random_blocks(rng, shape, type) if type in SLOW_TO_QUANTIZE else Quantized(values, type)
    return made, made.values.astype(np.float64)


def q8_1(x):
    """What quantize_q8_1 makes of float32 values, as float64."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    d = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore"):
        inverse = np.where(d > 0, np.float32(1) / d, np.float32(0))
    scaled = blocks * inverse
    assert scaled.dtype == np.float32
    q = np.trunc(scaled) + np.where(np.abs(scaled - np.trunc(scaled)) >= 0.5, np.sign(scaled), 0)
    return (q.astype(np.float64) * d).reshape(x.shape)


def rounded(x, type, columns):
    """Activations as the kernels use them."""
    if type in BLOCKS:
        return q8_1(x)
    if type == "f32" or columns <= MAT_VEC:
        return x.astype(np.float64)
    return typed(x, type)[1]


def assert_product(out, w, x, bound=BOUND):
    """`out` is the product of the float64 weights [..., m, k] and activations [..., n, k], up to float32 summation."""
    expected = x @ np.swapaxes(w, -1, -2)
    magnitude = np.abs(x) @ np.swapaxes(np.abs(w), -1, -2)
    error = np.abs(out.reshape(expected.shape) - expected) / np.maximum(magnitude, 1e-30)
    assert np.all(error <= bound), f"error {np.nanmax(error):.3g}, {np.sum(~(error <= bound))} of {error.size} results off"
