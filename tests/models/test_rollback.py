"""Draft tokens that are rejected: a recurrent model goes back to a snapshot of its state. 1 to 4 snapshots, rejected from the first,
the second or the last draft token on. (test_state.py runs the upstream test of the same, which also fills the cache beforehand.)"""
import llama_cpp
import numpy as np
import pytest

import scoring
import toys
from scoring import DEVICE
from support.ops import nmse

PROMPT, AFTER = 21, 4
REJECTIONS = [(drafts, first) for drafts in (1, 2, 3, 4) for first in sorted({1, min(2, drafts), drafts})]


@pytest.fixture(scope="module", params=list(toys.SHAPES))
def toy(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("toys") / f"{request.param}.gguf"
    toys.write(path, toys.SHAPES[request.param], "f16")
    model = scoring.Model(str(path), DEVICE)
    yield model
    model.close()


def tokens(seed: int, n: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, toys.N_VOCAB, n).tolist()


def rows(some: list[int], begin: int) -> list[tuple]:
    return [(token, begin + i, 0) for i, token in enumerate(some)]


def after_rejection(model: scoring.Model, drafts: int, first: int, rejected_seed: int) -> np.ndarray:
    """Logits of the tokens after a batch of one sure token and `drafts` drafts, of which those from number `first` on were rejected."""
    context = model.context(256, 64, True, n_rs_seq=drafts)
    try:
        assert llama_cpp.llama_n_rs_seq(context.ctx) == drafts
        context.decode(rows(tokens(1, PROMPT), 0))
        batch = tokens(2, first) + tokens(rejected_seed, drafts + 1 - first)
        context.decode(rows(batch, PROMPT))
        assert llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(context.ctx), 0, PROMPT + first, -1)
        return np.array([context.decode([row])[0].copy() for row in rows(tokens(3, AFTER), PROMPT + first)])
    finally:
        context.close()


def without_drafts(model: scoring.Model, first: int) -> np.ndarray:
    """The same, of a context that never saw what was rejected."""
    context = model.context(256, 64, True)
    try:
        context.decode(rows(tokens(1, PROMPT), 0))
        context.decode(rows(tokens(2, first), PROMPT))
        return np.array([context.decode([row])[0].copy() for row in rows(tokens(3, AFTER), PROMPT + first)])
    finally:
        context.close()


@pytest.mark.parametrize("drafts,first", REJECTIONS)
def test_rejected_tokens_leave_no_trace(toy, drafts, first):
    ours = after_rejection(toy, drafts, first, 4)
    assert after_rejection(toy, drafts, first, 5).tobytes() == ours.tobytes(), "what was rejected changes what comes after"
    error = nmse(ours, without_drafts(toy, first))
    print(f"NMSE to a context without drafts: {error:.1e}")
    assert error < 1e-6
