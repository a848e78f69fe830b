"""The upstream tests of states, on STRATA0: saving and loading (test-save-load-state), rolling recurrent models back
(test-recurrent-state-rollback, over a cache pre-filled with 0x00 and 0x3e) and samplers on the device (test-backend-sampler)."""
import re

import pytest

import toys
from strata_hip import models
from support.tools import run_tool

SAMPLE = ["llama", "qwen35", "qwen35moe", "qwen3next", "gpt-oss", "jamba", "mamba"]
# Those for which llama.cpp keeps snapshots of recurrent states.
ROLLBACK = ["qwen35", "qwen35moe", "qwen4exp", "kimi-k3", "deepseek4", "glm5-next", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe",
            "bailingmoe3"]
ROLLBACK_SAMPLE = ["qwen35", "qwen35moe"]
ON_DEVICE = ["--device", "STRATA0", "-ngl", 99]


@pytest.fixture(scope="module")
def toy_models(tmp_path_factory):
    """toy_models(pattern): a folder with the toy models of the architectures that a regex matches, as test-llama-archs writes them."""
    made = {}

    def get(pattern: str):
        if pattern not in made:
            folder = tmp_path_factory.mktemp("archs")
            result = run_tool("test-llama-archs", "-a", pattern, "-s", 1234, "-o", folder, timeout=600)
            assert result.returncode == 0, result.stdout[-3000:]
            made[pattern] = folder
        return made[pattern]

    return get


def table(text: str) -> dict[str, list[str]]:
    """model file -> the words PASS, FAIL, SKIP of its row."""
    rows = re.findall(r"^(\S+\.gguf)\s+((?:(?:PASS|FAIL|SKIP)\s*)+)$", text, re.MULTILINE)
    return {name: verdicts.split() for name, verdicts in rows}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[] if name in ROLLBACK_SAMPLE else [pytest.mark.full]) for name in ROLLBACK])
def test_rollback(toy_models, name):
    """A rolled back state, saved and loaded, replays to the same bits in a fresh and in a used context; so do several sequences."""
    result = run_tool("test-recurrent-state-rollback", "--models", toy_models(f"^{name}$"), *ON_DEVICE, timeout=1700)
    verdicts = table(result.stdout)
    print(verdicts)
    assert result.returncode == 0, result.stdout[-3000:]
    assert verdicts and all(each == ["PASS", "PASS"] for each in verdicts.values())


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SAMPLE)
def test_save_and_load(toy_models, tmp_path, name):
    result = run_tool("test-save-load-state", "--models", toy_models(f"^{name}$"), *ON_DEVICE, timeout=1700, cwd=tmp_path)
    verdicts = table(result.stdout)
    print(verdicts)
    assert result.returncode == 0, result.stdout[-3000:]
    assert verdicts and all("FAIL" not in each and "PASS" in each for each in verdicts.values())


@pytest.mark.full
@pytest.mark.timeout(4 * 3600)
def test_save_and_load_of_every_architecture(toy_models, tmp_path):
    result = run_tool("test-save-load-state", "--models", toy_models(".*"), *ON_DEVICE, timeout=4 * 3600, cwd=tmp_path)
    verdicts = table(result.stdout)
    assert len(verdicts) > 100
    assert result.returncode == 0 and not [name for name, each in verdicts.items() if "FAIL" in each], result.stdout[-6000:]


SAMPLERS = ["greedy", "logit_bias", "penalties", "temp", "temp_ext", "top_k", "multi_sequence", "dist", "dist_and_cpu", "set_sampler",
            "multi_output_limit", "multi_sequence_multi_output_dist", "multi_output_dist_transaction", "multi_output_sampling_chain",
            "multi_output_cpu", "mixed", "min_p", "cpu_mixed", "top_p"]


def run_sampler_tests(model, names) -> None:
    """Nothing may be refused: a chain goes to the CPU from the first sampler on that is."""
    for name in names:
        result = run_tool("test-backend-sampler", "--model", model, "--device", "gpu", "--test", name, timeout=800, STRATA_REFUSALS="print")
        assert result.returncode == 0, f"{name}\n{result.stdout[-4000:]}"
        assert "Using device: STRATA0" in result.stdout and f"=== {name} ===" in result.stdout
        assert "@refused" not in result.stdout, [line for line in result.stdout.splitlines() if "@refused" in line]


def test_samplers_on_the_device(tmp_path):
    """On a toy model; two of the program's tests end in an error with it, on the CPU too: they want llama's kind of positions."""
    toys.write(tmp_path / "toy.gguf", toys.SHAPES["qwen35"], "f16")
    others = ["multi_sequence_multi_output_dist", "cpu_mixed"]
    run_sampler_tests(tmp_path / "toy.gguf", [name for name in SAMPLERS if name not in others])
    run_sampler_tests(models.smollm2(), others)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_samplers_with_a_real_vocabulary():
    """Without "logit_bias", which expects that a bias of 10 makes a token the one that is drawn: not so with SmolLM2, nor on the CPU."""
    run_sampler_tests(models.smollm2(), [name for name in SAMPLERS if name != "logit_bias"])
