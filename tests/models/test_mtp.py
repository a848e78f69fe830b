"""Multi-token prediction: a toy qwen35moe with a block that drafts, in the real llama-server with --spec-type draft-mtp, as users run it.
Greedy tokens are those without drafts; drafts are rejected from the first, the second and the last token on; and the target decodes as
often as on the CPU backend: a state that could not be gone back to would be decoded again.

`random` drafts nothing that is right. `tied` drafts from the token's embedding, which is most of what its own layers decide by.

What is copied between host and device is told by the emulator's counters, of which two runs of different lengths are compared: what loading
the model and reading the prompts took is in both.
"""
import collections
import dataclasses
import functools
import json
import pathlib
import re

import pytest

import toys
from scoring import DEVICE
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

    @property
    def accepted(self) -> int:
        return sum(accepted for _, accepted in self.steps)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """run(toy, drafts, device, n=N, counts=None): the completions of PROMPTS, made once; counts: a file for the emulator's counters."""
    folder = tmp_path_factory.mktemp("mtp")

    @functools.cache
    def path(toy: str) -> pathlib.Path:
        toys.write(folder / f"{toy}.gguf", TOYS[toy], "f32")
        return folder / f"{toy}.gguf"

    @functools.cache
    def get(toy: str, drafts: int, device: str, n: int = N, counts: "pathlib.Path | None" = None) -> Run:
        speculative = ("--spec-type", "draft-mtp", "--spec-draft-n-max", drafts) if drafts else ()
        devices = ("--device", "none") if device == "cpu" else ()
        log = folder / f"{toy}-{drafts}-{device}-{n}.log"
        environment = {"LLAMA_TRACE": "1", **({"STRATA_COUNT": str(counts)} if counts else {})}
        flags = ("-c", 512, "-np", 1, "-t", 1, "--metrics", "--no-warmup", "--cache-ram", 0, *devices, *speculative)
        with serving(path(toy), *flags, log=log, **environment) as server:
            answers = [server.complete(prompt, n, ignore_eos=True) for prompt in PROMPTS]
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
    print(f"{toy}, {drafts} drafts: {ours.decodes} decodes for {len(ours.tokens)} tokens, {ours.accepted} accepted; by draft "
          f"{dict(sorted(collections.Counter(ours.steps).items()))}")
    assert (ours.tokens, ours.steps, ours.decodes) == (cpu.tokens, cpu.steps, cpu.decodes)
    assert ours.decodes == plain.decodes - ours.accepted
    assert ours.restored == 0


@pytest.mark.parametrize("drafts", DRAFTS)
def test_every_kind_of_rejection_happened(run, drafts):
    """At the first, the second and the last draft token, and none at all; `random` is rejected at the first."""
    seen = {accepted for drafted, accepted in run("tied", drafts, DEVICE).steps if drafted == drafts}
    assert {0, min(1, drafts), drafts - 1, drafts} <= seen
    assert sum(accepted == 0 for _, accepted in run("random", DRAFTS[-1], DEVICE).steps) > N


def test_no_state_is_copied(run, tmp_path):
    """Between host and device go tokens, positions, masks, hidden states for the drafts and logits, but no row of a recurrent state."""
    shape = TOYS["tied"]
    of_state = {"convolution": 4 * (shape.conv - 1) * shape.state * (2 * shape.k_heads + shape.v_heads), "recurrence": 4 * shape.state**2 * shape.v_heads}
    runs, copies = {}, {}
    for n in (N // 2, N):
        runs[n] = run("tied", 3, DEVICE, n, tmp_path / f"counts-{n}.json")
        counted, = json.loads((tmp_path / f"counts-{n}.json").read_text())["copies"].values()
        copies[n] = {direction: collections.Counter({int(size): count for size, count in counted[direction]["sizes"].items()})
                     for direction in ("host_to_device", "device_to_host")}
    steps = len(runs[N].steps) - len(runs[N // 2].steps)
    accepted = runs[N].accepted - runs[N // 2].accepted
    decodes = runs[N].decodes - runs[N // 2].decodes
    assert steps > 0 and accepted > 0
    print(f"{steps} steps, {accepted} accepted tokens, {decodes / accepted:.2f} target decodes an accepted token")
    for direction in copies[N]:
        more = copies[N][direction]
        more.subtract(copies[N // 2][direction])
        total = sum(size * count for size, count in more.items())
        print(f"{direction}: {total / accepted:,.0f} bytes an accepted token; by size {dict(sorted((+more).items()))}")
        assert total > 0
        for what, row in of_state.items():
            assert not [size for size in +more if size % row == 0], f"rows of the {what}'s state went {direction}"
