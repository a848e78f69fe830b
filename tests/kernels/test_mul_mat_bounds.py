"""Matrix product kernels at ragged edges, with every operand in an allocation of exactly its size: the emulator reports any access beyond
one. Also that all results are written, and nothing but them."""
import functools
import struct

import numpy as np
import pytest

from support.ggml import TYPES, lib
from support.hip import emulator
from support.ops import QUANTIZED_TYPES, block_elements
from support.shipped import shipped_kernels

# Bytes and elements of a block.
BLOCKS = {type: (lib.ggml_type_size(TYPES[type]), block_elements(type)) for type in QUANTIZED_TYPES}
FLOATS = {"f32": 4, "f16": 2, "bf16": 2}
ONE = (1, 1 << 31, 0)   # fast_divisor of 1
NO_EXPERTS = bytes(80)


def upload(size):
    return emulator().upload(np.zeros(max(size, 1), np.uint8))


@functools.cache
def loaded(kernel):
    return emulator().kernel(shipped_kernels()[kernel], kernel)


def run(kernel, grid, block, arguments, allocations, dst, results, lds=0):
    hip = emulator()
    hip.launch(loaded(kernel), grid, block, arguments, lds)
    hip.synchronize()
    out = hip.download(dst, results, np.float32)
    for allocation in (*allocations, dst):
        hip.free(allocation)
    assert not np.any(out), kernel   # zero weights: zeros, and none of the poison that was there


def tiles(count, tile):
    return -(-count // tile)


def quantized_column(k):
    """Bytes of LDS that a column takes which a workgroup quantizes."""
    return tiles(k, 128) * 144 + k // 32 * 8


def quantized(kernel, type, rows, columns, k, grid, block=128):
    size, elements = BLOCKS[type]
    row = k // elements * size
    weights, values, meta = upload(rows * row), upload(columns * k), upload(columns * k // 32 * 8)
    dst = emulator().upload(np.full(rows * columns, np.nan, np.float32))
    batches = struct.pack("<QQ9I4x", rows * row, rows * row, *ONE * 3)
    arguments = struct.pack("<4Q", weights, values, meta, dst) + batches + struct.pack("<4I", row, rows, columns, k) + NO_EXPERTS
    run(kernel, grid, block, arguments, (weights, values, meta), dst, rows * columns)


def floats(kernel, type, activation, rows, columns, k, grid, block=128):
    row, column = k * FLOATS[type], k * FLOATS[activation]
    weights, activations = upload(rows * row), upload(columns * column)
    dst = emulator().upload(np.full(rows * columns, np.nan, np.float32))
    batches = struct.pack("<QQ9I4x", rows * row, rows * row, *ONE * 3)
    sizes = struct.pack("<5I4x", row, column, rows, columns, k)
    arguments = struct.pack("<3Q2Q", weights, activations, dst, 0, 0) + batches + sizes + NO_EXPERTS
    run(kernel, grid, block, arguments, (weights, activations), dst, rows * columns)


def lengths(type):
    elements = BLOCKS[type][1]
    return [elements, 3 * elements, 9 * elements]


@pytest.mark.parametrize("type", BLOCKS)
def test_quantized_mat_vec(type):
    for columns in range(1, 9):
        for wave_rows in (1, 4) if columns == 1 else (2,):
            for rows in (1, 5, 33):
                for k in lengths(type):
                    quantized(f"mul_mat_vec_{type}_c{columns}_r{wave_rows}", type, rows, columns, k, tiles(rows, 4 * wave_rows))


@pytest.mark.parametrize("type", BLOCKS)
def test_quantized_tiles(type):
    for tile in (16, 32, 48, 64, 128):
        for rows in (1, 33, 129):
            for columns in (1, tile - 1, tile + 1):
                for k in lengths(type):
                    quantized(f"mul_mat_{type}_j{tile}", type, rows, columns, k, (tiles(rows, 128), tiles(columns, tile)),
                              256 if tile == 128 else 128)


@pytest.mark.parametrize("type", BLOCKS)
def test_quantizing_mat_vec(type):
    size, elements = BLOCKS[type]
    for columns in range(1, 9):
        group = 16 if columns == 1 else 32
        for rows in (1, 5, 33):
            for k in (*lengths(type), 4352):
                row = k // elements * size
                weights, activations = upload(rows * row), upload(columns * k * 4)
                dst = emulator().upload(np.full(rows * columns, np.nan, np.float32))
                members = struct.pack("<2Q3I4x", weights, dst, row, rows, tiles(rows, group)) + bytes(96)
                arguments = struct.pack("<4Q", activations, k * 4, 0, 0) + members + struct.pack("<2I", k, tiles(rows, group)) + bytes(88)
                run(f"mul_mat_vec_quantize_{type}_c{columns}", tiles(rows, group), 512, arguments, (weights, activations), dst, rows * columns, columns * quantized_column(k))


@pytest.mark.parametrize("types", ["f32_f32", "f16_f32", "f16_f16", "bf16_f32"])
def test_float_mat_vec(types):
    for columns in range(1, 9):
        for lanes, wave_rows in ((8, 1), (32, 1), *([(32, 2)] if 1 < columns <= 6 else [])):
            for rows in (1, 5, 33):
                for k in (1, 8, 67, 256, 519, 1100, 4000):
                    floats(f"mul_mat_vec_{types}_c{columns}_l{lanes}_r{wave_rows}", *types.split("_"), rows, columns, k,
                           tiles(rows, 128 // lanes * wave_rows))


@pytest.mark.parametrize("types", ["f16_f32", "f16_f16", "bf16_f32"])
def test_float_tiles(types):
    for tile in (16, 64):
        for rows in (1, 33, 129):
            for columns in (1, tile - 1, tile + 1):
                for k in (1, 64, 67, 135):
                    floats(f"mul_mat_{types}_j{tile}", *types.split("_"), rows, columns, k, (tiles(rows, 128), tiles(columns, tile)))


def test_f32_tiles():
    for rows in (1, 33, 65):
        for columns in (1, 63, 65):
            for k in (1, 16, 19, 70):
                floats("mul_mat_f32_f32", "f32", "f32", rows, columns, k, (tiles(rows, 64), tiles(columns, 64)))


def test_quantization():
    for rows, k in ((1, 32), (3, 96), (2, 512), (5, 544), (1, 1056)):
        hip = emulator()
        src = upload(rows * k * 4)
        values, meta = (hip.upload(np.full(size, 77, np.uint8)) for size in (rows * k, rows * k // 4))
        arguments = struct.pack("<6Q2I3I4x", src, values, meta, k * 4, rows * k * 4, 0, k, rows, *ONE)
        hip.launch(loaded("quantize_q8_1"), (rows, tiles(k, 512)), 128, arguments)
        hip.synchronize()
        assert not np.any(hip.download(values, rows * k, np.uint8)) and not np.any(hip.download(meta, rows * k // 4, np.uint8))
        for allocation in (src, values, meta):
            hip.free(allocation)
