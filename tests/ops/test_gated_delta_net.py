"""GATED_DELTA_NET against float64, on inputs as models have them: strong and weak decay, keys and queries of length 1, large values."""
import numpy as np
import pytest
from support.delta_net import make, reference
from support.ops import Graph, new_rng, nmse, refusal_of

LIMIT = 1e-12  # f32 arithmetic throughout


def compute(inputs, snapshots=1, permuted=False):
    """The result (B, T, H, S) and the written snapshots, newest first; those that are not written must be left alone."""
    q, k, v, g, beta, state = inputs
    sequences, tokens, heads, size = v.shape
    with Graph() as graph:
        if permuted:
            q, k, v = (graph.permute(graph.input(x.swapaxes(1, 2)), 0, 2, 1, 3) for x in (q, k, v))
        else:
            q, k, v = (graph.input(x) for x in (q, k, v))
        raw = graph.run(graph.gated_delta_net(q, k, v, *(graph.input(x) for x in (g, beta, state)), snapshots)).ravel()
    out, states = np.split(raw, [sequences * tokens * heads * size])
    states = states.reshape(snapshots, sequences, heads, size, size)
    written = min(tokens, snapshots)
    assert np.all(states[written:].view(np.uint32) == 0xFFFFFFFF)
    return out.reshape(sequences, tokens, heads, size), states[:written]


def check(inputs, snapshots=1, permuted=False):
    out, states = compute(inputs, snapshots, permuted)
    expected, expected_states, squares = reference(*inputs, snapshots)
    assert np.sum((out - expected) ** 2) < LIMIT * np.sum(squares)
    for state, wanted in zip(states, expected_states, strict=True):
        assert nmse(state, wanted) < LIMIT
    return out, states


@pytest.mark.parametrize("kda", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 15, 16, 17, 64])
@pytest.mark.parametrize("snapshots", [1, 2, 3, 4])
def test_tokens_and_snapshots(tokens, snapshots, kda):
    check(make(new_rng(), 64, 2, tokens, kda=kda), snapshots)


@pytest.mark.parametrize("kda", [False, True])
@pytest.mark.parametrize("size", [4, 16, 20, 32, 36, 64, 100, 128, 132, 256])
def test_head_sizes(size, kda):
    check(make(new_rng(), size, 3, 9, kda=kda), 2)


@pytest.mark.parametrize("kda", [False, True])
@pytest.mark.parametrize("permuted", [False, True])
def test_sequences_heads_and_strides(permuted, kda):
    check(make(new_rng(), 32, 6, 5, sequences=3, key_heads=2, kda=kda), 3, permuted)


def test_keys_shared_by_sequences():
    rng = new_rng()
    inputs = make(rng, 32, 2, 3, sequences=4)
    inputs[0], inputs[1] = inputs[0][:2], inputs[1][:1]
    check(inputs)


def test_views_of_one_tensor():
    """q, k and v as models have them: parts of the rows of one tensor."""
    rng = new_rng()
    q, k, v, g, beta, state = make(rng, 128, 4, 7, key_heads=2)
    mixed = np.concatenate([x.reshape(7, -1) for x in (q, k, v)], axis=1)
    with Graph() as graph:
        rows = graph.input(mixed)
        part = lambda heads, first: graph.view_4d(rows, 128, heads, 7, 1, 512, rows.nb[1], rows.nb[1] * 7, first * 512)
        out = graph.gated_delta_net(part(2, 0), part(2, 2), part(4, 4), *(graph.input(x) for x in (g, beta, state)), 1)
        raw = graph.run(out).ravel()
    np.testing.assert_array_equal(raw[:q.shape[1] * 512].reshape(v.shape), compute([q, k, v, g, beta, state])[0])


@pytest.mark.parametrize("kda", [False, True])
def test_tokens_at_once_or_one_by_one(kda):
    """The same bits, and so for any split into batches; snapshot k is the state k tokens before."""
    q, k, v, g, beta, state = make(new_rng(), 128, 2, 19, kda=kda)
    out, states = compute([q, k, v, g, beta, state], 4)
    history = []
    for t in range(19):
        now = slice(t, t + 1)
        step, new = compute([q[:, now], k[:, now], v[:, now], g[:, now], beta[:, now], state])
        np.testing.assert_array_equal(step, out[:, now])
        state = new[0]
        history.append(state)
    for snapshot, wanted in zip(states, history[::-1]):
        np.testing.assert_array_equal(snapshot, wanted)


@pytest.mark.parametrize("tokens, heads", [(257, 2), (2048, 2), pytest.param(2048, 32, marks=pytest.mark.full)])
@pytest.mark.timeout(120)
def test_long_prompts(tokens, heads):
    check(make(new_rng(), 128, heads, tokens, key_heads=heads // 2), 2)


@pytest.mark.full
def test_offsets_beyond_2_gib():
    """Queries, keys and values of neighbouring tokens 96 MiB apart, the last of them more than 2 GiB from the first."""
    rng = new_rng()
    tokens, size, apart = 24, 32, 96 << 20
    q, k, v, g, beta, state = make(rng, size, 1, tokens)
    with Graph() as graph:
        rows = graph.tensor([apart // 4, tokens])
        views = [graph.view_4d(rows, size, 1, tokens, 1, size * 4, apart, apart * tokens, i * size * 4) for i in range(3)]
        filled = [graph.cpy(graph.input(x), view) for x, view in zip((q, k, v), views)]
        out = graph.gated_delta_net(*filled, *(graph.input(x) for x in (g, beta, state)), 1)
        raw = graph.run(out).ravel()
    expected, _, _ = reference(q, k, v, g, beta, state, 1)
    assert nmse(raw[:tokens * size].reshape(expected.shape), expected) < LIMIT


def test_refusals():
    def reason(size, key_size=None):
        q, k, v, g, beta, state = make(new_rng(), size, 1, 1)
        q, k = (x[..., :key_size] for x in (q, k))
        return refusal_of(lambda graph, *tensors: graph.gated_delta_net(*tensors, 1), q, k, v, g, beta, state)

    assert reason(64) is None
    assert "length" in reason(30) and "length" in reason(260)
    assert "different sizes" in reason(64, 32)

    def reason_of_part(number, tokens):
        """One operand has fewer tokens than the others."""
        inputs = make(new_rng(), 32, 2, 3)
        inputs[number] = np.ascontiguousarray(inputs[number][:, :tokens])
        return refusal_of(lambda graph, *tensors: graph.gated_delta_net(*tensors, 1), *inputs)

    assert all(reason_of_part(number, 3) is None and reason_of_part(number, 2) for number in (0, 1, 3, 4))
