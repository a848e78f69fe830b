"""Products with experts at ragged edges, with every operand in an allocation of exactly its size: the emulator reports any access beyond
one. The last row of a matrix, the last expert, the last column of activations and partial tiles come up in all of them."""
import struct

import numpy as np
import pytest
from test_mul_mat_bounds import BLOCKS, FLOATS, ONE, run, tiles, upload

from support.hip import divisor, emulator
from support.ops import new_rng

NO_ROUTE = bytes(16)
EXPERTS = 3


def routed(ids, tile, steps):
    """expert_tiles as route_experts makes them, and its allocations."""
    flat = ids.reshape(-1)
    order = np.argsort(flat, kind="stable")
    columns = np.stack([order // ids.shape[1] * steps[0] + order % ids.shape[1] * steps[1], order], 1).astype(np.uint32)
    made, first = [], 0
    for expert, count in enumerate(np.bincount(flat, minlength=EXPERTS)):
        made += [(expert, first + at, min(tile, count - at), 0) for at in range(0, count, tile)] + [(expert, first, 0, 0)]
        first += count
    lists = [emulator().upload(np.array(made, np.uint32)), emulator().upload(columns)]
    return struct.pack("<2Q", *lists), lists, len(made)


def chosen(ids, sources):
    """expert_choice, and its allocation."""
    device = emulator().upload(np.ascontiguousarray(ids))
    return struct.pack("<3Q6I", device, 4, 4 * ids.shape[1], *divisor(ids.shape[1]), *divisor(sources)), device


def cases(rng, tile):
    for tokens, used in ((1, 1), (2, 3), (tile - 1, 1), (tile + 1, 2)):
        yield np.stack([rng.permutation(EXPERTS)[:used] for _ in range(tokens)]).astype(np.int32)
    yield np.full((tile + 1, 1), EXPERTS - 1, np.int32)


def quantized(kernel, type, ids, rows, k, grid, block, tile=None):
    size, elements = BLOCKS[type]
    row, pairs = k // elements * size, ids.size
    weights, values, meta = upload(EXPERTS * rows * row), upload(pairs * k), upload(pairs * k // 32 * 8)
    dst = emulator().upload(np.full(pairs * rows, np.nan, np.float32))
    arguments = struct.pack("<4Q", weights, values, meta, dst) + struct.pack("<QQ9I4x", rows * row, 0, *ONE * 3) + struct.pack("<4I", row, rows, 0, k)
    finish(kernel, arguments, ids, (ids.shape[1], 1), tile, grid, block, (weights, values, meta), dst, pairs * rows)


def floats(kernel, type, activation, ids, rows, k, grid, block, tile=None):
    row, column, pairs = k * FLOATS[type], k * FLOATS[activation], ids.size
    weights, activations = upload(EXPERTS * rows * row), upload(pairs * column)
    dst = emulator().upload(np.full(pairs * rows, np.nan, np.float32))
    steps = (ids.shape[1] * column, column)
    arguments = (struct.pack("<3Q2Q", weights, activations, dst, steps[1], steps[0]) + struct.pack("<QQ9I4x", rows * row, 0, *ONE * 3) +
                 struct.pack("<5I4x", row, column, rows, 0, k))
    finish(kernel, arguments, ids, steps, tile, grid, block, (weights, activations), dst, pairs * rows)


def finish(kernel, arguments, ids, steps, tile, grid, block, allocations, dst, results):
    if tile:
        route, lists, count = routed(ids, tile, steps)
        run(kernel, (grid, count), block, arguments + bytes(48) + route, (*allocations, *lists), dst, results)
    else:
        choice, device = chosen(ids, ids.shape[1])
        run(kernel, (grid, 1, ids.size), block, arguments + choice + NO_ROUTE, (*allocations, device), dst, results)


@pytest.mark.parametrize("type", ["q4_0", "q8_0", "q2_K", "q5_K", "q6_K", "iq2_s"])
def test_quantized(type):
    rng = new_rng()
    for k in (BLOCKS[type][1], 3 * BLOCKS[type][1]):
        for rows in (1, 33, 129):
            for tile in (16, 32, 48, 64, 128):
                for ids in cases(rng, tile):
                    quantized(f"mul_mat_{type}_j{tile}", type, ids, rows, k, tiles(rows, 128), 256 if tile == 128 else 128, tile)
            for wave_rows in (1, 4):
                for ids in cases(rng, 3):
                    quantized(f"mul_mat_vec_{type}_c1_r{wave_rows}", type, ids, rows, k, tiles(rows, 4 * wave_rows), 128)


@pytest.mark.parametrize("types", ["f32_f32", "f16_f32", "f16_f16", "bf16_f32"])
def test_floats(types):
    rng = new_rng()
    for k in (1, 67, 256):
        for rows in (1, 33, 129):
            for tile in (64,) if types == "f32_f32" else (16, 64):
                kernel = "mul_mat_f32_f32" if types == "f32_f32" else f"mul_mat_{types}_j{tile}"
                for ids in cases(rng, tile):
                    floats(kernel, *types.split("_"), ids, rows, k, tiles(rows, 64 if types == "f32_f32" else 128), 128, tile)
            for lanes in (8, 32):
                for ids in cases(rng, 3):
                    floats(f"mul_mat_vec_{types}_c1_l{lanes}_r1", *types.split("_"), ids, rows, k, tiles(rows, 128 // lanes), 128)
