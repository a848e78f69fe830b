"""Whole models with every fusion on against every fusion off: the same logits, bit for bit. Toys of qwen35 and qwen35moe (toys.py), and the
small random models that test-llama-archs makes."""
import functools
import pathlib

import numpy as np
import pytest

import scoring
import toys
from scoring import DEVICE
from support.fusions import counted, fusions
from support.tools import run_tool

PROMPT, WRITTEN = 40, 4
ARCHITECTURES = ["llama-dense", "llama-moe", "qwen3-dense", "qwen3moe-moe", "gemma3-dense", "gpt-oss-moe", "qwen3next-moe"]
TYPES = ["q8_0", "q4_K"]

# Which fusions a decode of the toys must meet, so that none is lost unseen.
LINEAR = {"add_rms_norm_mul", "rms_norm_mul", "mul_mat_group_delta_net_gates", "delta_net_decode", "mul_mat_group", "shared_q8_1",
          "gate_q8_1", "get_rows_q8_1"}
DECODED = {
    "qwen35": LINEAR | {"mul_mat_glu"},
    "qwen35moe": LINEAR | {"mul_mat_id_glu_shared", "top_k_router", "expert_output"},
    "llama-dense": {"add_rms_norm_mul", "rope_set_rows"},
    "qwen3moe-moe": {"add_rms_norm_mul", "top_k_router"},
    "gemma3-dense": {"rms_norm_mul_add_rms_norm_mul", "rms_norm_mul_rope"},
    "gpt-oss-moe": {"add_rms_norm_mul", "rope_set_rows", "top_k_router"},
}
# With flash attention values are stored as keys are.
ATTENTION = {True: {"rms_norm_mul_rope_set_rows_qkv"}, False: {"rms_norm_mul_rope", "rms_norm_mul_rope_set_rows"}}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """made(architecture, type of the weights or None): the path of a model."""
    folder = tmp_path_factory.mktemp("models")

    @functools.cache
    def get(name: str, kind: "str | None") -> pathlib.Path:
        if kind is not None:
            path = folder / f"{name}-{kind}.gguf"
            toys.write(path, toys.SHAPES[name], kind)
            return path
        path = folder / f"{name}.gguf"
        if not path.exists():
            result = run_tool("test-llama-archs", "-a", name.rpartition("-")[0], "-s", 1234, "-o", folder, timeout=300)
            assert path.exists(), result.stdout[-2000:]
        return path

    return get


def run(path: pathlib.Path, fused: bool, flash_attn: bool, n_seq: int):
    """(the bytes of all logits, of prompts at once and of tokens one by one; how often fusions were applied to the latter)"""
    model = scoring.Model(str(path), DEVICE)
    tokens = np.random.default_rng(5).integers(0, model.n_vocab, (n_seq, PROMPT + WRITTEN)).tolist()
    with fusions(fused):
        context = model.context(256 * n_seq, 512, flash_attn, n_seq)
        try:
            logits = [context.decode([(row[p], p, s) for s, row in enumerate(tokens) for p in range(PROMPT)]).tobytes()]
            with counted() as applied:
                for p in range(PROMPT, PROMPT + WRITTEN):
                    logits.append(context.decode([(row[p], p, s) for s, row in enumerate(tokens)]).tobytes())
        finally:
            context.close()
            model.close()
    return logits, applied


@pytest.mark.parametrize("name,kind", [*((name, kind) for name in toys.SHAPES for kind in TYPES), *((name, None) for name in ARCHITECTURES)])
@pytest.mark.parametrize("flash_attn,n_seq", [(True, 1), (False, 1), (True, 3)])
def test_logits(made, name, kind, flash_attn, n_seq):
    path = made(name, kind)
    wanted, applied = run(path, False, flash_attn, n_seq)
    assert not applied
    got, applied = run(path, True, flash_attn, n_seq)
    print(f"{name} {kind}: {dict(applied)}")
    assert got == wanted
    if n_seq == 1:
        normed_heads = name in toys.SHAPES or name == "qwen3moe-moe"   # Gemma scales q behind its rotation
        assert applied.keys() >= DECODED.get(name, set()) | (ATTENTION[flash_attn] if normed_heads else set())
