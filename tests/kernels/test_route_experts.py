"""route_experts: pairs sorted by expert, and the tiles they are cut into, against numpy; every operand in an allocation of exactly its size."""
import struct

import numpy as np
import pytest

from support.hip import divisor, emulator
from support.ops import new_rng
from support.shipped import shipped_kernels

EMPTY = 0


def route(ids, experts, tile, sources):
    """(sorted pairs [[source, pair]], tiles [[expert, first, count]]) from the device."""
    hip = emulator()
    tokens, used = ids.shape
    count = tokens * used // tile + experts
    device_ids = hip.upload(np.ascontiguousarray(ids))
    tiles, columns = (hip.upload(np.full(size, 0xFF, np.uint8)) for size in (count * 16, tokens * used * 8))
    arguments = struct.pack("<3Q9I4x2QI3I2I", device_ids, 4, used * 4, *divisor(used), *divisor(sources), *divisor(1), tiles, columns, tokens * used,
                            *divisor(tile), 1000, 10)
    hip.launch(hip.kernel(shipped_kernels()["route_experts"], "route_experts"), experts, 256, arguments)
    hip.synchronize()
    made = hip.download(columns, tokens * used * 2, np.uint32).reshape(-1, 2), hip.download(tiles, count * 4, np.uint32).reshape(-1, 4)[:, :3]
    for allocation in (device_ids, tiles, columns):
        hip.free(allocation)
    return made


def check(ids, experts, tile, sources):
    columns, tiles = route(ids, experts, tile, sources)
    flat, used = ids.reshape(-1), ids.shape[1]
    order = np.argsort(flat, kind="stable")
    np.testing.assert_array_equal(columns[:, 1], order)
    np.testing.assert_array_equal(columns[:, 0], order // used * 1000 + order % used % sources * 10)
    held = tiles[tiles[:, 2] != EMPTY]
    assert np.all(tiles[:, 2] <= tile)
    seen = [pair for expert, first, count in held for pair in range(first, first + count)]
    assert seen == list(range(flat.size))          # every pair in one tile, in order
    for expert, first, count in held:
        assert np.all(flat[order[first:first + count]] == expert)
    counts = np.bincount(flat, minlength=experts)
    assert len(held) == np.sum(-(-counts // tile))   # no more tiles than the rows need


@pytest.mark.parametrize("tile", [16, 32, 48, 64, 128])
def test_random_routes(tile):
    rng = new_rng()
    for experts, used, tokens in ((4, 2, 1), (8, 8, 33), (256, 8, 70), (128, 4, 7), (1, 1, 300), (1024, 10, 30), (5, 3, 900)):
        ids = np.stack([rng.permutation(experts)[:used] for _ in range(tokens)]).astype(np.int32)
        check(ids, experts, tile, used)
        check(ids, experts, tile, 1)


def test_uneven_routes():
    rng = new_rng()
    for tile in (16, 128):
        for tokens in (1, 31, 32, 33, 255, 256, 257, 1025):
            check(np.full((tokens, 1), 3, np.int32), 7, tile, 1)                     # all on one expert, the others empty
            check(np.full((tokens, 2), 6, np.int32), 7, tile, 2)                     # the last one, twice a token
            check(np.minimum(rng.geometric(0.5, (tokens, 4)) - 1, 15).astype(np.int32), 16, tile, 2)


def test_ids_that_name_no_expert_are_left_out():
    """Nothing is written for them, and nothing out of bounds."""
    ids = np.array([[0, -1], [9, 1], [2**31 - 1, 1]], np.int32)
    columns, tiles = route(ids, 3, 16, 2)
    np.testing.assert_array_equal(columns[:3, 1], [0, 3, 5])
    assert np.all(columns[3:] == 0xFFFFFFFF)
    np.testing.assert_array_equal(tiles, [[0, 0, 1], [1, 1, 2], [2, 3, 0]])
