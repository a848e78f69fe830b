"""FLASH_ATTN_EXT against a float64 reference: both kernels (tiles, vector), split keys, masks, views of a larger cache."""
from dataclasses import dataclass

import numpy as np
import pytest
from support.alibi import alibi_slopes
from support.ggml import ffi, lib
from support.ops import Graph, new_rng, nmse
from support.paths import ROOT
from support.process import run_python

# Queries and weights are rounded to f16, sums are f32: errors of 2^-12 in a few hundred independent terms.
LIMIT = 1e-6


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
    """(batches, n_q, heads, d) float64, from (batches, tokens, heads, d) each."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
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
    return np.einsum("bhqk,bkhd->bqhd", np.divide(w, total, out=np.zeros_like(w), where=total > 0), v)


def attention(case: Case, q, k, v, mask, sinks, scale, room: int = 3) -> np.ndarray:
    """The same on the device. K and V are views of caches with `room` more tokens, which are NaN; Q is permuted as llama.cpp's."""
    def cache(g, x):
        batches, tokens, heads, d = x.shape
        full = np.full((batches, tokens + room, heads, d), np.nan, np.float16)
        full[:, :tokens] = x
        t = g.input(full)
        return g.view_4d(t, d, tokens, heads, batches, t.nb[2], t.nb[1], t.nb[3], 0)

    with Graph() as g:
        out = g.flash_attn_ext(g.permute(g.input(q), 0, 2, 1, 3), cache(g, k), cache(g, v), ffi.NULL if mask is None else g.input(mask), scale,
                               case.max_bias, case.softcap)
        if sinks is not None:
            lib.ggml_flash_attn_ext_add_sinks(out, g.input(sinks))
        lib.ggml_flash_attn_ext_set_prec(out, lib.GGML_PREC_F32)
        return g.run(out).reshape(q.shape)


def inputs(case: Case, rng):
    q = (rng.standard_normal((case.batches, case.n_q, case.n_kv_heads * case.gqa, case.d)) * case.spread).astype(np.float32)
    k, v = (rng.standard_normal((case.batches, case.n_kv, case.n_kv_heads, case.d)).astype(np.float16) for _ in range(2))
    sinks = rng.uniform(-10, 10, q.shape[2]).astype(np.float32) if case.sinks else None
    return q, k, v, make_mask(case, rng), sinks, case.scale or case.d**-0.5


def check(case: Case):
    data = inputs(case, new_rng())
    out = attention(case, *data)
    assert np.isfinite(out).all()
    assert nmse(out, reference(case, *data)) < LIMIT
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


def test_long_rows_of_one_window():
    """More key blocks than one window of the mask scan, most of them masked."""
    rng = new_rng()
    case = Case(64, 20, 5000, n_kv_heads=2)
    q, k, v, mask, sinks, scale = inputs(case, rng)
    mask[..., :4400] = -np.inf
    mask[..., 1000:1010] = 0
    out = attention(case, q, k, v, mask, sinks, scale)
    assert nmse(out, reference(case, q, k, v, mask, sinks, scale)) < LIMIT


def test_growing_scores():
    """Scores that rise along the sequence move the maximum again and again."""
    rng = new_rng()
    for n_q in (1, 24):
        case = Case(64, n_q, 400, mask="none", scale=1.0)
        q, k, v, mask, sinks, scale = inputs(case, rng)
        q[...] = 1.0
        k[...] = (np.linspace(-1, 1, case.n_kv)[None, :, None, None] + 0.01 * k).astype(np.float16)
        assert nmse(attention(case, q, k, v, mask, sinks, scale), reference(case, q, k, v, mask, sinks, scale)) < LIMIT


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
        assert nmse(out, reference(case, *(x.transpose(0, 2, 1, 3) for x in (q, k, v)), None, None, 0.125)) < LIMIT


def test_refusals():
    def reason(d=64, dv=None, k_type="f16", v_type="f16", heads=4, kv_heads=2):
        with Graph() as g:
            q = g.tensor([d, 3, heads, 1])
            k = g.tensor([d, 32, kv_heads, 1], k_type)
            v = g.tensor([dv or d, 32, kv_heads, 1], v_type)
            return g.refusal(g.flash_attn_ext(q, k, v, ffi.NULL, 1.0, 0.0, 0.0))

    assert reason() is None
    assert reason(d=256) is None
    assert reason(d=192, dv=128) == "head size"
    assert reason(d=512) == "head size"
    assert reason(dv=128) == "head size"
    assert reason(k_type="q8_0", v_type="q8_0") == "KV type"
    assert reason(k_type="f32", v_type="f32") == "KV type"
    assert reason(k_type="f16", v_type="q4_0") == "K and V types differ"


def test_without_tiles():
    """STRATA_DISABLE=flash_attn_tile sends any number of rows through the vector kernel, as on a chip without WMMA."""
    code = """
import numpy as np
import test_attention as t
from support.ops import new_rng, nmse
rng = np.random.default_rng(5)
for case in (t.Case(64, 33, 70, gqa=3), t.Case(256, 20, 300, gqa=2, mask="window")):
    data = t.inputs(case, rng)
    out = t.attention(case, *data)
    assert nmse(out, t.reference(case, *data)) < t.LIMIT
    print(out.tobytes().hex())
"""
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests' / 'ops')!r})\n" + code
    tiles, vector = run_python(code).stdout, run_python(code, STRATA_DISABLE="flash_attn_tile").stdout
    assert tiles != vector
