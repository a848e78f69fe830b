"""Products with experts at ragged edges, with every operand in an allocation of exactly its size: the emulator reports any access beyond
one. The last row of a matrix, the last expert, the last column of activations and partial tiles come up in all of them."""
import itertools
import struct

import numpy as np
import pytest
from test_mul_mat_bounds import BLOCKS, FLOATS, ONE, quantized_column, run, tiles, upload

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


def chosen(ids, sources, layers):
    """expert_choice, and its allocation. layers: those of the grid that lie side by side in x."""
    device = emulator().upload(np.ascontiguousarray(ids))
    return struct.pack("<3Q9I4x", device, 4, 4 * ids.shape[1], *divisor(ids.shape[1]), *divisor(sources), *divisor(layers)), device


def cases(rng, tile):
    for tokens, used in ((1, 1), (2, 3), (tile - 1, 1), (tile + 1, 2)):
        yield np.stack([rng.permutation(EXPERTS)[:used] for _ in range(tokens)]).astype(np.int32)
    yield np.full((tile + 1, 1), EXPERTS - 1, np.int32)


def quantized(kernel, type, ids, rows, k, grid, block, tile=None, side_by_side=False):
    size, elements = BLOCKS[type]
    row, pairs = k // elements * size, ids.size
    weights, values, meta = upload(EXPERTS * rows * row), upload(pairs * k), upload(pairs * k // 32 * 8)
    dst = emulator().upload(np.full(pairs * rows, np.nan, np.float32))
    arguments = struct.pack("<4Q", weights, values, meta, dst) + struct.pack("<QQ9I4x", rows * row, 0, *ONE * 3) + struct.pack("<4I", row, rows, 0, k)
    finish(kernel, arguments, ids, (ids.shape[1], 1), tile, grid, block, side_by_side, (weights, values, meta), dst, pairs * rows)


def product(type, ids, rows, k, dst, side_by_side):
    """mul_mat_q_args of pairs that are not quantized yet, the grid's layers, and the allocations."""
    size, elements = BLOCKS[type]
    row, layers = k // elements * size, ids.size if side_by_side else 1
    weights = upload(EXPERTS * rows * row)
    choice, device = chosen(ids, ids.shape[1], layers)
    return (struct.pack("<4Q", weights, 0, 0, dst) + struct.pack("<QQ9I4x", rows * row, 0, *ONE * 3) + struct.pack("<4I", row, rows, 0, k) + choice +
            NO_ROUTE, layers, (weights, device))


def quantizing(kernel, type, ids, rows, k, groups, side_by_side):
    activations, dst = upload(ids.size * k * 4), emulator().upload(np.full(ids.size * rows, np.nan, np.float32))
    arguments, layers, allocations = product(type, ids, rows, k, dst, side_by_side)
    columns = struct.pack("<3Q", activations, ids.shape[1] * k * 4, k * 4)
    run(kernel, (groups * layers, 1, ids.size // layers), 512, arguments + columns, (*allocations, activations), dst, ids.size * rows, quantized_column(k))


def gated(kernel, type, ids, rows, k, groups, side_by_side):
    """With a shared expert of other rows than the others behind a single token; the results quantized too where rows are whole blocks."""
    size, elements = BLOCKS[type]
    with_shared, row = ids.shape[0] == 1, k // elements * size
    shared_rows = rows + 32 if with_shared else 0
    results = ids.size * rows + shared_rows
    activations, dst = upload(ids.size * k * 4), emulator().upload(np.full(results, np.nan, np.float32))
    arguments, layers, allocations = product(type, ids, rows, k, dst, side_by_side and not with_shared)
    up = upload(EXPERTS * rows * row)
    made = [0] * 4
    if rows % 32 == 0:
        made = [upload(size) for size in (ids.size * rows, ids.size * rows // 4, shared_rows, shared_rows // 4)]
    shared = [upload(shared_rows * row) for _ in range(2)] if with_shared else [0, 0]
    glu = (struct.pack("<Q4QI2f4x2Q", up, 0, 0, 0, 0, 2, 0, 0, *made[:2]) +
           struct.pack("<5Q2I", *shared, dst + 4 * ids.size * rows if with_shared else 0, *made[2:], shared_rows, ids.size if with_shared else 0))
    columns = struct.pack("<3Q", activations, ids.shape[1] * k * 4, k * 4)
    grid = (max(groups, tiles(shared_rows, 32)) * layers, 1, ids.size // layers + with_shared)
    run(kernel, grid, 512, arguments + glu + columns, (*allocations, up, *filter(None, (*made, *shared)), activations), dst, results, quantized_column(k))


def floats(kernel, type, activation, ids, rows, k, grid, block, tile=None, side_by_side=False):
    row, column, pairs = k * FLOATS[type], k * FLOATS[activation], ids.size
    weights, activations = upload(EXPERTS * rows * row), upload(pairs * column)
    dst = emulator().upload(np.full(pairs * rows, np.nan, np.float32))
    steps = (ids.shape[1] * column, column)
    arguments = (struct.pack("<3Q2Q", weights, activations, dst, steps[1], steps[0]) + struct.pack("<QQ9I4x", rows * row, 0, *ONE * 3) +
                 struct.pack("<5I4x", row, column, rows, 0, k))
    finish(kernel, arguments, ids, steps, tile, grid, block, side_by_side, (weights, activations), dst, pairs * rows)


def finish(kernel, arguments, ids, steps, tile, grid, block, side_by_side, allocations, dst, results):
    if tile:
        route, lists, count = routed(ids, tile, steps)
        run(kernel, (grid, count), block, arguments + bytes(64) + route, (*allocations, *lists), dst, results)
    else:
        layers = ids.size if side_by_side else 1
        choice, device = chosen(ids, ids.shape[1], layers)
        run(kernel, (grid * layers, 1, ids.size // layers), block, arguments + choice + NO_ROUTE, (*allocations, device), dst, results)


@pytest.mark.parametrize("type", ["q4_0", "q8_0", "q2_K", "q5_K", "q6_K", "iq2_s"])
def test_quantized(type):
    rng = new_rng()
    for k in (BLOCKS[type][1], 3 * BLOCKS[type][1]):
        for rows in (1, 33, 129):
            for tile in (16, 32, 48, 64, 128):
                for ids in cases(rng, tile):
                    quantized(f"mul_mat_{type}_j{tile}", type, ids, rows, k, tiles(rows, 128), 256 if tile == 128 else 128, tile)
            for wave_rows in (1, 4):
                for ids, side_by_side in itertools.product(cases(rng, 3), (False, True)):
                    quantized(f"mul_mat_vec_{type}_c1_r{wave_rows}", type, ids, rows, k, tiles(rows, 4 * wave_rows), 128, None, side_by_side)
            for ids, side_by_side in itertools.product(cases(rng, 3), (False, True)):
                quantizing(f"mul_mat_vec_pairs_quantize_{type}", type, ids, rows, k, tiles(rows, 16), side_by_side)
                for glu_rows in (rows, tiles(rows, 32) * 32):
                    gated(f"mul_mat_vec_glu_quantize_{type}", type, ids, glu_rows, k, tiles(glu_rows, 32), side_by_side)


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
                for ids, side_by_side in itertools.product(cases(rng, 3), (False, True)):
                    floats(f"mul_mat_vec_{types}_c1_l{lanes}_r1", *types.split("_"), ids, rows, k, tiles(rows, 128 // lanes), 128, None, side_by_side)
