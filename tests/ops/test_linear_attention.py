"""RWKV_WKV6, RWKV_WKV7 and GATED_LINEAR_ATTN against float64."""
import numpy as np
import pytest
from support.ops import new_rng, nmse, refusal_of, run_op

LIMIT = 1e-12  # f32 arithmetic throughout
VECTORS = {"rwkv_wkv6": 4, "gated_linear_attn": 4, "rwkv_wkv7": 6}  # per token


def make(rng, op, size, heads, tokens, sequences):
    """The op's operands in order; per token (sequences * tokens, heads, size), states (sequences, heads, size, size)."""
    shape = (sequences * tokens, heads, size)
    vectors = [rng.standard_normal(shape) for _ in range(VECTORS[op])]
    decay = np.exp(-np.exp(rng.uniform(-6, 1, shape)))
    if op == "rwkv_wkv6":
        vectors = [*vectors[:3], rng.standard_normal((heads, size)), decay]
    elif op == "gated_linear_attn":
        vectors[3] = decay
    else:
        vectors[1] = decay
        a = vectors[4] / np.linalg.norm(vectors[4], axis=-1, keepdims=True)
        vectors[4], vectors[5] = -a, a * rng.uniform(0, 1, shape)
    state = rng.standard_normal((sequences, heads, size, size))
    return [v.astype(np.float32) for v in (*vectors, state)]


def reference(op, operands, scale):
    *vectors, state = (v.astype(np.float64) for v in operands)
    sequences, heads, size, _ = state.shape
    constant = vectors.pop(3) if op == "rwkv_wkv6" else None
    vectors = [v.reshape(sequences, -1, heads, size) for v in vectors]
    out = np.empty_like(vectors[0])
    for t in range(out.shape[1]):
        now = [v[:, t] for v in vectors]
        if op == "rwkv_wkv7":  # state (value, key)
            r, w, k, v, a, b = now
            along_a = np.einsum("shvk,shk->shv", state, a)
            state = state * w[..., None, :] + v[..., None] * k[..., None, :] + along_a[..., None] * b[..., None, :]
            out[:, t] = np.einsum("shvk,shk->shv", state, r)
            continue
        k, v, r, w = now       # state (key, value)
        product = k[..., None] * v[..., None, :]
        if op == "rwkv_wkv6":
            out[:, t] = np.einsum("shkv,shk->shv", product * constant[..., None] + state, r)
            state = state * w[..., None] + product
        else:
            state = state * w[..., None] + product
            out[:, t] = np.einsum("shkv,shk->shv", state, r) * scale
    return out.reshape(-1, heads, size), state


def compute(op, operands, scale=1.0):
    *vectors, state = operands
    flat = state.reshape(state.shape[0], -1)
    extra = (scale,) if op == "gated_linear_attn" else ()
    raw = run_op(lambda g, *tensors: getattr(g, op)(*tensors, *extra), *vectors, flat).ravel()
    out, new = np.split(raw, [vectors[0].size])
    return out.reshape(vectors[0].shape), new.reshape(state.shape)


def check(op, operands, scale=1.0):
    made, expected = compute(op, operands, scale), reference(op, operands, scale)
    for a, b in zip(made, expected, strict=True):
        assert nmse(a, b) < LIMIT


@pytest.mark.parametrize("op", VECTORS)
@pytest.mark.parametrize("size", [4, 20, 32, 64, 100, 128])
def test_head_sizes(op, size):
    check(op, make(new_rng(), op, size, 3, 5, 2), 0.3)


@pytest.mark.parametrize("op", VECTORS)
@pytest.mark.parametrize("tokens", [1, 2, 6, 15, 16, 17, 64])
@pytest.mark.parametrize("sequences", [1, 3])
def test_tokens_and_sequences(op, tokens, sequences):
    check(op, make(new_rng(), op, 64, 2, tokens, sequences), 0.125)


@pytest.mark.parametrize("op", VECTORS)
def test_tokens_at_once_or_one_by_one(op):
    operands = make(new_rng(), op, 64, 2, 19, 1)
    out, last = compute(op, operands)
    state = operands[-1]
    for t in range(19):
        step, state = compute(op, [v[t:t + 1] if v.shape[0] == 19 else v for v in operands[:-1]] + [state])
        np.testing.assert_array_equal(step[0], out[t])
    np.testing.assert_array_equal(state, last)


@pytest.mark.parametrize("op", VECTORS)
def test_refusals(op):
    def reason(size):
        *vectors, state = make(new_rng(), op, size, 1, 1, 1)
        extra = (1.0,) if op == "gated_linear_attn" else ()
        return refusal_of(lambda g, *tensors: getattr(g, op)(*tensors, *extra), *vectors, state.reshape(1, -1))

    assert reason(64) is None and "length" in reason(66) and "length" in reason(132)
