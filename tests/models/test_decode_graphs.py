"""Decodes as HIP graphs: the same bytes as launch by launch, the same kernels, and none for prompts."""
import numpy as np
import pytest

import scoring
import toys
from scoring import DEVICE
from support.ggml import counter
from support.tools import run_tool

COUNTERS = ("graphs_captured", "graph_launches", "launches", "copies", "graphs_planned", "graphs_replayed")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """made(name): the path of a toy, or of a model that test-llama-archs makes."""
    folder = tmp_path_factory.mktemp("models")

    def get(name):
        path = folder / f"{name}.gguf"
        if name in toys.SHAPES:
            toys.write(path, toys.SHAPES[name], "q4_K")
        else:
            run_tool("test-llama-archs", "-a", name.rpartition("-")[0], "-s", 1234, "-o", folder, timeout=300)
        return path

    return get


def run(path, n_seq: int, steps: int, prompt: int, n_ctx: int = 512):
    """(bytes of the logits of each step, counters of the decodes)"""
    model = scoring.Model(str(path), DEVICE)
    tokens = np.random.default_rng(3).integers(0, model.n_vocab, (n_seq, prompt + steps)).tolist()
    context = model.context(n_ctx * n_seq, 512, True, n_seq)
    try:
        context.decode([(row[p], p, s) for s, row in enumerate(tokens) for p in range(prompt)])
        before = [counter(name) for name in COUNTERS]
        logits = [context.decode([(row[p], p, s) for s, row in enumerate(tokens)]).tobytes() for p in range(prompt, prompt + steps)]
        return logits, {name: counter(name) - old for name, old in zip(COUNTERS, before)}
    finally:
        context.close()
        model.close()


@pytest.mark.parametrize("name,n_seq", [("qwen35moe", 1), ("qwen35", 3), ("llama-dense", 1), ("qwen4exp-moe", 1), ("gpt-oss-moe", 2)])
def test_same_bytes_and_kernels(made, monkeypatch, name, n_seq):
    path, steps = made(name), 6
    monkeypatch.setenv("STRATA_DISABLE", "graphs")
    wanted, listed = run(path, n_seq, steps, 5)
    monkeypatch.delenv("STRATA_DISABLE")
    got, counts = run(path, n_seq, steps, 5)
    assert got == wanted
    assert listed["graphs_captured"] == listed["graph_launches"] == 0
    assert (counts["graphs_captured"], counts["graph_launches"]) == (1, steps - 2)
    assert (counts["launches"], counts["copies"]) == (listed["launches"], listed["copies"]) and counts["launches"] > steps


def test_a_longer_cache_is_another_graph(made):
    """llama.cpp makes a new graph every 256 tokens."""
    _, counts = run(made("llama-dense"), 1, 8, 252)
    assert counts["graphs_planned"] == 2 and counts["graphs_captured"] == 2 and counts["graph_launches"] == 8 - 2 * 2


def test_prompts_are_launched_one_by_one(made):
    """Batches of one size are the same graph to llama.cpp."""
    size, batches = 40, 5
    model = scoring.Model(str(made("llama-dense")), DEVICE)
    context = model.context(512, 512, True)
    try:
        before = [counter(name) for name in COUNTERS]
        for batch in range(batches):
            context.decode([(7, p, 0) for p in range(batch * size, (batch + 1) * size)])
        counts = {name: counter(name) - old for name, old in zip(COUNTERS, before)}
    finally:
        context.close()
        model.close()
    assert counts["graphs_replayed"] == batches - 1 and counts["graph_launches"] == 0
