"""Toy models of qwen35 and qwen35moe (toys.py) with matrices of every type: the logits of 300 tokens read at once, in batches of
64, 128 and 300, and of 32 more one by one, against the CPU backend with the same weights, and the same bits again."""
import functools
import pathlib

import numpy as np
import pytest

import scoring
import toys
from scoring import DEVICE
from support.ops import nmse

PROMPT, WRITTEN = 300, 32
UBATCHES = [64, 128, 300]
ALL_TYPES = ["f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq1_s", "iq1_m",
             "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs", "tq1_0", "tq2_0", "mxfp4", "nvfp4", "q1_0", "q2_0"]
SHORT = {("qwen35", "q4_K"), ("qwen35moe", "iq2_s")}
LIMIT = 1e-3


def cases():
    for arch in toys.SHAPES:
        for kind in ALL_TYPES:
            yield pytest.param(arch, kind, marks=[] if (arch, kind) in SHORT else [pytest.mark.full], id=f"{arch}-{kind}")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """toy(arch, kind): the path of the file."""
    folder = tmp_path_factory.mktemp("toys")

    @functools.cache
    def get(arch: str, kind: str) -> pathlib.Path:
        path = folder / f"{arch}-{kind}.gguf"
        toys.write(path, toys.SHAPES[arch], kind)
        return path

    return get


def logits(model: scoring.Model, n_ubatch: int, flash_attn: bool = True, **more) -> tuple[np.ndarray, np.ndarray]:
    """(of the prompt, of the tokens after it)."""
    tokens = np.random.default_rng(5).integers(0, toys.N_VOCAB, PROMPT + WRITTEN).tolist()
    context = model.context(512, n_ubatch, flash_attn, **more)
    try:
        prompt = context.decode([(token, p, 0) for p, token in enumerate(tokens[:PROMPT])]).copy()
        return prompt, np.array([context.decode([(token, PROMPT + i, 0)])[0].copy() for i, token in enumerate(tokens[PROMPT:])])
    finally:
        context.close()


def with_model(path: pathlib.Path, device: str, use):
    model = scoring.Model(str(path), device)
    try:
        return use(model)
    finally:
        model.close()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("arch,kind", list(cases()))
def test_logits(toy, arch, kind):
    """NMSE at most 1e-3 to the CPU backend; and at most twice as far from the same weights as f32 as the CPU backend is. Both round
    activations to 8 bits, the CPU for the K and IQ types 256 values with one scale, ours 32: there ours is the nearer one."""
    path = toy(arch, kind)
    cpu = with_model(path, "cpu", lambda model: logits(model, PROMPT))
    exact = with_model(path, "exact", lambda model: logits(model, PROMPT))
    device = with_model(path, DEVICE, lambda model: [logits(model, n) for n in (*UBATCHES, UBATCHES[0])])
    for n_ubatch, ours in zip(UBATCHES, device):
        for part, got, wanted, true in zip(("prompt", "written"), ours, cpu, exact):
            print(f"{arch} {kind} ubatch {n_ubatch} {part}: NMSE to the CPU {nmse(got, wanted):.2e}; to f32: ours {nmse(got, true):.2e}, "
                  f"the CPU's {nmse(wanted, true):.2e}")
    for ours in device[:len(UBATCHES)]:
        assert max(map(nmse, ours, cpu)) <= LIMIT
        assert all(nmse(got, true) <= 2 * nmse(wanted, true) + 1e-6 for got, wanted, true in zip(ours, cpu, exact))
    assert [part.tobytes() for part in device[0]] == [part.tobytes() for part in device[-1]], "another run gave other bits"
