"""llama.cpp's own test-fusion on STRATA0: how often each fusion is applied in a graph of a model, against the counts of fusion_counts.csv. After a fusion was added or a guard was changed:

    python tests/models/test_upstream_fusion.py     writes that file anew; its diff is what the change does to whole models
"""
import csv
import pathlib
import re
import sys
import tempfile

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import toys
from support.tools import run_tool

RECORDED = pathlib.Path(__file__).with_name("fusion_counts.csv")
MADE_BY_LLAMA = ["llama-dense", "llama-moe", "qwen3-dense", "qwen3moe-moe", "gemma3-dense", "gpt-oss-moe", "qwen3next-moe", "qwen4exp-moe",
                 "jamba-dense", "mamba-dense"]
MODELS = [*MADE_BY_LLAMA, *(f"{arch}-q4_K" for arch in toys.SHAPES)]


def make(name: str, folder: pathlib.Path) -> pathlib.Path:
    """The file of a small random model."""
    arch, _, kind = name.rpartition("-")
    path = folder / f"{name}.gguf"
    if name not in MADE_BY_LLAMA:
        toys.write(path, toys.SHAPES[arch], kind)
    elif not path.exists():
        result = run_tool("test-llama-archs", "-a", arch, "-s", 1234, "-o", folder, timeout=300)
        assert path.exists(), result.stdout[-2000:]
    return path


def count(name: str, folder: pathlib.Path) -> "list[list[str]]":
    """Rows (model, phase, fusion, times a graph) of what test-fusion records. It fails where fusions change logits by more than 1e-4."""
    record = folder / f"{name}.csv"
    result = run_tool("test-fusion", "--model", make(name, folder), "--device", "STRATA0", "--record", record, timeout=300)
    assert result.returncode == 0, result.stdout[-3000:]
    lines = [re.split(r" *, *", line.strip()) for line in record.read_text().splitlines() if not line.startswith("#")]
    assert lines, result.stdout[-3000:]
    return [[name, phase, fusion, times] for _, _, phase, fusion, times in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("models")


@pytest.mark.parametrize("name", MODELS)
def test_counts(name, folder):
    with open(RECORDED, newline="") as file:
        recorded = [row for row in csv.reader(file) if row[0] == name]
    assert recorded and count(name, folder) == recorded


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made, open(RECORDED, "w", newline="") as written:
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow(["model", "phase", "fusion", "times a graph"])
        for each in MODELS:
            writer.writerows(count(each, pathlib.Path(made)))
