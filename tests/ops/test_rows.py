"""GET_ROWS and SET_ROWS: exact against numpy, quantisation against ggml's reference."""
import numpy as np
import pytest

from support.ggml import TYPES, lib
from support.ops import (QUANTIZED_TYPES, WRITTEN_TYPES, Graph, Quantized, block_elements, new_rng, quantize_reference, random_blocks,
                         refusal_of, run_op)
from support.values import run_twice, typed, uniform


@pytest.mark.parametrize("type", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("row", [1, 7, 17, 33, 256, 300, 1025])
def test_get(row, type):
    rng = new_rng()
    table, values = uniform(rng, (11, row), type)
    index = rng.integers(0, 11, 5).astype(np.int32)
    out = run_twice(lambda g, t, i: g.get_rows(t, i), table, index)
    np.testing.assert_array_equal(out.reshape(5, row), values[index].astype(np.float32))


@pytest.mark.parametrize("type", QUANTIZED_TYPES)
def test_get_quantized(type):
    """Blocks of random bytes: every bit pattern of quants and small scales."""
    rng = new_rng()
    for blocks in (1, 3, 18):
        table = random_blocks(rng, (9, blocks * block_elements(type)), type)
        index = rng.integers(0, 9, 4).astype(np.int32)
        np.testing.assert_array_equal(run_twice(lambda g, t, i: g.get_rows(t, i), table, index), table.values[index])


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
    return quantize_reference(values, type)


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize("type, source_type", [(type, source) for type in ("f32", "f16", "bf16") for source in (np.float32, np.float16)]
                         + [(type, np.float32) for type in WRITTEN_TYPES])
def test_set(type, source_type, index_type):
    rng = new_rng()
    quantized = type in WRITTEN_TYPES
    for row in ([block_elements(type) * blocks for blocks in (1, 2, 5, 18)] if quantized else (1, 7, 31, 33, 256, 1025)):
        old = rng.standard_normal((13, row)).astype(np.float32)
        source = (10 * rng.standard_normal((4, row))).astype(source_type)
        index = rng.permutation(13)[:4].astype(index_type)
        if quantized or type == "bf16":
            cache = Quantized(old, type, raw_of(old, type))
        else:
            cache = old.astype({"f32": np.float32, "f16": np.float16}[type])
        wanted = raw_of(old, type).reshape(13, -1).copy()
        wanted[index] = raw_of(source.astype(np.float32), type).reshape(4, -1)
        np.testing.assert_array_equal(set_rows(cache, type, source, index), wanted.ravel())


def awkward_rows(rng, row):
    """Values at which quantizers differ in how they round or search."""
    rows = np.zeros((18, row), np.float32)
    ramp = np.arange(row, dtype=np.float32)
    rows[1, 5] = -3.0                                        # all zero but one
    rows[2] = ramp % 32 - 15.5                               # ties
    rows[2, ::32] = 127.0
    rows[3] = 1e-8 * ramp                                    # scales that a half rounds to zero
    rows[4] = 127 * 65504.0 * np.linspace(-1, 1, row)        # the largest scale of a half, for q8_0
    rows[5] = np.float32(1e-35)
    rows[6] = 2.5                                            # all the same
    rows[7] = -2.5
    rows[8] = rng.choice([-1.0, 1.0], row)                   # equal magnitudes: the first decides
    rows[9] = rng.choice([-6.0, -3.5, 0.25, 1.75, 2.5, 5.0, 6.0], row)
    rows[10] = rng.uniform(0, 1, row)                        # one sign
    rows[11] = rng.uniform(-1, 0, row)
    rows[12] = rng.standard_normal(row) * 10.0 ** rng.integers(-9, 9, row)
    rows[13] = rng.integers(-4, 5, row) / 4
    rows[14] = np.where(ramp % 64 < 32, 0, rng.standard_normal(row))   # sub-blocks of zeros
    rows[15] = np.repeat(np.float32(2) ** np.arange(-20, 20), -(-row // 40))[:row]
    rows[16] = np.nextafter(np.float32(2) ** rng.integers(-20, 20, row).astype(np.float32), np.float32(0))   # just below powers of two
    rows[17] = rng.standard_normal(row) ** 3
    return rows


@pytest.mark.parametrize("type", WRITTEN_TYPES)
def test_set_edges(type):
    rows = awkward_rows(new_rng(), 4 * max(block_elements(type), 64))
    if type == "mxfp4":   # its scale is a logarithm, rounded before its integer part is taken: maxima that are k units below a power of two
        powers = np.arange(1, 250, dtype=np.uint32)[:, None] << 23
        maxima = (powers - np.array([0, 1, 2, 3, 5, 6, 11, 12, 22, 23, 44, 45, 46], np.uint32)).view(np.float32)
        rows = np.zeros((18, 256 * 32), np.float32)
        for i, maximum in enumerate(maxima.T):
            rows[i].reshape(256, 32)[:len(maximum), :2] = maximum[:, None] * np.float32([1, 0.3])
    cache = Quantized(None, type, np.zeros((18, lib.ggml_row_size(TYPES[type], rows.shape[1])), np.uint8))
    out = set_rows(cache, type, rows, np.arange(18, dtype=np.int64)).reshape(18, -1)
    wanted = quantize_reference(rows, type)
    if type == "iq4_nl":   # the reference leaves the nibbles of all-zero blocks as those of the block before
        for blocks in (out.reshape(-1, 18), wanted.reshape(-1, 18)):
            blocks[(blocks[:, 0] == 0) & (blocks[:, 1] & 0x7f == 0), 2:] = 0
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize("type", WRITTEN_TYPES)
def test_set_from_f16(type):
    """As from f32; q8_0 rounds ties to even there, as ggml's CPU code does."""
    rng = new_rng()
    source = rng.uniform(-3, 3, (24, 2 * block_elements(type))).astype(np.float16)
    cache = Quantized(None, type, np.zeros((24, lib.ggml_row_size(TYPES[type], source.shape[1])), np.uint8))
    out = set_rows(cache, type, source, np.arange(24, dtype=np.int32)).reshape(24, -1)
    wanted = quantize_reference(source.astype(np.float32), type)
    if type == "q8_0":
        blocks = source.astype(np.float32).reshape(24, -1, 32)
        scaled = blocks * (np.float32(127) / np.abs(blocks).max(-1, keepdims=True))
        wanted.reshape(24, -1, 34)[..., 2:] = np.rint(scaled).astype(np.int8).view(np.uint8)
    np.testing.assert_array_equal(out, wanted)


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
    assert "conversion" in refusal_of(lambda g, i: g.get_rows(g.tensor((256, 4), "i16"), i), index)
    assert refusal_of(lambda g, i: g.get_rows(g.tensor((256, 4), "q6_K"), i), index) is None
    for type in set(QUANTIZED_TYPES) - set(WRITTEN_TYPES):
        assert "conversion" in refusal_of(lambda g, i: g.set_rows(g.tensor((256, 4), type), g.tensor((256, 2)), i), index)
    assert refusal_of(lambda g, i: g.set_rows(g.tensor((256, 4), "q8_0"), g.tensor((256, 2), "f16"), i), index) is None
    assert "2^31" in refusal_of(lambda g, i: g.get_rows(g.tensor((1 << 30, 4), "f32"), i), index)
