"""MUL_MAT against float64 references, for every weight type, at awkward shapes, strides and broadcasts.

Activations that meet quantized weights are rounded to q8_1 first, and those that meet f16 or bf16 weights in a tile to f16 or bf16. The
references do the same rounding in numpy, so that the bounds below are those of float32 summation alone and a wrong bit of a weight shows.
"""
import numpy as np
import pytest

from support.fusions import compute
from support.ggml import TYPES, counter, lib, plugin
from support.ops import Graph, Quantized, new_rng, nmse, random_blocks, refusal_of, run_op
from support.products import ALL, BLOCKS, BOUND, FLOATS, assert_product, q8_1, rounded, tile_widths, tiles_of, weights
from support.values import typed

# What differs between types is how a piece is decoded; tests of strides and batches take these, and all of them in a full run.
SOME = {*FLOATS, "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q4_K", "q5_K", "q6_K", "iq2_s"}
ALL_BUT_MOST_IN_FULL = [type if type in SOME else pytest.param(type, marks=pytest.mark.full) for type in ALL]


def check(rng, type, m, n, k):
    w, w_values = weights(rng, (m, k), type)
    x = rng.standard_normal((n, k), dtype=np.float32)
    out = run_op(lambda g, a, b: g.mul_mat(a, b), w, x).reshape(n, m)
    assert_product(out, w_values, rounded(x, type, n))
    if out.size >= 200:   # against unrounded activations, where there are enough results for a mean
        assert nmse(out, x.astype(np.float64) @ w_values.T) < 2e-4
    return w, x, out


def lengths(type):
    if type in FLOATS:
        return [1, 4, 7, 32, 65, 193, 577, 2051]
    if BLOCKS[type] == 32:
        return [32, 64, 288, 576, 640, 1120, 2880]
    return [BLOCKS[type] * blocks for blocks in ((1, 2, 3, 5, 9) if BLOCKS[type] == 256 else (1, 2, 3, 5, 11, 33))]


@pytest.mark.parametrize("type", ALL)
def test_columns(type):
    """Every number of columns that has a kernel of its own, and both sides of every tile's edge."""
    rng = new_rng()
    k = 96 if type in FLOATS else BLOCKS[type] * 3
    for n in (1, 2, 3, 4, 5, 6, 7, 8, 9):
        check(rng, type, 37, n, k)
    for width in tile_widths(type):
        with tiles_of(width):
            for n in (width - 1, width, width + 1):
                check(rng, type, 37, n, k)


@pytest.mark.parametrize("type, rows, columns, width", [
    ("q4_K", 512, 16, 16), ("q4_K", 512, 64, 16), ("q4_K", 512, 128, 32), ("q4_K", 512, 512, 128), ("q4_K", 2048, 64, 64), ("q4_K", 4096, 48, 48),
    ("q4_K", 4096, 512, 128), ("q8_0", 2**30, 2**20, 128), ("f16", 512, 64, 16), ("bf16", 4096, 512, 64), ("f32", 512, 64, 64)])
def test_width_of_dense_tiles(type, rows, columns, width):
    """Narrow tiles where wide ones would leave processors without any."""
    assert plugin().strata_hip_dense_tile_columns(TYPES[type], rows, columns) == width


@pytest.mark.parametrize("type", ALL)
def test_rows(type):
    rng = new_rng()
    k = 40 if type in FLOATS else BLOCKS[type]
    for m in (1, 7, 15, 17, 33, 63, 65, 127, 128, 129, 257):
        for n in (1, 4, 20):
            check(rng, type, m, n, k)


@pytest.mark.parametrize("type", ALL)
def test_lengths(type):
    rng = new_rng()
    for k in lengths(type):
        for n in (1, 3, 8, 19):
            check(rng, type, 133, n, k)   # rows for every wave of a tile


@pytest.mark.parametrize("type", ALL_BUT_MOST_IN_FULL)
def test_many_rows(type):
    """Enough rows that a wave takes four of them at one column; the last group is not full."""
    check(new_rng(), type, 4099, 1, 256)


@pytest.mark.parametrize("type", ALL_BUT_MOST_IN_FULL[len(FLOATS):])
def test_tiles_of_matrices(type):
    """Tiles of every width in many matrices, the last ones not full: the same bits, and those of the first 64 columns alone."""
    rng = new_rng()
    k = BLOCKS[type] * 2
    w, w_values = weights(rng, (45, 21, k), type)
    x = rng.standard_normal((45, 125, k), dtype=np.float32)
    out = run_op(lambda g, a, b: g.mul_mat(a, b), w, x)
    assert_product(out, w_values, q8_1(x))
    for width in tile_widths(type):
        with tiles_of(width):
            np.testing.assert_array_equal(run_op(lambda g, a, b: g.mul_mat(a, b), w, x).view(np.uint32), out.view(np.uint32))
    narrow = run_op(lambda g, a, b: g.mul_mat(a, b), w, np.ascontiguousarray(x[:, :64]))
    np.testing.assert_array_equal(narrow.view(np.uint32), np.ascontiguousarray(out[:, :64]).view(np.uint32))


@pytest.mark.parametrize("type", ALL_BUT_MOST_IN_FULL)
def test_same_bits_every_run_and_batch(type):
    """Two runs agree; so do 1 to 8 columns with each other, and all column tiles with each other. Sixteen columns of few rows are two times eight."""
    rng = new_rng()
    k = 577 if type in FLOATS else BLOCKS[type] * 5
    rows = 4099 if type in ("q8_0", "q4_K") else 70
    w, _ = weights(rng, (rows, k), type)
    x = rng.standard_normal((140, k), dtype=np.float32)

    def product(columns):
        return run_op(lambda g, a, b: g.mul_mat(a, b), w, x[:columns]).reshape(columns, -1)

    in_eights = type not in FLOATS and rows <= 512
    if in_eights:
        eights = [run_op(lambda g, a, b: g.mul_mat(a, b), w, x[first:first + 8]).reshape(8, -1) for first in (0, 8)]
        np.testing.assert_array_equal(product(16).view(np.uint32), np.concatenate(eights).view(np.uint32))
    for counts in ((8, 8, 1, 2, 3, 4, 5, 6, 7), (140, 140, 9, 15 if in_eights else 16, 17, 20, 33, 64, 65)):
        whole = product(counts[0])
        for columns in counts[1:]:
            np.testing.assert_array_equal(product(columns).view(np.uint32), whole[:columns].view(np.uint32))
    for width in tile_widths(type):
        with tiles_of(width):
            np.testing.assert_array_equal(product(140).view(np.uint32), whole.view(np.uint32))


@pytest.mark.parametrize("type", [type for type in ALL_BUT_MOST_IN_FULL if type not in FLOATS])
def test_quantizing_in_the_mat_vec(type):
    """One launch instead of two, and the same bits, whatever the columns; columns apart from each other as well."""
    rng = new_rng()
    block = BLOCKS[type]
    for columns, rows, k in ((1, 17, block), (1, 65, 17 * 256), (2, 70, 5 * block), (3, 33, 2048), (4, 1, 3 * 256), (5, 100, 256), (6, 31, 9 * 256),
                             (7, 64, 1024), (8, 40, 4096)):
        w, w_values = weights(rng, (rows, k), type)
        x = rng.standard_normal((columns, k + 32), dtype=np.float32) * (10.0 ** rng.integers(-9, 9, (columns, 1))).astype(np.float32)
        x[:, :32] = 0

        def build(g, a, b):
            return (g.mul_mat(a, g.view_2d(b, k, columns, (k + 32) * 4, 16)),)

        before = counter("launches")
        (got,), _ = compute(build, [w, x])
        assert counter("launches") - before == 1
        (wanted,), _ = compute(build, [w, x], fused=False)
        assert counter("launches") - before == 3 and got == wanted
        read = np.ascontiguousarray(x[:, 4:4 + k])
        assert_product(np.frombuffer(got, np.float32).reshape(columns, rows), w_values, q8_1(read))


@pytest.mark.parametrize("type", ALL_BUT_MOST_IN_FULL)
def test_broadcast(type):
    """Weight matrices shared by several activation matrices, in either dimension and in both."""
    rng = new_rng()
    k = 48 if type in FLOATS else 256
    for channels, samples, ratio2, ratio3 in ((1, 1, 3, 1), (1, 1, 2, 3), (2, 1, 4, 1), (3, 2, 1, 1), (3, 2, 2, 2), (1, 3, 5, 1),
                                              (2, 1, 1, 2)):
        for n in (1, 3, 20):
            w, w_values = weights(rng, (samples, channels, 19, k), type)
            x = rng.standard_normal((samples * ratio3, channels * ratio2, n, k), dtype=np.float32)
            out = run_op(lambda g, a, b: g.mul_mat(a, b), w, x)
            repeated = np.repeat(np.repeat(w_values, ratio2, 1), ratio3, 0)
            # Shared matrices become columns of one product, so more than n columns may go through a tile.
            for columns in {n, n * ratio2, n * ratio2 * ratio3}:
                try:
                    assert_product(out, repeated, rounded(x, type, columns))
                    break
                except AssertionError as error:
                    failure = error
            else:
                raise failure


@pytest.mark.parametrize("type", ALL_BUT_MOST_IN_FULL)
@pytest.mark.parametrize("order", [(0, 2, 1, 3), (0, 1, 3, 2), (0, 3, 2, 1)])
def test_permuted(type, order):
    """Both operands are permuted views: rows lie apart."""
    rng = new_rng()
    k, m, channels, samples = (52 if type in FLOATS else 256), 17, 2, 3
    inverse = [order.index(i) for i in range(4)]
    for n in (1, 4, 16):
        ne_w, ne_x = [k, m, channels, samples], [k, n, channels, samples]
        w, w_values = weights(rng, [ne_w[order[i]] for i in range(4)][::-1], type)
        x = rng.standard_normal([ne_x[order[i]] for i in range(4)][::-1], dtype=np.float32)
        out = run_op(lambda g, a, b: g.mul_mat(g.permute(a, *order), g.permute(b, *order)), w, x)

        def permuted(array):
            """The array as ggml_permute shows it: dimension i goes to place order[i], dimensions counted from the last axis."""
            return array.transpose([3 - inverse[3 - axis] for axis in range(4)])

        assert_product(out, permuted(w_values), rounded(permuted(x), type, n))


@pytest.mark.parametrize("type", ALL_BUT_MOST_IN_FULL)
def test_row_padding(type):
    """Views of the first k elements of longer rows, of both operands."""
    rng = new_rng()
    k, whole = (44, 131) if type in FLOATS else (256, 1024)
    for n in (1, 2, 7, 8, 33):
        w, w_values = weights(rng, (29, whole), type)
        x = rng.standard_normal((n, whole), dtype=np.float32)
        out = run_op(lambda g, a, b: g.mul_mat(g.view_2d(a, k, 29, a.nb[1], 0), g.view_2d(b, k, n, b.nb[1], 0)), w, x)
        assert_product(out, w_values[:, :k], rounded(x[:, :k], type, n))


@pytest.mark.parametrize("type", ["f32", "f16"])
def test_overlapping_operands(type):
    """Weights and activations are interleaved views of one tensor."""
    both, values = typed(new_rng().standard_normal((20, 96), dtype=np.float32), type)
    size = {"f32": 4, "f16": 2}[type]
    for n in (4, 20):
        out = run_op(lambda g, a: g.mul_mat(g.view_2d(a, 48, 20, a.nb[1], 0), g.view_2d(a, 48, n, a.nb[1], 48 * size)), both)
        assert_product(out, values[:, :48], values[:n, 48:])


def test_f16_activations():
    rng = new_rng()
    for m, n, k in ((1, 9, 65), (64, 32, 80), (33, 3, 588), (130, 70, 129), (5, 1, 2051)):
        w, w_values = weights(rng, (m, k), "f16")
        x, x_values = weights(rng, (n, k), "f16")
        assert_product(run_op(lambda g, a, b: g.mul_mat(a, b), w, x), w_values, x_values)


@pytest.mark.parametrize("type", ["f16", "q8_0"])
def test_attention_without_flash(type):
    """Key cache [d, cells, heads] as a permuted view of the first cells, grouped query heads, one and several tokens."""
    rng = new_rng()
    d, heads, cells, used, group = 64, 2, 96, 70, 3
    w, w_values = weights(rng, (cells, heads * d), type)
    for tokens in (1, 2, 5, 40):
        x = rng.standard_normal((tokens, heads * group, d), dtype=np.float32)

        def build(g, cache, query):
            keys = g.view_3d(cache, d, heads, used, lib.ggml_row_size(cache.type, d), cache.nb[1], 0)
            return g.mul_mat(g.permute(keys, 0, 2, 1, 3), g.permute(query, 0, 2, 1, 3))

        keys = np.repeat(w_values[:used].reshape(used, heads, d).transpose(1, 0, 2), group, 0)
        queries = x.transpose(1, 0, 2)
        out = run_op(build, w, x)
        errors = []
        for columns in (tokens, tokens * group):   # one token: the heads of a group are the columns
            try:
                assert_product(out, keys, rounded(np.ascontiguousarray(queries), type, columns))
                break
            except AssertionError as error:
                errors.append(error)
        else:
            raise errors[0]


@pytest.mark.parametrize("type", list(BLOCKS))
def test_zeros(type):
    """All-zero activations and weights: zeros, no NaN."""
    w = Quantized(None, type, np.zeros((9, lib.ggml_row_size(TYPES[type], 512)), np.uint8))
    for n in (1, 20):
        x = np.zeros((n, 512), np.float32)
        assert not np.any(run_op(lambda g, a, b: g.mul_mat(a, b), w, x))


@pytest.mark.parametrize("type", list(BLOCKS))
def test_extreme_bits(type):
    """Blocks of all-ones bytes and of random bytes: every bit of scales, mins and quants counts."""
    rng = new_rng()
    parts = [random_blocks(rng, (rows, 4 * BLOCKS[type]), type, low, high) for rows, low, high in ((4, 255, 256), (4, 0, 1), (16, 0, 256))]
    w = Quantized(None, type, np.concatenate([part.raw for part in parts]))
    for n in (1, 8, 40):
        x = rng.standard_normal((n, w.values.shape[1]), dtype=np.float32) * 10
        out = run_op(lambda g, a, b: g.mul_mat(a, b), w, x)
        assert_product(out, w.values.astype(np.float64), q8_1(x), 4 * BOUND)


@pytest.mark.parametrize("n", [1, 20])
def test_ties_are_rounded_away_from_zero(n):
    """Activations half-way between two bytes: with a largest magnitude of 127 the bytes are the rounded values themselves."""
    rng = new_rng()
    w, w_values = weights(rng, (40, 256), "q8_0")
    x = (rng.integers(-126, 126, (n, 8, 32)) + 0.5).astype(np.float32)
    x[:, :, 7] = 127
    away = np.sign(x) * np.floor(np.abs(x) + 0.5)
    out = run_op(lambda g, a, b: g.mul_mat(a, b), w, x.reshape(n, 256))
    assert_product(out, w_values, away.reshape(n, 256).astype(np.float64))


def test_large_and_small_activations():
    """Each 32 activations have a scale of their own: a large block does not drown a small one."""
    rng = new_rng()
    w, w_values = weights(rng, (40, 256), "q8_0")
    x = rng.standard_normal((20, 8, 32), dtype=np.float32) * (10.0 ** rng.integers(-18, 18, (20, 8, 1))).astype(np.float32)
    x = x.reshape(20, 256).astype(np.float32)
    for n in (1, 20):
        assert_product(run_op(lambda g, a, b: g.mul_mat(a, b), w, x[:n]), w_values, q8_1(x[:n]))


def test_infinities_show():
    """An infinite or NaN weight spoils its own row alone."""
    rng = new_rng()
    for type in ("f32", "f16", "bf16"):
        values = rng.standard_normal((20, 64), dtype=np.float32)
        values[3, 5], values[7, 60] = np.nan, np.inf
        w, _ = typed(values, type)
        for n in (2, 24):
            out = run_op(lambda g, a, b: g.mul_mat(a, b), w, rng.uniform(0.5, 1, (n, 64)).astype(np.float32))
            assert np.all(np.isnan(out[:, 3])) and np.all(np.isposinf(out[:, 7]))
            assert np.all(np.isfinite(np.delete(out, (3, 7), axis=1)))


@pytest.mark.parametrize("columns", [1, 16, pytest.param(32, marks=pytest.mark.full), pytest.param(512, marks=pytest.mark.full)])
def test_large_product_three_times(columns):
    rng = new_rng()
    w = random_blocks(rng, (8192, 2048), "q8_0")
    x = rng.standard_normal((columns, 2048), dtype=np.float32)
    results = [run_op(lambda g, a, b: g.mul_mat(a, b), w, x).reshape(columns, -1) for _ in range(3)]
    for other in results[1:]:
        np.testing.assert_array_equal(other.view(np.uint32), results[0].view(np.uint32))
    some = rng.choice(8192, 300, replace=False)
    assert_product(results[0][:, some], w.values[some].astype(np.float64), q8_1(x))


def test_many_matrices():
    rng = new_rng()
    w, w_values = weights(rng, (600, 5, 32), "q4_0")
    x = rng.standard_normal((600, 2, 32), dtype=np.float32)
    assert_product(run_op(lambda g, a, b: g.mul_mat(a, b), w, x), w_values, q8_1(x))


@pytest.mark.parametrize("w_type, x_type", [("f32", "f16"), ("f32", "bf16"), ("f16", "bf16"), ("bf16", "f16"), ("q8_0", "f16"), ("q4_K", "bf16")])
def test_other_activations_are_widened(w_type, x_type):
    """The same bits as with f32 activations of the same values; any strides."""
    rng = new_rng()
    w = weights(rng, (33, 256), w_type)[0]
    for n in (1, 7, 33):
        x, x_values = weights(rng, (2, n, 256), x_type)
        wanted = run_op(lambda g, a, b: g.mul_mat(a, b), w, x_values.astype(np.float32))
        np.testing.assert_array_equal(run_op(lambda g, a, b: g.mul_mat(a, b), w, x), wanted)
    if x_type == "f16":
        transposed = np.ascontiguousarray(x.swapaxes(1, 2))
        np.testing.assert_array_equal(run_op(lambda g, a, b: g.mul_mat(a, g.transpose(b)), w, transposed), wanted)


def test_hadamard_hint():
    """The hint changes nothing: the matrix is multiplied as it is."""
    x = new_rng().standard_normal((6, 64), dtype=np.float32)
    i = np.arange(64)
    matrix = (1 - 2 * (np.vectorize(lambda bits: bin(bits).count("1"))(i[:, None] & i) % 2)).astype(np.float32) / 8

    def build(g, a, b):
        out = g.mul_mat(a, b)
        lib.ggml_mul_mat_set_hint(out, lib.GGML_HINT_SRC0_IS_HADAMARD)
        return out

    assert_product(run_op(build, matrix, x), matrix.astype(np.float64), x.astype(np.float64))


def test_refusals():
    x = np.ones((3, 256), np.float32)

    def reason(type, activations=x):
        return refusal_of(lambda g, b: g.mul_mat(g.tensor((256, 4), type), b), activations)

    for type in ALL:
        assert reason(type) is None
    assert reason("q8_1") == "weight type has no kernel"
    assert "activations" in reason("f32", x.astype(np.int32))
    for type in ("f32", "f16", "bf16", "q8_0"):
        assert reason(type, x.astype(np.float16)) is None and reason(type, Quantized(x, "bf16")) is None

    def transposed_activations():
        with Graph() as g:
            return g.refusal(g.mul_mat(g.tensor((8, 4)), g.transpose(g.tensor((3, 8)))))
    assert transposed_activations() == "rows of an operand are not contiguous"
