"""Arrays of ggml's block types: what is quantized, and what its blocks hold."""
from typing import Any, Optional

import numpy as np
from numpy.typing import ArrayLike

from .errors import ArgumentError
from .ggml import TYPES, ffi, lib


def type_number(name: str) -> int:
    """ggml's number of a type. Raises ArgumentError for a name that it does not have."""
    if name not in TYPES:
        raise ArgumentError(f"ggml has no type {name!r}, but {', '.join(TYPES)}")
    return TYPES[name]


def _check_rows(values: np.ndarray, type: str) -> None:
    block = lib.ggml_blck_size(type_number(type))
    if values.ndim == 0 or values.shape[-1] == 0 or values.shape[-1] % block:
        raise ArgumentError(f"rows of {type} are made of blocks of {block} values: an array of shape {values.shape} does not fit")


def quantize(values: ArrayLike, type: str) -> np.ndarray:
    """Float values to raw blocks by ggml's own quantizer.

    values: (..., n), n a multiple of the type's block size. type: "q4_0", "q4_K", "bf16", ...; of the types that ask how much each
    column matters, every column matters the same. Returns uint8 (..., bytes of a row). Raises ArgumentError."""
    array = np.ascontiguousarray(values, np.float32)
    _check_rows(array, type)
    row = array.shape[-1]
    rows = array.size // row
    raw = np.empty((rows, lib.ggml_row_size(TYPES[type], row)), np.uint8)
    importance = ffi.new("float[]", [1.0] * row) if lib.ggml_quantize_requires_imatrix(TYPES[type]) else ffi.NULL
    written = lib.ggml_quantize_chunk(TYPES[type], ffi.cast("float *", array.ctypes.data), ffi.cast("void *", raw.ctypes.data), 0, rows,
                                      row, importance)
    assert written == raw.nbytes
    return raw.reshape(*array.shape[:-1], -1)


def dequantize(raw: np.ndarray, type: str) -> np.ndarray:
    """Raw blocks, uint8 (..., bytes of a row), to the float32 values that they hold, (..., n), by ggml's own code. Raises ArgumentError."""
    blocks = np.ascontiguousarray(raw, np.uint8)
    size, elements = lib.ggml_type_size(type_number(type)), lib.ggml_blck_size(TYPES[type])
    traits = lib.ggml_get_type_traits(TYPES[type])
    if traits.to_float == ffi.NULL:
        raise ArgumentError(f"{type} is no type of blocks")
    if blocks.ndim == 0 or blocks.shape[-1] % size:
        raise ArgumentError(f"blocks of {type} have {size} bytes: an array of shape {blocks.shape} does not fit")
    values = np.empty((*blocks.shape[:-1], blocks.shape[-1] // size * elements), np.float32)
    traits.to_float(ffi.cast("void *", blocks.ctypes.data), ffi.cast("float *", values.ctypes.data), values.size)
    return values


class Quantized:
    """An array of one of ggml's block types, or of bf16.

    Attributes: type, ggml's name of it; raw, the blocks as uint8 (..., bytes of a row); values, the float32 numbers that they hold
    (..., n): what a reference must compute with."""

    type: str
    raw: np.ndarray
    values: np.ndarray

    def __init__(self, values: Optional[ArrayLike], type: str, raw: Optional[np.ndarray] = None):
        """Quantizes `values`, or takes the blocks `raw` as they are. Raises ArgumentError."""
        self.type = type
        if raw is None:
            if values is None:
                raise ArgumentError("neither values nor blocks are given")
            raw = quantize(values, type)
        self.raw = raw
        self.values = self._dequantize(raw, type)

    _dequantize = staticmethod(dequantize)

    @property
    def shape(self) -> Any:
        """The shape of `values`."""
        return self.values.shape

    def __repr__(self) -> str:
        return f"Quantized(shape={self.shape}, type={self.type!r})"
