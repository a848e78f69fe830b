"""test-llama-archs of the pinned llama.cpp on STRATA0: a small random model of each architecture against the CPU backend
(NMSE of the logits at most 1e-4), and again after it was saved and loaded (equal bits).

An op that the device refuses goes to the CPU without a word, so the test could pass with nothing on the device. The graphs that
the scheduler printed are therefore looked at too: two splits, and the CPU only looks up embeddings.
"""
import re

import pytest

from support.paths import llama_cpp_source
from support.tools import graphs, run_tool

# What `make test` runs; the rest is in `make test-full`.
SAMPLE = ["llama", "gemma3", "qwen3", "qwen35", "qwen35moe", "qwen3next", "qwen4exp", "gpt-oss", "jamba", "mamba"]

# test-llama-archs itself skips these: no usable implementation, no vocabulary to test with, results that are not even stable on the CPU.
SKIPPED_BY_THE_PROGRAM = {
    "clip", "gptj", "chameleon", "wavtokenizer-dec", "gemma4", "gemma4-assistant", "graniteswitch", "llama-embed", "gemma-embedding",
    "t5encoder", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7", "bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "neo-bert", "jina-bert-v2",
    "jina-bert-v3", "eurobert", "plm", "deepseek2-ocr", "eagle3", "dflash",
}
# Models whose output matrix is the embedding matrix itself, which llama.cpp leaves to the CPU.
OUTPUT_ON_THE_CPU = {"bitnet"}
SEED = 1234


def names() -> list[str]:
    """Every architecture of the pinned llama.cpp that the program runs."""
    text = (llama_cpp_source() / "src" / "llama-arch.cpp").read_text()
    table = text[text.index("LLM_ARCH_NAMES"):]
    found = re.findall(r'\{\s*LLM_ARCH_\w+,\s*"([^"]+)"', table[:table.index("};")])
    return [name for name in found if name not in SKIPPED_BY_THE_PROGRAM and name != "(unknown)"]


def parameters():
    for name in names():
        yield pytest.param(name, marks=[] if name in SAMPLE else [pytest.mark.full])


def test_the_sample_is_of_known_architectures():
    assert set(SAMPLE) <= set(names())


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("name", list(parameters()))
def test_architecture(name):
    result = run_tool("test-llama-archs", "-a", name, "-s", SEED, "-b", "STRATA0", "-v", 5, timeout=2300, GGML_SCHED_DEBUG="2",
                      STRATA_REFUSALS="print")
    log = result.stdout
    refused = sorted(set(re.findall(r"^@refused\t.*", log, re.MULTILINE)))
    assert result.returncode == 0, "\n".join([*refused, log[-3000:]])
    # The program does not always wait for its log to be written: the last lines may be missing.
    for summary in re.findall(r"Summary: (.*)", log):
        assert re.fullmatch(r"all [1-9]\d* test\(s\) passed", summary)

    on_device = [graph for graph in graphs(log) if "STRATA0" in graph.splits]
    assert on_device, "no graph reached the device"
    on_cpu = sum((graph.on_cpu for graph in on_device), start=type(on_device[0].on_cpu)())
    splits = {tuple(graph.splits) for graph in on_device}
    errors = re.findall(r"\((\d\.\d\de[-+]\d+)\)", log)
    print(f"{name}: NMSE {errors}; {len(on_device)} graphs; splits {splits}; on the CPU: {dict(on_cpu)}")
    most = 3 if name in OUTPUT_ON_THE_CPU else 2
    assert all(len(each) <= most for each in splits), "\n".join([f"left to the CPU: {dict(on_cpu)}", *refused])
