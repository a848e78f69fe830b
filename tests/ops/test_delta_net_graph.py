"""The delta net without its own op, as llama.cpp builds it of others where a device lacks the fused one: in chunks (CUMSUM, TRI, FILL, DIAG,
SOLVE_TRI, products) and a token at a time. Both against the float64 recurrence."""
import numpy as np
import pytest
from support.delta_net import make, reference
from support.ggml import lib
from support.ops import Graph, new_rng, nmse

LIMIT = 1e-10  # the running sums of the decay are differences of larger numbers


def by_tokens(g, x):
    """[n, heads, tokens, sequences] to [n, tokens, heads, sequences]."""
    return g.permute(x, 0, 2, 1, 3)


def turned(g, x):
    return g.cont(g.transpose(x))


def chunked(g, q, k, v, gate, beta, state, chunk=64):
    """The result [size, heads, tokens, sequences] and the new state."""
    size, heads, tokens, sequences = v.ne
    padding = -tokens % chunk
    chunks, batch = (tokens + padding) // chunk, heads * sequences
    lower, lower_diagonal = lib.GGML_TRI_TYPE_LOWER, lib.GGML_TRI_TYPE_LOWER_DIAG

    q = g.scale(q, 1 / np.sqrt(size))
    q, k, v, gate, beta = (g.pad(by_tokens(g, x), 0, padding, 0, 0) for x in (q, k, v, gate, beta))
    v_beta, k_beta = g.mul(v, beta), g.mul(k, beta)
    in_chunks = lambda x: g.reshape_4d(x, x.ne[0], chunk, chunks, batch)
    q, k, v_beta, k_beta, gate = (in_chunks(x) for x in (q, k, v_beta, k_beta, gate))

    decay = g.cumsum(turned(g, gate))                                              # [chunk, 1, chunks, batch]
    later = g.repeat_4d(g.reshape_4d(decay, 1, chunk, chunks, batch), chunk, chunk, chunks, batch)
    between = g.exp(g.tri(g.sub(later, decay), lower_diagonal))                    # from token i to token j
    kq = g.tri(g.mul(g.mul_mat(k, q), between), lower_diagonal)
    inner = g.tri(g.mul(g.mul_mat(k, k_beta), between), lower)
    identity = g.diag(g.fill(g.view_1d(inner, chunk, 0), 1.0))
    solved = g.add(g.solve_tri(g.add(inner, identity), g.neg(inner), True, True, False), identity)

    v = g.mul_mat(turned(g, v_beta), solved)                                       # [size, chunk, chunks, batch]
    decay_exp = g.exp(decay)
    k_decayed = g.mul_mat(g.mul(turned(g, k_beta), decay_exp), solved)
    q_decayed = g.mul(q, turned(g, decay_exp))
    last = g.cont(g.view_4d(decay, 1, 1, chunks, batch, decay.nb[1], decay.nb[2], decay.nb[3], 4 * (chunk - 1)))
    k_to_end = turned(g, g.mul(k, turned(g, g.exp(g.neg(g.sub(decay, last))))))
    last = g.exp(last)
    v_turned = turned(g, v)

    state = g.reshape_4d(state, size, size, 1, batch)
    for c in range(chunks):
        now = lambda x: g.view_4d(x, x.ne[0], x.ne[1], 1, x.ne[3], x.nb[1], x.nb[2], x.nb[3], c * x.nb[2])
        v_new = g.sub(now(v_turned), g.mul_mat(now(k_decayed), state))
        result = g.add(g.mul_mat(state, now(q_decayed)), g.mul_mat(v_new, now(kq)))
        v = g.set_inplace(v, result, v.nb[1], v.nb[2], v.nb[3], c * v.nb[2])
        state = g.add(g.mul(state, now(last)), g.mul_mat(now(k_to_end), v_new))
    out = g.view_4d(v, size, tokens, heads, sequences, size * 4, size * 4 * chunk * chunks, size * 4 * chunk * chunks * heads, 0)
    return g.cont(g.permute(out, 0, 2, 1, 3)), state


def single(g, q, k, v, gate, beta, state):
    """One token."""
    size, heads, _, sequences = v.ne
    q, k, v = by_tokens(g, g.scale(q, 1 / np.sqrt(size))), by_tokens(g, k), by_tokens(g, v)
    gate = g.reshape_4d(gate, 1, gate.ne[0], heads, sequences)
    beta = g.reshape_4d(beta, 1, 1, heads, sequences)
    state = g.mul(state, g.exp(g.transpose(gate)))
    known = g.sum_rows(g.mul(state, k))
    delta = g.mul(g.sub(v, g.transpose(known)), beta)
    state = g.add(state, g.mul(g.repeat(k, state), g.transpose(delta)))
    return g.cont(g.permute(g.sum_rows(g.mul(state, q)), 2, 0, 1, 3)), state


def check(build, inputs):
    inputs[3] = np.maximum(inputs[3], np.float32(-2))  # decays as strong as a sum of 64 still resolves
    with Graph() as g:
        out, state = build(g, *(g.input(x) for x in inputs))
        out, state = g.run(out, state)
    expected, expected_state, squares = reference(*inputs, 1)
    assert np.sum((out.reshape(expected.shape) - expected) ** 2) < LIMIT * np.sum(squares)
    assert nmse(state.reshape(expected_state[0].shape), expected_state[0]) < LIMIT


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 150])
def test_chunks(tokens):
    check(chunked, make(new_rng(), 64, 2, tokens))


def test_chunks_of_sequences():
    check(chunked, make(new_rng(), 32, 3, 70, sequences=2))


@pytest.mark.parametrize("kda", [False, True])
def test_a_token(kda):
    check(single, make(new_rng(), 64, 3, 1, sequences=2, kda=kda))
