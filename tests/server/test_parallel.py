"""Requests side by side on the slots of one server, and one after the other on the same slot: each answer is that of its prompt alone."""
import concurrent.futures
import random

import pytest

from support.server import serving, sure

pytestmark = pytest.mark.timeout(1800)  # the first builds llama-server

WORDS = "sea lamp pier night stone river glass paper winter garden engine letter window silver hollow ember".split()
ANCHOR = "Once upon a time there was a lighthouse keeper"
MARGIN = 1e-2


def prompts(count: int, seed: int):
    """Short prompts, no two the same; some begin alike."""
    choose = random.Random(seed)
    made = {}
    while len(made) < count:
        made["Tell me about the " * choose.randint(0, 1) + " ".join(choose.choices(WORDS, k=choose.randint(1, 7)))] = None
    return list(made)


def together(server, jobs, clients):
    """The answers of complete(prompt, n, ...) for every job (prompt, n, options), so many at a time."""
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        waiting = [pool.submit(server.complete, prompt, n, **options) for prompt, n, options in jobs]
        return [each.result() for each in waiting]


def test_two_hundred_requests(server):
    """On four slots from eight clients: all are answered, each as its prompt is alone. Prompts where two tokens are all but equally likely
    are left out: there the order of summation, which depends on what shares the batch, decides. So are those with another's answer."""
    n = {prompt: 3 + i % 10 for i, prompt in enumerate(prompts(60, seed=3))}
    alone = {prompt: server.complete(prompt, n[prompt], n_probs=2, cache_prompt=False) for prompt in n}
    told_apart = {tuple(answer["tokens"]): prompt for prompt, answer in alone.items() if sure(answer, MARGIN)}
    alone = {prompt: [*tokens] for tokens, prompt in told_apart.items()}
    assert len(alone) >= 40
    asked = [prompt for prompt in alone for _ in range(200 // len(alone) + 1)][:200]
    random.Random(4).shuffle(asked)
    answers = together(server, [(prompt, n[prompt], {}) for prompt in asked], clients=8)
    assert len(answers) == 200 and {answer["id_slot"] for answer in answers} == {0, 1, 2, 3}
    wrong = {prompt for prompt, answer in zip(asked, answers) if answer["tokens"] != alone[prompt]}
    assert not wrong


@pytest.mark.parametrize("sequences,tokens,times", [(8, 32, 2), pytest.param(8, 256, 10, marks=pytest.mark.full)])
@pytest.mark.parametrize("arch,kind", [("qwen35moe", "q8_0")])
def test_anchor_after_many(toy, tmp_path, arch, kind, sequences, tokens, times):
    """Sequences at once, then one prompt alone, again and again: its answer stays the same to the last bit of its probabilities."""
    arguments = ["-np", sequences, "-c", sequences * (tokens + 64), "-ctk", "q8_0", "-ctv", "q8_0"]
    with serving(toy(arch, kind), *arguments, log=tmp_path / "log") as server:
        def anchor(slot):
            answer = server.complete(ANCHOR, 48, id_slot=slot, n_probs=3, cache_prompt=False)
            return [[(one["id"], one["logprob"]) for one in each["top_logprobs"]] for each in answer["completion_probabilities"]]

        first = anchor(0)
        assert len(first) == 48
        for time in range(times):
            answers = together(server, [(prompt, tokens, {}) for prompt in prompts(sequences, seed=time)], clients=sequences)
            assert [len(answer["tokens"]) for answer in answers] == [tokens] * sequences
            assert anchor(time % sequences) == first


@pytest.mark.parametrize("arch,kind", [("qwen35", "q4_K"), ("qwen35moe", "f16")])
def test_slot_that_was_used_before(toy, tmp_path, arch, kind):
    """Prompt A, then B on the same slot, is B on a fresh server, also where B begins as A does."""
    first = "Tell me about the sea and the lamp on the pier at night"
    arguments = ["-np", 1, "-c", 512]
    after = {}
    with serving(toy(arch, kind), *arguments, log=tmp_path / "used") as server:
        for second in ("Winter", "Tell me about the sea and the garden, " * 4):
            server.complete(first, 24)
            after[second] = server.complete(second, 24, n_probs=2)
    for second, answer in after.items():
        with serving(toy(arch, kind), *arguments, log=tmp_path / "fresh") as server:
            fresh = server.complete(second, 24, n_probs=2)
        assert answer["content"] == fresh["content"]
        if answer["timings"]["cache_n"] == 0:  # else a shorter batch read the prompt
            assert answer["completion_probabilities"] == fresh["completion_probabilities"]
