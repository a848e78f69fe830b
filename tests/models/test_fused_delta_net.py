"""What becomes of the states of linear layers, with the fused decode against every fusion off: sequences together and alone, forked, saved
and loaded, drafts checked and rejected. The same logits, bit for bit."""
import llama_cpp
import numpy as np
import pytest

import scoring
import toys
from scoring import DEVICE
from support.fusions import counted, fusions

SEQUENCES = 4
LINEAR_LAYERS = 3  # of a toy
MOST_TOKENS = 8    # of a sequence, that are fused


@pytest.fixture(scope="module", params=list(toys.SHAPES))
def toy(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("toys") / f"{request.param}.gguf"
    toys.write(path, toys.SHAPES[request.param], "q8_0")
    model = scoring.Model(str(path), DEVICE)
    yield model
    model.close()


class Run:
    """A context whose sequences are given random tokens; keeps the logits, and how often the fused decode ran in batches of few tokens."""

    def __init__(self, context):
        self.context, self.memory = context, llama_cpp.llama_get_memory(context.ctx)
        self.ends = [0] * SEQUENCES
        self.rng = np.random.default_rng(7)
        self.logits, self.applied = [], []

    def decode(self, *sequences, tokens=1):
        rows = [(int(self.rng.integers(toys.N_VOCAB)), self.ends[s] + i, s) for s in sequences for i in range(tokens)]
        with counted() as applied:
            self.logits.append(self.context.decode(rows).tobytes())
        if tokens <= MOST_TOKENS:
            self.applied.append(applied["delta_net_decode"])
        for s in sequences:
            self.ends[s] += tokens

    def fork(self, source, target):
        llama_cpp.llama_memory_seq_rm(self.memory, target, -1, -1)
        llama_cpp.llama_memory_seq_cp(self.memory, source, target, -1, -1)
        self.ends[target] = self.ends[source]

    def reject(self, sequence, tokens):
        self.ends[sequence] -= tokens
        assert llama_cpp.llama_memory_seq_rm(self.memory, sequence, self.ends[sequence], -1)


def together(run):
    """One by one, then more and more of them; the first tokens are single ones."""
    run.decode(0)
    run.decode(0)
    run.decode(1)
    run.decode(0, 1)
    run.decode(3, 2)
    for _ in range(2):
        run.decode(*range(SEQUENCES))
    run.decode(3, 1)
    run.decode(2, 0, tokens=3)


def forked(run):
    """Sequences that go on from the same state, and from each other's."""
    run.decode(0, 1, tokens=12)
    run.fork(0, 2)
    run.fork(1, 3)
    run.decode(*range(SEQUENCES))
    run.fork(3, 0)
    run.decode(*range(SEQUENCES))
    run.fork(2, 1)
    run.fork(0, 2)
    run.decode(2, 1, 0)
    run.decode(*range(SEQUENCES))


def saved(run):
    run.decode(0, 1, tokens=10)
    run.decode(0, 1)
    state, end = run.context.state(), run.ends[0]
    for _ in range(2):
        run.decode(0, 1)
    assert run.context.restore(state)
    run.ends[0] = end
    for _ in range(2):
        run.decode(1, 0)


def rejected(run):
    """Drafts of which some are rejected, of one sequence and of several."""
    run.decode(0, 1, 2, tokens=11)
    for drafts, wrong in ((3, 1), (3, 3), (1, 1), (2, 0)):
        run.decode(0, tokens=1 + drafts)
        run.reject(0, wrong)
        run.decode(0)
    run.decode(0, 1, 2, tokens=4)
    run.reject(0, 2)
    run.reject(2, 3)
    run.decode(0, 1, 2)
    run.decode(2, 0, 1, tokens=3)


@pytest.mark.parametrize("scenario,snapshots", [(together, 0), (together, 3), (forked, 0), (forked, 2), (saved, 0), (rejected, 3)])
def test_logits(toy, scenario, snapshots):
    runs = []
    for fused in (False, True):
        with fusions(fused):
            context = toy.context(256 * SEQUENCES, 64, True, SEQUENCES, n_rs_seq=snapshots)
            try:
                run = Run(context)
                scenario(run)
            finally:
                context.close()
        runs.append(run)
    plain, fused = runs
    assert plain.logits == fused.logits
    # In each layer of each batch, or of its parts where llama.cpp splits it.
    assert not any(plain.applied) and all(n > 0 and n % LINEAR_LAYERS == 0 for n in fused.applied), fused.applied
