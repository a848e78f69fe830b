"""Multi-token prediction: a toy qwen35moe with a block that drafts, in the real llama-server with --spec-type draft-mtp, as users run it.
Greedy tokens are those without drafts; drafts are rejected from the first, the second and the last token on; and the target decodes as
often as on the CPU backend: a state that could not be gone back to would be decoded again.

`random` drafts nothing that is right. `tied` drafts from the token's embedding, which is most of what its own layers decide by.
"""
import collections
import dataclasses
import functools
import pathlib
import re

import pytest

import toys
from conftest import DEVICE
from support.server import serving

PROMPTS = [[step * i % 390 + 3 for i in range(19)] for step in (7, 11, 17)]
N = 25  # tokens written after each; the first one is the prompt's
RANDOM = toys.Shape(arch="qwen35moe", n_vocab=400, n_embd=256, n_head=1, k_heads=1, v_heads=2, n_expert=8, n_used=2, n_nextn=1)
TOYS = {"random": RANDOM, "tied": dataclasses.replace(RANDOM, drafts_often_right=True)}
DRAFTS = (1, 2, 3, 4)
CASES = [*(("tied", drafts) for drafts in DRAFTS), ("random", DRAFTS[-1])]


@dataclasses.dataclass(frozen=True)
class Run:
    """What came of the completions of PROMPTS, one after the other."""
    tokens: tuple           # that were written
    decodes: int            # of the target model, the prompts' included
    steps: tuple            # (drafted, accepted) of each decode that had drafts, in order
    restored: int           # of these, how often the state could not be gone back to but was restored and decoded again


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """run(toy, drafts, device): the completions of PROMPTS, made once."""
    folder = tmp_path_factory.mktemp("mtp")

    @functools.cache
    def path(toy: str) -> pathlib.Path:
        toys.write(folder / f"{toy}.gguf", TOYS[toy], "f32")
        return folder / f"{toy}.gguf"

    @functools.cache
    def get(toy: str, drafts: int, device: str) -> Run:
        speculative = ("--spec-type", "draft-mtp", "--spec-draft-n-max", drafts) if drafts else ()
        devices = ("--device", "none") if device == "cpu" else ()
        log = folder / f"{toy}-{drafts}-{device}.log"
        flags = ("-c", 512, "-np", 1, "-t", 1, "--metrics", "--no-warmup", *devices, *speculative)
        with serving(path(toy), *flags, log=log, LLAMA_TRACE="1") as server:
            answers = [server.complete(prompt, N, ignore_eos=True) for prompt in PROMPTS]
            decodes = int(re.search(r"^llamacpp:n_decode_total (\d+)", server.get("/metrics"), re.MULTILINE)[1])
        told = re.findall(r"accepted\s+(\d+)/\s*(\d+) draft tokens( \(restore)?", log.read_text(errors="replace"))
        steps = tuple((int(drafted), int(accepted)) for accepted, drafted, _ in told)
        assert sum(drafted for drafted, _ in steps) == sum(answer["timings"].get("draft_n", 0) for answer in answers)
        tokens = tuple(token for answer in answers for token in answer["tokens"])
        return Run(tokens, decodes, steps, sum(bool(restored) for *_, restored in told))

    return get


@pytest.mark.parametrize("toy,drafts", CASES)
def test_as_without_drafts(run, toy, drafts):
    plain, ours = run(toy, 0, DEVICE), run(toy, drafts, DEVICE)
    assert len(ours.tokens) == N * len(PROMPTS) and ours.tokens == plain.tokens
    assert not plain.steps


@pytest.mark.parametrize("toy,drafts", CASES)
def test_decodes_per_accepted_token(run, toy, drafts):
    """As the CPU backend, draft by draft; and each accepted one saves a decode."""
    ours, cpu, plain = run(toy, drafts, DEVICE), run(toy, drafts, "cpu"), run(toy, 0, DEVICE)
    accepted = sum(accepted for _, accepted in ours.steps)
    print(f"{toy}, {drafts} drafts: {ours.decodes} decodes for {len(ours.tokens)} tokens, {accepted} accepted; by draft "
          f"{dict(sorted(collections.Counter(ours.steps).items()))}")
    assert (ours.tokens, ours.steps, ours.decodes) == (cpu.tokens, cpu.steps, cpu.decodes)
    assert ours.decodes == plain.decodes - accepted
    assert ours.restored == 0


@pytest.mark.parametrize("drafts", DRAFTS)
def test_every_kind_of_rejection_happened(run, drafts):
    """At the first, the second and the last draft token, and none at all; `random` is rejected at the first."""
    seen = {accepted for drafted, accepted in run("tied", drafts, DEVICE).steps if drafted == drafts}
    assert {0, min(1, drafts), drafts - 1, drafts} <= seen
    assert sum(accepted == 0 for _, accepted in run("random", DRAFTS[-1], DEVICE).steps) > N
