"""GET_ROWS and SET_ROWS: exact against numpy, quantisation against ggml's reference."""
import numpy as np
import pytest

from support.ops import Graph, Quantized, new_rng, quantize, refusal_of, run_op
from support.values import run_twice, typed, uniform

BLOCKS_OF_32 = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0"]
BLOCKS_OF_256 = ["q4_K", "q5_K", "q6_K"]


@pytest.mark.parametrize("type", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("row", [1, 7, 17, 33, 256, 300, 1025])
def test_get(row, type):
    rng = new_rng()
    table, values = uniform(rng, (11, row), type)
    index = rng.integers(0, 11, 5).astype(np.int32)
    out = run_twice(lambda g, t, i: g.get_rows(t, i), table, index)
    np.testing.assert_array_equal(out.reshape(5, row), values[index].astype(np.float32))


@pytest.mark.parametrize("type", BLOCKS_OF_32 + BLOCKS_OF_256)
def test_get_quantized(type):
    rng = new_rng()
    for row in ((32, 96, 576) if type in BLOCKS_OF_32 else (256, 768)):
        table = Quantized(rng.standard_normal((9, row)), type)
        index = rng.integers(0, 9, 4).astype(np.int32)
        np.testing.assert_array_equal(run_twice(lambda g, t, i: g.get_rows(t, i), table, index), table.values[index])


def test_get_any_block():
    """Blocks of random bytes: every bit pattern of scales and quants, but finite scales."""
    rng = new_rng()
    for type in BLOCKS_OF_32 + BLOCKS_OF_256:
        template = Quantized(rng.standard_normal((6, 512)), type)
        raw = rng.integers(0, 256, template.raw.shape).astype(np.uint8)
        size = template.raw.shape[-1] * (32 if type in BLOCKS_OF_32 else 256) // 512
        blocks = raw.reshape(6, -1, size)
        halves = {"q4_1": (0, 2), "q5_1": (0, 2), "q4_K": (0, 2), "q5_K": (0, 2), "q6_K": (208,)}.get(type, (0,))
        for at in halves:
            blocks[..., at + 1] &= 0xBB  # no infinity or NaN
        table = Quantized(template.values, type, raw)
        index = np.arange(6, dtype=np.int32)
        np.testing.assert_array_equal(run_op(lambda g, t, i: g.get_rows(t, i), table, index), table.values)


def test_get_i32():
    rng = new_rng()
    table = rng.integers(-2**31, 2**31, (6, 40)).astype(np.int32)
    index = np.array([5, 0, 3], np.int32)
    np.testing.assert_array_equal(run_op(lambda g, t, i: g.get_rows(t, i), table, index), table[index])


@pytest.mark.parametrize("row", [1, 9, 70])
def test_get_batches_and_views(row):
    rng = new_rng()
    table = rng.standard_normal((2, 3, 8, row + 5), dtype=np.float32)
    index = rng.integers(0, 6, (2, 3, 7)).astype(np.int32)

    def build(g, t, i):
        part = g.view_4d(t, row, 6, 3, 2, t.nb[1], t.nb[2], t.nb[3], 2 * t.nb[1] + 8)
        return g.get_rows(part, g.view_3d(i, 4, 3, 2, i.nb[1], i.nb[2], 4))

    out = run_op(build, table, index).reshape(2, 3, 4, row)
    for a in range(2):
        for b in range(3):
            np.testing.assert_array_equal(out[a, b], table[a, b, 2:, 2:row + 2][index[a, b, 1:5]])


def set_rows(cache, cache_type, source, index):
    """Runs SET_ROWS into a cache tensor; returns its raw bytes."""
    with Graph() as g:
        c, s, i = g.input(cache), g.input(source), g.input(index)
        g.run(g.set_rows(c, s, i))
        return g.raw(c)


def raw_of(values, type):
    """The bytes of values in a type, rows of f32 rounded or quantized."""
    if type in ("f32", "f16", "bf16"):
        made = typed(values, type)[0]
        return np.ascontiguousarray(made.raw if isinstance(made, Quantized) else made).view(np.uint8)
    return quantize(values, type)


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize("type, source_type", [(type, source) for type in ("f32", "f16", "bf16") for source in (np.float32, np.float16)]
                         + [("q8_0", np.float32)])
def test_set(type, source_type, index_type):
    rng = new_rng()
    for row in ((32, 64, 576, 1024) if type == "q8_0" else (1, 7, 31, 33, 256, 1025)):
        old = rng.standard_normal((13, row)).astype(np.float32)
        source = (10 * rng.standard_normal((4, row))).astype(source_type)
        index = rng.permutation(13)[:4].astype(index_type)
        cache = Quantized(old, type) if type in ("bf16", "q8_0") else old.astype({"f32": np.float32, "f16": np.float16}[type])
        wanted = raw_of(old, type).reshape(13, -1).copy()
        wanted[index] = raw_of(source.astype(np.float32), type).reshape(4, -1)
        np.testing.assert_array_equal(set_rows(cache, type, source, index), wanted.ravel())


def test_set_q8_0_edges():
    """Blocks of zeros, one value, ties, scales that a half rounds to zero, and the largest scale of a half."""
    rows = np.zeros((6, 32), np.float32)
    rows[1, 5] = -3.0
    rows[2] = np.arange(32) - 15.5
    rows[2, 0] = 127.0
    rows[3] = 1e-8 * np.arange(32)
    rows[4] = 127 * 65504.0 * np.linspace(-1, 1, 32)
    rows[5] = np.float32(1e-35)
    cache = Quantized(np.ones((6, 32), np.float32), "q8_0")
    index = np.arange(6, dtype=np.int64)
    np.testing.assert_array_equal(set_rows(cache, "q8_0", rows, index), quantize(rows, "q8_0").ravel())


def test_set_rows_of_one_element():
    """The transposed V cache: as many rows as a token has channels, one element each."""
    rng = new_rng()
    cache = rng.standard_normal((3 * 500, 1)).astype(np.float16)
    source = rng.standard_normal((700, 1), dtype=np.float32)
    index = rng.permutation(1500)[:700].astype(np.int64)
    wanted = cache.copy()
    wanted[index] = source.astype(np.float16)
    np.testing.assert_array_equal(set_rows(cache, "f16", source, index).view(np.float16), wanted.ravel())


@pytest.mark.parametrize("row", [3, 64])
def test_set_repeats_the_index(row):
    rng = new_rng()
    cache = rng.standard_normal((6, 4, 9, row)).astype(np.float16)
    source = rng.standard_normal((6, 4, 5, row), dtype=np.float32)
    index = np.stack([[rng.permutation(9)[:5] for _ in range(2)] for _ in range(3)]).astype(np.int64)
    wanted = cache.copy()
    for a in range(6):
        for b in range(4):
            wanted[a, b, index[a % 3, b % 2]] = source[a, b].astype(np.float16)
    np.testing.assert_array_equal(set_rows(cache, "f16", source, index).view(np.float16), wanted.ravel())


def test_set_through_views():
    """Some rows of the source and of the index, into a part of a cache: the rest of the cache stays."""
    rng = new_rng()
    cache = rng.standard_normal((2, 10, 48)).astype(np.float16)
    source = rng.standard_normal((2, 6, 40), dtype=np.float32)
    index = np.stack([rng.permutation(8) for _ in range(2)]).astype(np.int64)
    with Graph() as g:
        c, s, i = g.input(cache), g.input(source), g.input(index)
        part = g.view_3d(c, 40, 8, 2, c.nb[1], c.nb[2], c.nb[1] + 4)
        g.run(g.set_rows(part, g.view_3d(s, 40, 3, 2, s.nb[1], s.nb[2], s.nb[1]), g.view_2d(i, 3, 2, i.nb[1], 16)))
        wanted = cache.copy()
        for b in range(2):
            wanted[b, 1 + index[b, 2:5], 2:42] = source[b, 1:4].astype(np.float16)
        np.testing.assert_array_equal(g.get(c), wanted)


def test_refusals():
    index = np.zeros(2, np.int32)
    assert "conversion" in refusal_of(lambda g, i: g.get_rows(g.tensor((256, 4), "q2_K"), i), index)
    assert refusal_of(lambda g, i: g.get_rows(g.tensor((256, 4), "q6_K"), i), index) is None
    assert "conversion" in refusal_of(lambda g, i: g.set_rows(g.tensor((256, 4), "q4_0"), g.tensor((256, 2)), i), index)
    assert "ambiguous" in refusal_of(lambda g, i: g.set_rows(g.tensor((256, 4), "q8_0"), g.tensor((256, 2), "f16"), i), index)
    assert "2^31" in refusal_of(lambda g, i: g.get_rows(g.tensor((1 << 30, 4), "f32"), i), index)
