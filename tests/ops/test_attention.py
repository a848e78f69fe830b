"""FLASH_ATTN_EXT against a float64 reference: all kernels (tiles, vector, any), types of the cache, split keys, masks, views of a larger cache.

Queries, once scaled, keys and values are rounded to f16. The reference does the same, so that what is left is the rounding of the weights."""
from dataclasses import dataclass

import numpy as np
import pytest
from support.alibi import alibi_slopes
from support.ggml import ffi, lib
from support.ops import Graph, Quantized, new_rng


@dataclass
class Case:
    d: int
    n_q: int
    n_kv: int
    n_kv_heads: int = 1
    gqa: int = 1
    batches: int = 1
    mask: str = "causal"  # none, noise, causal, window, holes, empty_rows
    mask_heads: int = 1
    softcap: float = 0.0
    max_bias: float = 0.0
    sinks: bool = False
    scale: float | None = None
    spread: float = 1.0  # standard deviation of Q
    dv: int = 0  # head size of V, if not d
    k_type: str = "f16"
    v_type: str = "f16"

    def __str__(self):
        return "-".join(f"{name}{value}" for name, value in vars(self).items() if value != type(self).__dataclass_fields__[name].default)


def make_mask(case: Case, rng) -> np.ndarray | None:
    """(batches, mask_heads, n_q, n_kv) f16"""
    shape = (case.batches, case.mask_heads, case.n_q, case.n_kv)
    noise = rng.uniform(-1, 1, shape)
    position = np.arange(case.n_kv)[None, :]
    # the last query sees the last key
    query = np.arange(case.n_q)[:, None] + case.n_kv - case.n_q
    if case.mask == "none":
        return None
    if case.mask == "causal":
        noise = np.where(position > query, -np.inf, 0 * noise)
    elif case.mask == "window":
        noise = np.where((position > query) | (position <= query - 24), -np.inf, noise)
    elif case.mask == "holes":
        noise = np.where(rng.random(shape) < 0.9, -np.inf, noise)
        noise[..., : case.n_kv // 2 // 64 * 64] = -np.inf  # whole blocks
    elif case.mask == "empty_rows":
        noise[:, :, rng.random(case.n_q) < 0.5] = -np.inf
        noise[:, :, 0] = -np.inf
    return noise.astype(np.float16)


def reference(case: Case, q, k, v, mask, sinks, scale) -> np.ndarray:
    """(batches, n_q, heads, d) float64, from (batches, tokens, heads, d) each; and the sums of the squares of what is added up to it."""
    factor = np.float32(2 * scale / case.softcap if case.softcap else scale) * np.float32(np.log2(np.e))
    q = (q * factor).astype(np.float16).astype(np.float64) / np.float64(factor)
    k, v = ((x.values if isinstance(x, Quantized) else x).astype(np.float16).astype(np.float64) for x in (k, v))
    n_heads = q.shape[2]
    k, v = np.repeat(k, case.gqa, axis=2), np.repeat(v, case.gqa, axis=2)
    s = np.einsum("bqhd,bkhd->bhqk", q, k) * scale
    if case.softcap:
        s = case.softcap * np.tanh(s / case.softcap)
    if mask is not None:
        per_head = mask.astype(np.float64)[:, np.arange(n_heads) % case.mask_heads]
        s = s + np.where(np.isinf(per_head), -np.inf, alibi_slopes(n_heads, case.max_bias)[:, None, None] * per_head)
    m = s.max(axis=-1, keepdims=True)
    if sinks is not None:
        m = np.maximum(m, sinks.astype(np.float64)[None, :, None, None])
    m = np.where(np.isfinite(m), m, 0)
    w = np.exp(s - m)
    total = w.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks.astype(np.float64)[None, :, None, None] - m)
    w = np.divide(w, total, out=np.zeros_like(w), where=total > 0)
    return np.einsum("bhqk,bkhd->bqhd", w, v), np.einsum("bhqk,bkhd->bqhd", w**2, v**2)


def assert_attention(out, case: Case, *data):
    """Each weight is up to 2^-10 off, one too much and another too little: the errors add up as their squares do, which are a twelfth of the
    largest on average. Half is allowed. How large the results are says nothing: they may be next to nothing."""
    expected, squares = reference(case, *data)
    assert np.isfinite(out).all()
    error, allowed = np.sum((out - expected) ** 2), 2.0**-21 * np.sum(squares)
    assert error <= allowed, f"{error / allowed:.3g} times what is allowed"


def attention(case: Case, q, k, v, mask, sinks, scale, room: int = 3) -> np.ndarray:
    """The same on the device. K and V are views of caches with `room` more tokens, which are NaN; Q is permuted as llama.cpp's."""
    def cache(g, x):
        if isinstance(x, Quantized):  # behind the view, every byte is 0xff: NaN as the scale of a block
            batches, tokens, heads, d = x.values.shape
            full = np.full((batches, tokens + room, *x.raw.shape[2:]), 0xFF, np.uint8)
            full[:, :tokens] = x.raw
            t = g.tensor([d, heads, tokens + room, batches], x.type)
            g._inputs.append((t, full))
            lib.ggml_set_input(t)
        else:
            batches, tokens, heads, d = x.shape
            full = np.full((batches, tokens + room, heads, d), np.nan, x.dtype)
            full[:, :tokens] = x
            t = g.input(full)
        return g.view_4d(t, d, tokens, heads, batches, t.nb[2], t.nb[1], t.nb[3], 0)

    with Graph() as g:
        out = g.flash_attn_ext(g.permute(g.input(q), 0, 2, 1, 3), cache(g, k), cache(g, v), ffi.NULL if mask is None else g.input(mask), scale,
                               case.max_bias, case.softcap)
        if sinks is not None:
            lib.ggml_flash_attn_ext_add_sinks(out, g.input(sinks))
        lib.ggml_flash_attn_ext_set_prec(out, lib.GGML_PREC_F32)
        return g.run(out).reshape(*q.shape[:-1], -1)


def cache_data(rng, shape, type: str):
    """Random keys or values as an array or a Quantized."""
    x = rng.standard_normal(shape).astype(np.float32)
    return x if type == "f32" else x.astype(np.float16) if type == "f16" else Quantized(x, type)


def inputs(case: Case, rng):
    q = (rng.standard_normal((case.batches, case.n_q, case.n_kv_heads * case.gqa, case.d)) * case.spread).astype(np.float32)
    k, v = (cache_data(rng, (case.batches, case.n_kv, case.n_kv_heads, d), type)
            for d, type in ((case.d, case.k_type), (case.dv or case.d, case.v_type)))
    sinks = rng.uniform(-10, 10, q.shape[2]).astype(np.float32) if case.sinks else None
    return q, k, v, make_mask(case, rng), sinks, case.scale or case.d**-0.5


def check(case: Case):
    data = inputs(case, new_rng())
    out = attention(case, *data)
    assert_attention(out, case, *data)
    np.testing.assert_array_equal(out, attention(case, *data))


# The rows that share keys are n_q * gqa: up to 16 are the vector kernel's (1, 2, 4 or 8 a workgroup), more go to tiles of 64.
ROWS = [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (7, 1), (1, 8), (5, 3), (15, 1), (2, 8), (16, 1), (17, 1), (9, 2), (6, 3), (5, 4), (33, 1), (16, 4), (63, 1),
        (65, 1), (22, 3)]


@pytest.mark.parametrize("d", [64, 256])
@pytest.mark.parametrize("n_q, gqa", ROWS, ids=lambda x: str(x))
def test_rows(d, n_q, gqa):
    check(Case(d, n_q, 113, n_kv_heads=2, gqa=gqa))


@pytest.mark.parametrize("n_q", [1, 24])
@pytest.mark.parametrize("d", [40, 64, 72, 80, 96, 112, 128, 256])
def test_head_sizes(d, n_q):
    check(Case(d, n_q, 70, n_kv_heads=2, gqa=2, mask="noise"))


@pytest.mark.parametrize("d, n_q, gqa", [(64, 1, 3), (64, 40, 3), (256, 1, 4), (256, 17, 4)])
@pytest.mark.parametrize("n_kv", [1, 7, 31, 64, 127, 256, 513])
def test_key_counts(d, n_q, gqa, n_kv):
    check(Case(d, n_q, n_kv, gqa=gqa, mask="noise"))


@pytest.mark.parametrize("d, n_q, gqa", [(64, 1, 3), (64, 4, 1), (64, 40, 3), (256, 2, 4), (256, 17, 4)])
@pytest.mark.parametrize("mask", ["none", "noise", "causal", "window", "holes", "empty_rows"])
def test_masks(d, n_q, gqa, mask):
    check(Case(d, n_q, 200, gqa=gqa, batches=2, mask=mask))


@pytest.mark.parametrize("n_q", [1, 20])
@pytest.mark.parametrize("features", [dict(softcap=30.0, spread=8.0), dict(softcap=0.5), dict(max_bias=8.0, mask="noise"), dict(sinks=True),
                                      dict(sinks=True, mask="empty_rows"), dict(mask_heads=2, mask="noise"), dict(batches=4, mask="noise"),
                                      dict(scale=1.0), dict(softcap=10.0, max_bias=8.0, sinks=True, mask="holes")], ids=str)
def test_features(n_q, features):
    check(Case(64, n_q, 96, n_kv_heads=2, gqa=3, **features))


@pytest.mark.parametrize("d, n_q, gqa", [(64, 1, 3), (256, 1, 4), (64, 20, 3), (256, 20, 1)])
@pytest.mark.parametrize("features", [dict(), dict(sinks=True), dict(mask="empty_rows")], ids=str)
def test_split_keys(d, n_q, gqa, features):
    """Long sequences go to several workgroups and are combined."""
    check(Case(d, n_q, 1100, gqa=gqa, **features))


@pytest.mark.parametrize("n_q", [1, 3])
@pytest.mark.parametrize("dv", [3, 67])
def test_split_keys_of_any_head_size(n_q, dv):
    """Rows of dst that are no multiple of four floats, combined."""
    check(Case(65, n_q, 1100, n_kv_heads=2, gqa=2, dv=dv, sinks=True))


@pytest.mark.parametrize("type", ["f16", "q8_0", "q4_0"])
@pytest.mark.parametrize("d, n_q, gqa", [(64, 1, 8), (96, 1, 1), (96, 1, 4), (96, 3, 1), (128, 1, 1), (128, 3, 2), (256, 1, 3), (256, 1, 6), (256, 2, 8)])
def test_decode_splits(d, n_q, gqa, type):
    """One token and few, every count of rows a workgroup has, ends of splits within a step, masks of one head and of each."""
    for n_kv, features in ((250, dict(mask="noise", max_bias=4.0)), (611, dict(mask="window", sinks=True, softcap=20.0)),
                           (1203, dict(mask="holes", mask_heads=2))):
        check(Case(d, n_q, n_kv, n_kv_heads=2, gqa=gqa, k_type=type, v_type=type, **features))


def test_long_rows_of_one_window():
    """More key blocks than one window of the mask scan, most of them masked."""
    rng = new_rng()
    case = Case(64, 20, 5000, n_kv_heads=2)
    q, k, v, mask, sinks, scale = inputs(case, rng)
    mask[..., :4400] = -np.inf
    mask[..., 1000:1010] = 0
    out = attention(case, q, k, v, mask, sinks, scale)
    assert_attention(out, case, q, k, v, mask, sinks, scale)


def test_growing_scores():
    """Scores that rise along the sequence move the maximum again and again."""
    rng = new_rng()
    for n_q in (1, 24):
        case = Case(64, n_q, 400, mask="none", scale=1.0)
        q, k, v, mask, sinks, scale = inputs(case, rng)
        q[...] = 1.0
        k[...] = (np.linspace(-1, 1, case.n_kv)[None, :, None, None] + 0.01 * k).astype(np.float16)
        assert_attention(attention(case, q, k, v, mask, sinks, scale), case, q, k, v, mask, sinks, scale)


@pytest.mark.parametrize("n_q, gqa", [(3, 2), (30, 2)])
def test_rows_do_not_depend_on_their_neighbours(n_q, gqa):
    rng = new_rng()
    case = Case(64, n_q, 150, gqa=gqa)
    q, k, v, mask, sinks, scale = inputs(case, rng)
    first = attention(case, q, k, v, mask, sinks, scale)
    q[:, 1:] *= 9
    second = attention(case, q, k, v, mask, sinks, scale)
    np.testing.assert_array_equal(first[:, 0], second[:, 0])
    assert not np.array_equal(first[:, 1:], second[:, 1:])


def test_not_permuted():
    """K and V with one head after the other, as ggml makes them without a view."""
    rng = new_rng()
    for n_q in (2, 20):
        q = rng.standard_normal((2, 6, n_q, 64)).astype(np.float32)
        k, v = (rng.standard_normal((2, 3, 77, 64)).astype(np.float16) for _ in range(2))
        with Graph() as g:
            out = g.run(g.flash_attn_ext(g.input(q), g.input(k), g.input(v), ffi.NULL, 0.125, 0.0, 0.0)).reshape(2, n_q, 6, 64)
        case = Case(64, n_q, 77, 3, 2, 2, mask="none")
        assert_attention(out, case, *(x.transpose(0, 2, 1, 3) for x in (q, k, v)), None, None, 0.125)


TYPED = ["f32", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "q2_0", "q1_0"]


@pytest.mark.parametrize("n_q", [1, 3, 24], ids=lambda n: f"n_q{n}")
@pytest.mark.parametrize("type", TYPED)
def test_types(type, n_q):
    """Each type as keys and as values beside another one: one row, the vector kernel's eight, tiles."""
    check(Case(128, n_q, 70, n_kv_heads=2, gqa=2 if n_q > 1 else 1, mask="noise", k_type=type, v_type="f16"))
    check(Case(128, n_q, 70, n_kv_heads=2, gqa=2 if n_q > 1 else 1, mask="noise", k_type="q8_0" if type != "q8_0" else "q4_0", v_type=type))


@pytest.mark.parametrize("d, types", [(40, ("bf16", "f32")), (64, ("q8_0", "q8_0")), (72, ("f32", "bf16")), (80, ("bf16", "bf16")),
                                      (96, ("q4_0", "q5_1")), (112, ("bf16", "f16")), (192, ("q5_0", "q4_1")), (256, ("q8_0", "q4_0"))], ids=str)
@pytest.mark.parametrize("n_q", [2, 17])
def test_types_and_head_sizes(d, types, n_q):
    check(Case(d, n_q, 45, gqa=2, mask="noise", k_type=types[0], v_type=types[1]))


@pytest.mark.parametrize("n_q", [1, 40])
@pytest.mark.parametrize("types", [("q8_0", "q8_0"), ("q4_0", "f16"), ("bf16", "iq4_nl")], ids=str)
def test_types_split(types, n_q):
    """Long typed caches: several workgroups, whole and partial blocks of keys, skipped ones."""
    check(Case(64, n_q, 1100, gqa=4, k_type=types[0], v_type=types[1], mask="holes"))


SIZES = [(192, 128), (192, 192), (320, 256), (512, 512), (576, 512)]


@pytest.mark.parametrize("n_q, gqa", [(1, 4), (1, 20), (11, 4)], ids=str)
@pytest.mark.parametrize("d, dv", SIZES)
def test_large_heads(d, dv, n_q, gqa):
    check(Case(d, n_q, 50, gqa=gqa, dv=dv, mask="noise"))
    check(Case(d, n_q, 50, gqa=gqa, dv=dv, mask="causal", sinks=True, k_type="q8_0", v_type="q8_0"))


@pytest.mark.parametrize("n_q", [2, 33])
@pytest.mark.parametrize("d, dv", [(72, 64), (64, 72), (65, 67), (96, 64), (128, 64), (64, 128), (1, 1), (7, 510), (100, 3), (300, 33)])
def test_any_head_sizes(d, dv, n_q):
    check(Case(d, n_q, 67, n_kv_heads=2, gqa=2, dv=dv, mask="noise"))


@pytest.mark.parametrize("type", ["bf16", "f32"])
def test_any_head_sizes_of_other_floats(type):
    check(Case(65, 9, 40, dv=67, mask="noise", k_type=type, v_type=type))


def test_v_inside_k():
    """Multi-head latent attention: V is the beginning of the rows of K."""
    rng = new_rng()
    for type in ("f16", "q8_0"):
        q = rng.standard_normal((1, 2, 16, 576)).astype(np.float32)
        k = cache_data(rng, (1, 1, 90, 576), type)
        with Graph() as g:
            t = g.input(k)
            v = g.view_4d(t, 512, 90, 1, 1, t.nb[1], t.nb[2], t.nb[3], 0)
            out = g.run(g.flash_attn_ext(g.permute(g.input(q), 0, 2, 1, 3), t, v, ffi.NULL, 576**-0.5, 0.0, 0.0)).reshape(1, 2, 16, 512)
        values = (k.values if isinstance(k, Quantized) else k).transpose(0, 2, 1, 3)
        case = Case(576, 2, 90, gqa=16, mask="none")
        assert_attention(out, case, q, values, values[..., :512], None, None, 576**-0.5)


@pytest.mark.parametrize("type", ["f32", "bf16"])
@pytest.mark.parametrize("n_q", [1, 20])
def test_beyond_half_precision(type, n_q):
    """Floats that f16 cannot hold saturate."""
    rng = new_rng()
    case = Case(64, n_q, 40, mask="none", k_type=type, v_type=type)
    q, k, v, mask, sinks, scale = inputs(case, rng)
    big = np.full(v.values.shape if type == "bf16" else v.shape, 3e38, np.float32)
    big[..., ::2] *= -1
    out = attention(case, q, k, Quantized(big, "bf16") if type == "bf16" else big, mask, sinks, scale)
    np.testing.assert_allclose(out, np.broadcast_to(np.where(np.arange(64) % 2, 65504.0, -65504.0), out.shape), rtol=1e-3)


@pytest.mark.parametrize("d, n_q, gqa, types", [(64, 1, 4, "f16"), (64, 30, 1, "f16"), (192, 2, 4, "f16"), (128, 20, 1, "q8_0"), (64, 3, 1, "q4_0")])
def test_masked_blocks_change_nothing(d, n_q, gqa, types):
    """Keys in front that a sliding window excludes, whatever they hold, leave every bit as it is: as many splits, fewer blocks."""
    rng = new_rng()
    case = Case(d, n_q, 448, gqa=gqa, mask="causal", k_type=types, v_type=types)
    q, k, v, mask, sinks, scale = inputs(case, rng)
    mask[..., :256] = -np.inf
    first = attention(case, q, k, v, mask, sinks, scale)
    assert_attention(first, case, q, k, v, mask, sinks, scale)
    tail = [Quantized(x.values[:, 256:], x.type, x.raw[:, 256:]) if isinstance(x, Quantized) else x[:, 256:] for x in (k, v)]
    short = Case(d, n_q, 192, gqa=gqa, k_type=types, v_type=types)
    np.testing.assert_array_equal(first, attention(short, q, *tail, mask[..., 256:], sinks, scale))


def test_refusals():
    def reason(d=64, dv=None, k_type="f16", v_type="f16", heads=4, kv_heads=2):
        with Graph() as g:
            q = g.tensor([d, 3, heads, 1])
            k = g.tensor([d, 32, kv_heads, 1], k_type)
            v = g.tensor([dv or d, 32, kv_heads, 1], v_type)
            return g.refusal(g.flash_attn_ext(q, k, v, ffi.NULL, 1.0, 0.0, 0.0))

    assert reason() is None
    assert reason(d=256) is None
    assert reason(d=192, dv=128) is None
    assert reason(d=64, k_type="q8_0", v_type="q4_1") is None
    assert reason(d=576, dv=512) is None
    assert reason(d=577) == reason(d=64, dv=513) == "head size"
    assert reason(d=256, k_type="q4_K") == "K type"
    assert reason(d=256, v_type="iq3_s") == "V type"
