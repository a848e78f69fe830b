"""LIGHTNING_INDEXER against a float64 reference that rounds queries and keys to f16, as the device does: what is left is f32 summation."""
import numpy as np
import pytest
from support.ops import Graph, Quantized, new_rng
from support.values import assert_close


def data(rng, d, heads, n_kv, tokens, streams, mask_streams, type):
    q = rng.standard_normal((streams, tokens, heads, d)).astype(np.float32)
    x = rng.standard_normal((streams, n_kv, 1, d)).astype(np.float32)
    k = x if type == "f32" else x.astype(np.float16) if type == "f16" else Quantized(x, type)
    w = rng.standard_normal((streams, 1, tokens, heads)).astype(np.float32)
    mask = np.where(rng.random((mask_streams, 1, tokens, n_kv)) < 0.3, -np.inf, rng.uniform(-1, 1, (mask_streams, 1, tokens, n_kv))).astype(np.float16)
    return q, k, w, mask


def check(out, q, k, w, mask):
    """Each sum is within half a unit a product of pairs, a head of an eighth of them and a level of the tree, relative to the magnitudes."""
    halves = lambda x: x.astype(np.float16).astype(np.float64)
    q, k, w = halves(q), halves(k.values if isinstance(k, Quantized) else k)[:, :, 0], w[:, 0].astype(np.float64)
    mask = mask[np.arange(len(q)) % len(mask), 0].astype(np.float64)
    masked = np.isinf(mask)
    sums = lambda q, k, w: np.einsum("sthj,sth->stj", np.maximum(np.einsum("sthd,sjd->sthj", q, k), 0), w)
    steps = q.shape[3] / 2 + np.ceil(q.shape[2] / 8) + 10
    np.testing.assert_array_equal(out[masked], -np.inf)
    magnitude = sums(np.abs(q), np.abs(k), np.abs(w)) + np.abs(mask)
    assert_close(out[~masked], (sums(q, k, w) + mask)[~masked], magnitude[~masked], 2.0**-24 * steps)


def indexer(q, k, w, mask):
    with Graph() as g:
        return g.run(g.lightning_indexer(g.input(q), g.input(k), g.input(w), g.input(mask))).reshape(q.shape[0], q.shape[1], -1)


@pytest.mark.parametrize("type", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"])
def test_types(type):
    case = data(new_rng(), 128, 64, 37, 3, 2, 1, type)
    out = indexer(*case)
    check(out, *case)
    np.testing.assert_array_equal(out, indexer(*case))


@pytest.mark.parametrize("d, heads, n_kv, tokens, streams, mask_streams", [(128, 32, 1, 1, 1, 1), (64, 1, 33, 9, 1, 1), (8, 5, 64, 17, 3, 3), (120, 35, 31, 8, 4, 2),
                                                                          (128, 128, 65, 2, 1, 1)])
def test_shapes(d, heads, n_kv, tokens, streams, mask_streams):
    case = data(new_rng(), d, heads, n_kv, tokens, streams, mask_streams, "f16")
    check(indexer(*case), *case)


def test_views():
    """Queries permuted and keys of a larger cache, as graphs have them."""
    rng = new_rng()
    q, k, w, mask = data(rng, 64, 6, 40, 5, 1, 1, "f16")
    cache = np.full((1, 50, 2, 64), np.nan, np.float16)
    cache[:, :40, 1:] = k
    with Graph() as g:
        whole = g.input(cache)
        keys = g.view_4d(whole, 64, 1, 40, 1, whole.nb[1], whole.nb[2], whole.nb[3], whole.nb[1])
        queries = g.permute(g.input(np.ascontiguousarray(q.transpose(0, 2, 1, 3))), 0, 2, 1, 3)
        out = g.run(g.lightning_indexer(queries, keys, g.input(w), g.input(mask))).reshape(1, 5, 40)
    check(out, q, k, w, mask)


def test_refusals():
    def reason(d=128, heads=64, k_type="f16"):
        with Graph() as g:
            return g.refusal(g.lightning_indexer(g.tensor([d, heads, 3, 1]), g.tensor([d, 1, 20, 1], k_type), g.tensor([heads, 3, 1, 1]),
                                                 g.tensor([20, 3, 1, 1], "f16")))

    assert reason() is None
    assert reason(d=130) == reason(d=136) == "head size"
    assert reason(heads=129) == "heads"
    assert reason(d=256, k_type="q4_K") == "K type"
