"""Whole models on the emulator against llama.cpp's CPU backend: perplexity, likeliest tokens, splits, equal bytes."""
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import scoring
from scoring import DEVICE

NAMES = ["smollm2", "gemma3"]
UBATCHES = [64, 128, 512]
# The short form takes every ubatch and both attention paths, but not all pairs of them.
SHORT = {(64, True, 1), (128, True, 1), (512, True, 1), (64, False, 1), (512, False, 1), (64, True, 4), (128, False, 4)}


def cases():
    """(name, n_ubatch, flash_attn, n_seq, n_tokens) with test ids; the long ones marked `full`."""
    for name in NAMES:
        for n_tokens in (192, 1024):
            for n_seq in (1, 4):
                for flash_attn in (True, False):
                    for n_ubatch in UBATCHES:
                        short = n_tokens == 192 and (n_ubatch, flash_attn, n_seq) in SHORT
                        yield pytest.param(
                            name, n_ubatch, flash_attn, n_seq, n_tokens, marks=[] if short else [pytest.mark.full],
                            id=f"{name}-ub{n_ubatch}-{'fa' if flash_attn else 'nofa'}-{n_seq}seq-{n_tokens}")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name,n_ubatch,flash_attn,n_seq,n_tokens", list(cases()))
def test_perplexity(scores, name, n_ubatch, flash_attn, n_seq, n_tokens):
    """Perplexity within 1 % of the CPU backend's; the likeliest token that of the same weights in f32 at 95 % of the positions.

    Both backends round activations to 8 bits, each in its own way, and where two tokens are nearly as likely that decides: on
    Gemma 3 the CPU backend picks the token of the f32 weights at 92 % of the positions only, and agrees with itself, flash
    attention on and off, at 91 %. So the likeliest tokens are compared with what no rounding touched. For the same reason 192
    tokens cannot tell 1 % from noise (the CPU's own two perplexities of SmolLM2 differ by 0.8 %): there, two standard errors are
    allowed on top, of the mean difference and of the share. With 1,024 tokens it is 1 % and 95 %. Four sequences of 256 tokens have
    four beginnings without context, where many tokens are nearly as likely (Gemma 3: perplexity 88, the CPU backend at 91 %): there
    it is 95 %, or what the CPU backend reaches."""
    case = (n_ubatch, flash_attn, n_seq, n_tokens)
    got, cpu = scores(name, DEVICE, *case), scores(name, "cpu", *case)
    exact = scores(name, "exact", 512, False, n_seq, n_tokens)
    difference = got.loss - cpu.loss
    errors = 2 if n_tokens < 1024 else 0
    noise = errors * difference.std() / np.sqrt(len(difference))
    share_noise = errors * np.sqrt(0.05 * 0.95 / n_tokens)
    print(f"perplexity {got.perplexity:.4f}, CPU {cpu.perplexity:.4f}, f32 {exact.perplexity:.4f}; likeliest token agrees with "
          f"CPU at {got.agreement(cpu):.2%}, with f32 at {got.agreement(exact):.2%} (CPU with f32: {cpu.agreement(exact):.2%})")
    assert abs(got.perplexity / cpu.perplexity - 1) < 0.01 + noise
    assert abs(got.perplexity / exact.perplexity - 1) < 0.01 + noise
    needed = 0.95 if n_seq == 1 else min(0.95, cpu.agreement(exact))
    assert got.agreement(exact) >= needed - share_noise


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flash_attn", [True, False], ids=["fa", "nofa"])
@pytest.mark.parametrize("n_ubatch,n_tokens", [pytest.param(n_ubatch, n_tokens, id=f"ub{n_ubatch}-{n_tokens}", marks=marks)
                                               for n_tokens, marks in [(192, []), (1024, [pytest.mark.full])]
                                               for n_ubatch in UBATCHES if n_tokens == 1024 or n_ubatch == 64])
@pytest.mark.parametrize("name", NAMES)
def test_likeliest_tokens_of_the_cpu_backend(scores, name, n_ubatch, n_tokens, flash_attn):
    """On a text of which the model is mostly sure, rounding decides little: the likeliest token is that of the CPU backend at 95 %
    of the positions, and the perplexity is within 1 % of its."""
    case = (n_ubatch, flash_attn, 1, n_tokens, scoring.RHYMES)
    got, cpu = scores(name, DEVICE, *case), scores(name, "cpu", *case)
    print(f"perplexity {got.perplexity:.4f}, CPU {cpu.perplexity:.4f}; likeliest token agrees at {got.agreement(cpu):.2%}")
    assert got.agreement(cpu) >= 0.95
    assert abs(got.perplexity / cpu.perplexity - 1) < 0.01


def digest_apart(name: str, case: tuple, **environment: str) -> str:
    """Of the logits' bytes of a run in a process of its own."""
    program = pathlib.Path(scoring.__file__)
    run = subprocess.run([sys.executable, program, name, DEVICE, *(str(int(value)) for value in case)],
                         env=dict(os.environ, **environment), capture_output=True, text=True, timeout=1500)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])["digest"]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("environment", [{}, {"STRATA_SYNC": "1"}, {"STRATA_EMULATOR_SYNC": "1"}],
                         ids=["again", "launches-waited-for", "streams-synchronous"])
@pytest.mark.parametrize("name", NAMES)
def test_same_bytes(scores, name, environment):
    """Another run gives the same bytes; one with launches made synchronous too, else work overtook other work."""
    case = (64, True, 1, 96)
    assert digest_apart(name, case, **environment) == scores(name, DEVICE, *case).digest


@pytest.mark.parametrize("flash_attn", [True, False], ids=["fa", "nofa"])
@pytest.mark.parametrize("name", NAMES)
def test_decode_agrees_with_prefill(model, name, flash_attn):
    """Tokens fed one by one, and four sequences of them side by side, give the logits of a prompt fed at once."""
    loaded = model(name)
    tokens = loaded.tokens((scoring.FOLDER / scoring.PROSE).read_bytes())[:24]

    def logits(batches, n_seq):
        context = loaded.context(64 * n_seq, 64, flash_attn, n_seq)
        rows = [row.copy() for batch in batches for row in context.decode(batch)]
        context.close()
        return np.array(rows, dtype=np.float64)

    prompt = [[(token, p, 0) for p, token in enumerate(tokens)]]
    one_by_one = [[(token, p, 0)] for p, token in enumerate(tokens)]
    four = [[(token, p, s) for s in range(4)] for p, token in enumerate(tokens)]
    expected = logits(prompt, 1)
    for got in (logits(one_by_one, 1), *np.moveaxis(logits(four, 4).reshape(len(tokens), 4, -1), 1, 0)):
        error = ((got - expected) ** 2).sum() / (expected ** 2).sum()
        print(f"NMSE {error:.2e}")
        assert error < 1e-3


@pytest.mark.parametrize("flash_attn", [True, False], ids=["fa", "nofa"])
@pytest.mark.parametrize("name", NAMES)
def test_greedy_text(model, name, flash_attn):
    """Each token that greedy decoding picks is, to the CPU reading the same text, the likeliest or all but."""
    def context(device):
        return model(name, device).context(64, 64, flash_attn)

    ours, cpu = context(DEVICE), context("cpu")
    tokens = model(name).tokens(b"The lighthouse stood at the end of the")
    batch = [(token, p, 0) for p, token in enumerate(tokens)]
    chosen = []
    for position in range(len(tokens), len(tokens) + 12):
        token = int(ours.decode(batch)[-1].argmax())
        reference = cpu.decode(batch)[-1]
        chosen.append(float(reference.max() - reference[token]))
        batch = [(token, position, 0)]
    ours.close()
    cpu.close()
    print("below the CPU's likeliest by", chosen)
    assert max(chosen) < 0.5
    assert chosen.count(0.0) >= 10


@pytest.mark.parametrize("flash_attn", [True, False], ids=["fa", "nofa"])
@pytest.mark.parametrize("name", NAMES)
def test_two_graph_splits(name, flash_attn):
    """Every decode is two splits: the CPU looks up the token's embedding, the device does the rest."""
    if DEVICE == "cpu":
        pytest.skip("the CPU backend has no second device")
    case = (64, flash_attn, 1, 68)
    program = pathlib.Path(scoring.__file__)
    run = subprocess.run([sys.executable, program, name, DEVICE, *(str(int(value)) for value in case)],
                         env=dict(os.environ, GGML_SCHED_DEBUG="1", STRATA_TEST_LOG="1"), capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr[-3000:]
    splits = [(int(number), device) for number, device in re.findall(r"## SPLIT #(\d+): (\S+) #", run.stderr)]
    assert len(splits) >= 6, run.stderr[-3000:]
    assert {number for number, _ in splits} == {0, 1}
    assert {device for number, device in splits if number == 0} == {"CPU"}
    assert {device for number, device in splits if number == 1} == {"STRATA0"}
