"""strata_hip.ops on the emulator: each function against float64, on the shapes that its docstring promises, and what it refuses."""
import gc

import numpy as np
import pytest

from strata_hip import errors, ops, plugin
from support.delta_net import make, reference
from support.ops import QUANTIZED_TYPES, dequantize, new_rng, nmse, random_blocks
from support.process import run_python

DEVICE = "emulator"


@pytest.fixture
def normal():
    rng = new_rng()
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


def soft_max(x: np.ndarray) -> np.ndarray:
    x = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


@pytest.mark.parametrize("type", ["q4_0", "q8_0", "q4_K", "q6_K", "iq4_xs", "mxfp4", "bf16"])
def test_mul_mat_of_blocks(normal, type):
    weights, x = ops.Quantized(normal(64, 256), type), normal(5, 256)
    assert nmse(ops.mul_mat(weights, x, device=DEVICE), x @ weights.values.T.astype(np.float64)) < 2e-4


@pytest.mark.parametrize("few,many", [((), ()), ((), (3,)), ((1,), ()), ((2,), (4,)), ((2, 2), (2, 4)), ((1, 1), ())])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_mul_mat_of_several(normal, few, many, dtype):
    weights, x = normal(*few, 48, 64).astype(dtype), normal(*many, 3, 64)
    repeated = weights.reshape((1,) * (2 - len(few)) + weights.shape).astype(np.float64)
    for axis, n in zip((0, 1), (1,) * (2 - len(many)) + many):
        repeated = np.repeat(repeated, n // repeated.shape[axis], axis)
    assert nmse(ops.mul_mat(weights, x, device=DEVICE), (x @ repeated.swapaxes(-1, -2)).reshape(*many, 3, 48)) < 1e-6


@pytest.mark.parametrize("slots", [1, 2])
def test_mul_mat_id(normal, slots):
    experts, x, ids = ops.Quantized(normal(8, 32, 64), "q8_0"), normal(3, slots, 64), [[7, 0], [3, 3], [0, 1]]
    expected = np.einsum("tumk,tuk->tum", experts.values[ids].astype(np.float64), np.broadcast_to(x, (3, 2, 64)))
    assert nmse(ops.mul_mat_id(experts, x, ids, device=DEVICE), expected) < 1e-4


def test_norms(normal):
    x = normal(2, 1, 3, 100)
    wide = x.astype(np.float64)
    assert nmse(ops.rms_norm(x, 1e-3, device=DEVICE), wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-3)) < 1e-12
    assert nmse(ops.l2_norm(x[0], device=DEVICE), wide[0] / np.linalg.norm(wide[0], axis=-1, keepdims=True)) < 1e-12


@pytest.mark.parametrize("mode", ["neox", "normal"])
@pytest.mark.parametrize("n_dims,factors", [(None, None), (32, None), (32, np.linspace(1, 4, 16))])
def test_rope(normal, mode, n_dims, factors):
    x, positions, n = normal(2, 3, 2, 64), np.array([0, 5, 777]), n_dims or 64
    angle = 0.5 * positions[:, None] * 1000.0 ** (-2 * np.arange(n // 2) / n) / (1 if factors is None else factors)
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    first, second = (slice(0, n // 2), slice(n // 2, n)) if mode == "neox" else (slice(0, n, 2), slice(1, n, 2))
    expected = x.astype(np.float64)
    expected[..., first], expected[..., second] = x[..., first] * c - x[..., second] * s, x[..., first] * s + x[..., second] * c
    got = ops.rope(x, positions, n_dims=n_dims, mode=mode, freq_base=1000.0, freq_scale=0.5, freq_factors=factors, device=DEVICE)
    assert nmse(got, expected) < 1e-9


def test_soft_max(normal):
    x, mask = normal(2, 4, 7), np.where(np.tri(4, 7, 3) > 0, 0, -np.inf)
    assert nmse(ops.soft_max(x, device=DEVICE), soft_max(x)) < 1e-12
    assert nmse(ops.soft_max(x, mask, scale=0.5, device=DEVICE), soft_max(0.5 * x + mask)) < 1e-12


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
@pytest.mark.parametrize("sequences", [(), (2,)])
@pytest.mark.parametrize("masked", [False, True])
def test_flash_attn_ext(normal, kind, sequences, masked):
    def cache():
        values = normal(*sequences, 2, 70, 64)
        return values.astype(np.float16) if kind == "f16" else ops.Quantized(values, kind)
    q, k, v = normal(*sequences, 4, 5, 64), cache(), cache()
    mask = np.where(np.tri(5, 70, 65) > 0, 0, -np.inf) if masked else None
    keys, values = (np.repeat(np.asarray(getattr(x, "values", x), np.float64), 2, -3) for x in (k, v))
    logits = q @ keys.swapaxes(-1, -2) / 8 + (mask if masked else 0)
    expected = (soft_max(logits) @ values).swapaxes(-2, -3)
    assert nmse(ops.flash_attn_ext(q, k, v, mask, device=DEVICE), expected) < 1e-6
    assert nmse(ops.flash_attn_ext(q, k, v, mask, scale=0.125, logit_softcap=5.0, device=DEVICE), expected) > 1e-4


def test_get_rows(normal):
    table = ops.Quantized(normal(10, 256), "q6_K")
    np.testing.assert_array_equal(ops.get_rows(table, [3, 3, 9], device=DEVICE), table.values[[3, 3, 9]])


@pytest.mark.parametrize("tokens,snapshots", [(5, 1), (2, 3)])
def test_gated_delta_net(tokens, snapshots):
    inputs = make(new_rng(), 64, 4, tokens, sequences=2, key_heads=2)
    out, states = ops.gated_delta_net(*inputs, snapshots=snapshots, device=DEVICE)
    expected, wanted, squares = reference(*inputs, snapshots)
    assert np.sum((out - expected) ** 2) < 1e-12 * np.sum(squares) and len(states) == len(wanted) == min(tokens, snapshots)
    assert all(nmse(got, want) < 1e-12 for got, want in zip(states, wanted))


def test_elementwise(normal):
    a, b = normal(3, 4, 40), normal(4, 1)
    np.testing.assert_array_equal(ops.add(a, b, device=DEVICE), a + b)
    np.testing.assert_array_equal(ops.mul(a, a[0, 0], device=DEVICE), a * a[0, 0])
    assert nmse(ops.swiglu(a, 2 * a, device=DEVICE), a.astype(np.float64) / (1 + np.exp(-a.astype(np.float64))) * 2 * a) < 1e-12


def test_any_other_operator(normal):
    x = normal(3, 8)
    np.testing.assert_allclose(ops.compute(lambda g, a: g.sqr(a), x, device=DEVICE), x * x, rtol=1e-6)
    both = ops.compute(lambda g, a: (g.neg(a), g.scale(a, 2.0)), x, device=DEVICE)
    np.testing.assert_array_equal(both[0], -x)
    np.testing.assert_array_equal(both[1], 2 * x)


@pytest.mark.parametrize("type", QUANTIZED_TYPES)
def test_blocks_hold_what_another_reader_finds(type):
    raw = random_blocks(new_rng(), (3, 256), type).raw
    made = ops.Quantized(None, type, raw)
    np.testing.assert_array_equal(made.values, dequantize(raw, type))
    assert made.shape == (3, 256)


X = np.zeros((5, 256), np.float32)
W = ops.Quantized(np.ones((64, 256)), "q4_0")
HEADS = np.zeros((4, 5, 64), np.float32)


@pytest.mark.parametrize("call,message", [
    (lambda: ops.mul_mat(W, X[:, :128]), "rows of 256 weights and of 128"),
    (lambda: ops.mul_mat(np.zeros((2, 8, 4)), np.zeros((3, 1, 4))), "do not serve"),
    (lambda: ops.mul_mat(W, W), "takes no blocks"),
    (lambda: ops.mul_mat(W, X[0]), r"x: 2 to 4 dimensions are needed .* \(256,\)"),
    (lambda: ops.mul_mat_id(np.zeros((2, 8, 4)), np.zeros((3, 1, 4)), [[0, 2]] * 3), "ids: 0 to 2 are not within 0 to 1"),
    (lambda: ops.mul_mat_id(np.zeros((2, 8, 4)), np.zeros((3, 2, 4)), [[0]] * 3), "1 experts a token are no multiple of 2 rows"),
    (lambda: ops.rms_norm(X[:0]), "none may be 0"),
    (lambda: ops.rope(HEADS, [0]), "1 positions do not fit 4 tokens"),
    (lambda: ops.rope(HEADS, [0] * 4, n_dims=7), "n_dims=7"),
    (lambda: ops.rope(HEADS, [0.5] * 4), "float64 are no indices"),
    (lambda: ops.rope(HEADS, [0] * 4, mode="yarn"), "none of normal, neox"),
    (lambda: ops.soft_max(X, X[:, :3]), "does not fit x"),
    (lambda: ops.soft_max(X, max_bias=8.0), "needs a mask"),
    (lambda: ops.flash_attn_ext(HEADS, HEADS, HEADS[:, :3]), "different keys"),
    (lambda: ops.flash_attn_ext(HEADS, HEADS[:3], HEADS[:3]), "does not fit q"),
    (lambda: ops.flash_attn_ext(HEADS, HEADS, HEADS, X), "a mask of shape"),
    (lambda: ops.get_rows(W, [64]), "not within 0 to 63"),
    (lambda: ops.gated_delta_net(*[np.zeros((1, 1, 1, 4))] * 6), "beta of shape"),
    (lambda: ops.add(X, X[:2]), "cannot be repeated"),
    (lambda: ops.swiglu(X, X[:2]), "must be the same"),
    (lambda: ops.quantize(np.zeros((3, 100)), "q4_K"), "blocks of 256 values"),
    (lambda: ops.quantize(np.zeros((3, 256)), "q4_k"), "no type 'q4_k', but f32"),
    (lambda: ops.dequantize(np.zeros((3, 17), np.uint8), "q4_0"), "blocks of q4_0 have 18 bytes"),
    (lambda: ops.Quantized(None, "q4_0"), "neither values nor blocks"),
    (lambda: ops.compute(lambda g, a: g.neg(a), X.astype(float)), "an array of float64 is no tensor"),
    (lambda: ops.rms_norm(X, device="CUDA0"), "no device 'CUDA0', but .*STRATA0")])
def test_what_does_not_fit(call, message, monkeypatch):
    monkeypatch.setenv("STRATA_RUNTIME", DEVICE)
    with pytest.raises(errors.StrataError, match=message):
        call()


def test_a_refusal_tells_the_reason():
    """Of a view of blocks that begins inside a row."""
    with pytest.raises(errors.DeviceError, match="is refused: ."), ops.Graph(DEVICE) as graph:
        made = graph.input(ops.Quantized(np.ones((4, 64)), "q4_0"))
        graph.run(graph.cpy(made, graph.tensor((64, 4), "i8")))


def test_memory_is_given_back(normal):
    ops.rms_norm(normal(1, 8), device=DEVICE)
    gc.collect()  # models of other tests that wait for it would be given back in between
    before = plugin.loaded().counter("allocated_bytes")
    for _ in range(3):
        ops.rms_norm(normal(1000, 1000), device=DEVICE)
    forgotten = ops.Graph(DEVICE)
    forgotten.run(forgotten.neg(forgotten.input(normal(1000, 1000))))
    assert plugin.loaded().counter("allocated_bytes") > before
    del forgotten
    gc.collect()
    assert plugin.loaded().counter("allocated_bytes") == before
    with pytest.raises(AttributeError, match="neither Graph nor ggml has 'silly'"):
        ops.Graph(DEVICE).silly


def test_nothing_is_chosen_silently(tmp_path):
    run_python("""
import numpy as np
from strata_hip import errors, ops, runtime
for action in (lambda: ops.rms_norm(np.ones((1, 8))), runtime.open):
    try:
        action()
        raise SystemExit("it ran")
    except errors.DeviceError as error:
        assert "no usable AMD GPU" in str(error) and 'device="emulator"' in str(error), error
""", STRATA_RUNTIME=None, STRATA_HIP_LIBRARY=tmp_path / "gone.so")
