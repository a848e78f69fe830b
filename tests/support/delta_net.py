"""Inputs of the gated delta net as models have them, and the recurrence in float64."""
import numpy as np


def reference(q, k, v, g, beta, state, snapshots):
    """numpy shapes are ggml's reversed: q, k (B, T, H_k, S), v (B, T, H, S), g (B, T, H, 1 or S), beta (B, T, H, 1),
    state (B, H, column, element). Returns (B, T, H, S), the states after the last tokens, newest first, and for each result the sum of the
    squares of what is added up to it, which may cancel."""
    q, k, v, g, beta, state = (x.astype(np.float64) for x in (q, k, v, g, beta, state))
    sequences, tokens, heads, size = v.shape
    spread = lambda x: np.tile(np.repeat(x, sequences // x.shape[0], axis=0), (1, 1, heads // x.shape[2], 1))
    q, k = spread(q), spread(k)
    out, squares, states = np.empty_like(v), np.empty_like(v), []
    for t in range(tokens):
        state = state * np.exp(g[:, t])[:, :, None, :]
        delta = beta[:, t] * (v[:, t] - np.einsum("bhce,bhe->bhc", state, k[:, t]))
        state = state + delta[..., None] * k[:, t][:, :, None, :]
        out[:, t] = np.einsum("bhce,bhe->bhc", state, q[:, t]) / np.sqrt(size)
        squares[:, t] = np.einsum("bhce,bhe->bhc", state**2, q[:, t]**2) / size
        states = [state, *states][:snapshots]
    return out, states, squares


def make(rng, size, heads, tokens, sequences=1, key_heads=None, kda=False):
    """q, k, v, g, beta, state."""
    unit = lambda shape: (lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True))(rng.standard_normal(shape))
    key_shape = (sequences, tokens, key_heads or heads, size)
    g = -np.exp(rng.uniform(np.log(1e-4), np.log(20), (sequences, tokens, heads, size if kda else 1)))
    g[rng.random(g.shape) < 0.02] = -316
    v = rng.uniform(-0.3, 5, (sequences, tokens, heads, size))
    v[rng.random(v.shape) < 0.01] = 24.8
    beta = rng.uniform(0, 1, (sequences, tokens, heads, 1))
    state = rng.standard_normal((sequences, heads, size, size))
    return [x.astype(np.float32) for x in (unit(key_shape), unit(key_shape), v, g, beta, state)]
