"""MUL_MAT_ID against float64 references: every weight type, few pairs (mat-vec) and many (tiles of every width), any distribution of the
rows over the experts, strided ids. Activations are rounded as in test_mul_mat.py, so the bounds are those of float32 summation."""
import numpy as np
import pytest

from support.ggml import TYPES, plugin
from support.ops import Graph, Quantized, new_rng, nmse, random_blocks, refusal_of, run_op
from support.process import run_python
from support.products import ALL, BLOCKS, BOUND, FLOATS, assert_product, rounded, tile_widths, tiles_of, weights
from support.values import typed

QUICK = [*FLOATS, "q4_0", "q8_0", "q4_K", "q6_K", "iq2_s"]


def mat_vec(experts, pairs):
    """Whether the plan takes the mat-vec."""
    return pairs <= max(8, experts // 2)


def choose(rng, experts, used, tokens):
    """ids [tokens][used], different ones a token."""
    return np.stack([rng.permutation(experts)[:used] for _ in range(tokens)]).astype(np.int32)


def expected(w_values, x, ids, type):
    """(weights [tokens, used, m, k], activations [tokens, used, 1, k]) as the kernels use them."""
    experts = w_values.shape[0]
    used = ids.shape[1]
    values = rounded(np.ascontiguousarray(x), type, 1 if mat_vec(experts, ids.size) else 100)
    return w_values[ids], values[:, np.arange(used) % x.shape[1]][:, :, None, :]


def check(out, w_values, x, ids, type, bound=BOUND):
    w, a = expected(w_values, x, ids, type)
    assert_product(out.reshape(*ids.shape, 1, -1), w, a, bound)


def product(w, x, ids, runs=1):
    """The product; several runs must give the same bits."""
    with Graph() as g:
        out = g.mul_mat_id(g.input(w), g.input(x), g.input(ids))
        results = []
        for _ in range(runs):
            results.append(g.run(out).reshape(*ids.shape, -1))
            g.set(out, np.full(results[0].shape, np.nan, np.float32))
    for other in results[1:]:
        np.testing.assert_array_equal(other.view(np.uint32), results[0].view(np.uint32))
    return results[0]


def run(rng, type, experts, used, m, k, tokens, sources=None, ids=None, runs=1):
    """Makes weights and activations, runs, checks."""
    w, values = weights(rng, (experts, m, k), type)
    ids = choose(rng, experts, used, tokens) if ids is None else ids
    x = rng.standard_normal((tokens, sources or used, k), dtype=np.float32)
    check(product(w, x, ids, runs), values, x, ids, type)


@pytest.mark.parametrize("type", ALL)
def test_types(type):
    """Mat-vec and tiles, one source a token and one a slot."""
    rng = new_rng()
    k = 96 if type in FLOATS else 3 * BLOCKS[type]
    for tokens in (1, 3, 9):
        for sources in (1, 2):
            run(rng, type, 5, 2, 37, k, tokens, sources)


@pytest.mark.parametrize("type", [type if type in QUICK else pytest.param(type, marks=pytest.mark.full) for type in ALL])
def test_tile_widths(type):
    """Every tile width three times; the experts' last tiles are not full."""
    rng = new_rng()
    k = 64 if type in FLOATS else 256
    for columns in tile_widths(type):
        with tiles_of(columns):
            run(rng, type, 3, 1, 133, k, 3 * (columns + 5) + 1, runs=3)


@pytest.mark.parametrize("type", [type if type in QUICK else pytest.param(type, marks=pytest.mark.full) for type in ALL])
def test_same_bits_whatever_the_tile_width(type):
    """Experts with no, a few and many pairs."""
    rng = new_rng()
    w, _ = weights(rng, (4, 37, 96 if type in FLOATS else 3 * BLOCKS[type]), type)
    x = rng.standard_normal((90, 2, w.shape[-1]), dtype=np.float32)
    ids = np.stack([rng.permutation(3)[:2] for _ in range(90)]).astype(np.int32)
    ids[:17, 0] = 3
    usual = product(w, x, ids)
    for columns in (16, 32, 48, 64, 128):   # one that a type does not have leaves the usual one
        with tiles_of(columns):
            np.testing.assert_array_equal(product(w, x, ids).view(np.uint32), usual.view(np.uint32))


_PLANS = """
import numpy as np
from support.ops import random_blocks, run_op
from support.products import tile_widths, tiles_of, weights
rng = np.random.default_rng(5)
ids = np.stack([rng.permutation(3)[:2] for _ in range(30)]).astype(np.int32)
for type in ("q4_K", "f16"):
    w, _ = weights(rng, (3, 20, 256), type)
    for columns in tile_widths(type):
        with tiles_of(columns):
            run_op(lambda g, a, b, i: g.mul_mat_id(a, b, i), w, rng.standard_normal((30, 1, 256), dtype=np.float32), ids)
"""


def test_a_forced_width_is_taken():
    printed = run_python(_PLANS, STRATA_RUNTIME="emulator", STRATA_PRINT_PLAN="1").stderr
    for type, widths in (("q4_K", (16, 32, 48, 64, 128)), ("f16_f32", (16, 64))):
        for columns in widths:
            assert printed.count(f"mul_mat_{type}_j{columns} ") == 1, printed


def test_no_such_width():
    for columns in (1, 15, 24, 96, 256):
        assert plugin().strata_hip_force_tile_columns(columns) == 0
    assert plugin().strata_hip_tile_columns(TYPES["f32"], 1.0) == 64
    for number in (-1, TYPES["i32"], 1000):
        assert plugin().strata_hip_tile_columns(number, 1.0) == 0


@pytest.mark.parametrize("type", ["f32", "f16", "q8_0", "q4_K"])
def test_distributions(type):
    """Experts without rows, all rows on one expert, an expert twice a token, one row for most."""
    rng = new_rng()
    k = 64 if type in FLOATS else 256
    for tokens in (2, 30):
        run(rng, type, 6, 2, 20, k, tokens, ids=np.full((tokens, 2), 4, np.int32))
        run(rng, type, 6, 2, 20, k, tokens, 1, ids=np.full((tokens, 2), 5, np.int32))
        run(rng, type, 40, 3, 20, k, tokens, ids=np.minimum(rng.geometric(0.3, (tokens, 3)) - 1, 39).astype(np.int32))
    run(rng, type, 1, 1, 1, k, 32)                # n_used = 1, m = 1
    run(rng, type, 8, 1, 1, k, 32)
    run(rng, type, 8, 8, 17, k, 5)                # all experts
    run(rng, type, 6, 6, 9, k, 7, 3)              # slots share sources by turns


@pytest.mark.parametrize("type", ["f32", "bf16", "q5_1", "q6_K"])
def test_rows(type):
    rng = new_rng()
    for m in (1, 7, 15, 17, 33, 63, 65, 127, 129):
        for tokens in (2, 12):
            run(rng, type, 3, 2, m, 40 if type in FLOATS else 256, tokens)


@pytest.mark.parametrize("type", FLOATS)
def test_odd_lengths(type):
    rng = new_rng()
    for k in (1, 7, 63, 65, 257):
        for tokens in (2, 12):
            run(rng, type, 4, 2, 18, k, tokens)


@pytest.mark.parametrize("type", ["f32", "f16", "q4_0", "q5_K"])
def test_views(type):
    """Strided ids, also transposed ones; experts further apart than their rows; activations that are parts of longer rows."""
    rng = new_rng()
    k = 64 if type in FLOATS else 256
    experts, m, used = 6, 21, 2
    w, values = weights(rng, (experts, m + 4, k), type)
    for tokens in (1, 3, 40):
        x = rng.standard_normal((tokens + 1, 3, 2 * k), dtype=np.float32)
        ids = choose(rng, experts, 5, tokens)
        columns = np.ascontiguousarray(ids[:, 1:1 + used].T)

        def build(g, a, b, i, c):
            part = g.view_3d(a, k, m, experts, a.nb[1], a.nb[2], a.nb[1])
            activations = g.view_3d(b, k, used, tokens, b.nb[1], b.nb[2], b.nb[1] + 4 * (k if type in FLOATS else 32))
            return (g.mul_mat_id(part, activations, g.view_2d(i, used, tokens, i.nb[1], 4)), g.mul_mat_id(part, activations, g.transpose(c)))

        first = k if type in FLOATS else 32
        for out in run_op(build, w, x, ids, columns):
            check(out, values[:, 1:1 + m], x[:tokens, 1:, first:first + k], ids[:, 1:1 + used], type)


def test_f16_activations():
    rng = new_rng()
    w, values = weights(rng, (4, 30, 70), "f16")
    for tokens in (2, 20):
        ids = choose(rng, 4, 2, tokens)
        x, x_values = typed(rng.standard_normal((tokens, 2, 70), dtype=np.float32), "f16")
        check(product(w, x, ids), values, x_values.astype(np.float32), ids, "f32")


@pytest.mark.parametrize("type", QUICK)
def test_same_bits_as_mul_mat(type):
    """Each token alone gives the bits of the dense product with the expert's weights, and so do all together."""
    rng = new_rng()
    k = 100 if type in FLOATS else 512
    w, _ = weights(rng, (3, 50, k), type)
    x = rng.standard_normal((70, 1, k), dtype=np.float32)
    ids = rng.integers(0, 3, (70, 1)).astype(np.int32)

    def dense(g, a, b):
        return tuple(g.mul_mat(g.view_2d(a, k, 50, a.nb[1], e * a.nb[2]), b) for e in range(3))

    for count in (5, 70):   # mat-vec, tiles
        whole = run_op(dense, w, x[:count, 0])
        out = product(w, x[:count], ids[:count])[:, 0]
        for t in range(count):
            np.testing.assert_array_equal(out[t].view(np.uint32), whole[ids[t, 0]][t].view(np.uint32))


class Blocks:
    """Many experts of random blocks, of which only those asked for are decoded."""

    def __init__(self, rng, experts, m, k, type):
        self.type = type
        few = random_blocks(rng, (8, m, k), type) if type not in FLOATS else None
        # Experts differ in the order of their rows, which is as good as different blocks and faster to make.
        order = np.stack([rng.permutation(8 * m)[:m] for _ in range(experts)])
        self.raw = few.raw.reshape(8 * m, -1)[order]
        self.rows, self.order = few.values.reshape(8 * m, k), order
        self.input = Quantized.__new__(Quantized)
        self.input.type, self.input.raw, self.input.values = type, self.raw, np.broadcast_to(np.float32(0), (experts, m, k))

    def values(self, expert):
        return self.rows[self.order[expert]].astype(np.float64)


def three_runs(rng, type, experts, used, m, k, tokens):
    """The same bits three times; NMSE against float64 with unrounded activations."""
    blocks = Blocks(rng, experts, m, k, type)
    x = rng.standard_normal((tokens, used, k), dtype=np.float32)
    ids = choose(rng, experts, used, tokens)
    result = product(blocks.input, x, ids, runs=3)
    pairs = [(int(p) // used, int(p) % used) for p in rng.choice(tokens * used, min(60, tokens * used), replace=False)]
    wanted = np.stack([blocks.values(ids[t, s]) @ x[t, s].astype(np.float64) for t, s in pairs])
    assert nmse(np.stack([result[t, s] for t, s in pairs]), wanted) < 5e-4


@pytest.mark.parametrize("tokens", [1, 16, 32, pytest.param(512, marks=pytest.mark.full)])
@pytest.mark.parametrize("type", ["q4_0", "q4_K", "iq2_s"])
def test_256_experts(type, tokens):
    three_runs(new_rng(), type, 256, 8, *((512, 2048) if tokens == 512 else (128, 512)), tokens)


@pytest.mark.full
@pytest.mark.parametrize("type", list(BLOCKS))
def test_256_experts_of_every_type(type):
    for tokens in (1, 16, 32, 512):
        three_runs(new_rng(), type, 256, 8, 512, 2048, tokens)


@pytest.mark.parametrize("type", ["iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs"])
def test_eight_experts_of_iq_types(type):
    rng = new_rng()
    for tokens in (1, 2, 9):
        three_runs(rng, type, 8, 8, 16, 512, tokens)


@pytest.mark.parametrize("type", ["q8_0", "q4_K"])
def test_zero_rows(type):
    """All-zero activations, some or all: zeros, no NaN."""
    rng = new_rng()
    w, values = weights(rng, (4, 12, 256), type)
    for tokens in (2, 20):
        x = rng.standard_normal((tokens, 2, 256), dtype=np.float32)
        x[::2] = 0
        ids = choose(rng, 4, 2, tokens)
        out = product(w, x, ids)
        check(out, values, x, ids, type)
        assert not np.any(out[::2])


_SWITCH = """
import numpy as np
from support.ops import random_blocks, run_op
rng = np.random.default_rng(5)
w = random_blocks(rng, (5, 40, 512), "q4_K")
x = rng.standard_normal((30, 2, 512), dtype=np.float32)
ids = np.stack([rng.permutation(5)[:2] for _ in range(30)]).astype(np.int32)
for tokens in (30, 1):
    print(run_op(lambda g, a, b, i: g.mul_mat_id(a, b, i), w, x[:tokens], ids[:tokens]).tobytes().hex())
"""


def test_switches():
    """STRATA_DISABLE=mul_mat_vec sends one token through tiles, STRATA_DISABLE=wmma thirty through the mat-vec: each agrees with the other."""
    def rows(disabled):
        lines = run_python(_SWITCH, STRATA_RUNTIME="emulator", STRATA_DISABLE=disabled).stdout.split()
        return np.concatenate([np.frombuffer(bytes.fromhex(line), np.float32).reshape(-1, 40) for line in lines])

    usual, tiles, mat_vec_only = rows(""), rows("mul_mat_vec"), rows("wmma")
    np.testing.assert_array_equal(tiles[:60], usual[:60])
    np.testing.assert_array_equal(tiles[60:], usual[:2])             # one token or thirty: the same tiles' bits
    np.testing.assert_array_equal(mat_vec_only[60:], usual[60:])
    np.testing.assert_array_equal(mat_vec_only[:2], usual[60:])
    assert nmse(mat_vec_only[:60], tiles[:60]) < 1e-10


def test_refusals():
    x, ids = np.ones((3, 2, 256), np.float32), np.zeros((3, 2), np.int32)

    def reason(type, activations=x):
        return refusal_of(lambda g, b, i: g.mul_mat_id(g.tensor((256, 4, 5), type), b, i), activations, ids)

    for type in ALL:
        assert reason(type) is None
    assert "activations" in reason("q8_0", x.astype(np.float16))
    with Graph() as g:
        wide = g.mul_mat_id(g.tensor((1 << 20, 1, 4)), g.tensor((1 << 20, 2, 600)), g.tensor((2, 600), "i32"))
        assert "4 GiB" in g.refusal(wide)
        assert "pairs" in g.refusal(g.mul_mat_id(g.tensor((32, 1, 4)), g.tensor((32, 1, 70000)), g.tensor((2, 70000), "i32")))
        # 2^21 pairs in tiles of 64, and a tile more an expert: 32,768 and as many as fill a grid, or one more.
        for experts, refused in ((32767, None), (32768, "experts"), (30000, None)):
            many = g.mul_mat_id(g.tensor((32, 1, experts), "f16"), g.tensor((32, 1, 32768)), g.tensor((64, 32768), "i32"))
            assert refused in g.refusal(many) if refused else g.refusal(many) is None
        many = g.mul_mat_id(g.tensor((32, 1, 30000), "q8_0"), g.tensor((32, 1, 32768)), g.tensor((64, 32768), "i32"))
        assert "tiles" in g.refusal(many)  # of 32 columns
