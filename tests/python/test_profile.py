"""`strata-hip profile`."""
import json
import os
import subprocess
import sys

import pytest

from strata_hip import models, profile


def run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "strata_hip.cli", "profile", *map(str, arguments)], capture_output=True, text=True,
                          timeout=500, env=os.environ)


def launch(kernel: str, grid: int = 1) -> dict:
    return {"kernel": kernel, "grid": [grid, 1, 1], "block": [32, 1, 1]}


def names(lines: list) -> list:
    return [line.split("  grid")[0] if "grid" in line else line for line in lines]


def test_a_plan_shows_what_repeats_once():
    layer = [launch("norm"), launch("product"), launch("add")]
    assert names(profile.plan([launch("embed"), *layer * 3, launch("head")])) == \
        ["embed", "3 times:", "    norm", "    product", "    add", "head"]
    assert names(profile.plan([launch("a"), launch("b")])) == ["a", "b"]
    assert names(profile.plan([launch("a", 1), launch("a", 2)])) == ["a", "a"]
    assert profile.plan([]) == []


def test_of_a_model(tmp_path):
    done = run("-m", models.smollm2(), "-p", "4", "-n", "1", "-o", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["layers"] == 30 and list(result["phases"]) == ["prefill", "decode"]
    for name, tokens in (("prefill", 4), ("decode", 1)):
        phase = result["phases"][name]
        assert phase["tokens"] == tokens and len(phase["launches"]) > 30
        assert sum(row["launches"] for row in phase["kernels"].values()) == len(phase["launches"])
        totals = [row["instructions"]["total"] for row in phase["kernels"].values()]
        assert totals == sorted(totals, reverse=True)
        for row in phase["kernels"].values():
            assert row["instructions"]["total"] == sum(row["instructions"][each] for each in profile.CLASSES)
        copies = phase["copies"]
        assert copies["host_to_device"]["bytes"] > 0 and copies["device_to_host"]["bytes"] == 4 * 49152  # logits of a token
        assert phase["graphs"] == {"instantiated": 0, "launched": 0}  # one token is not enough for one
    text = profile.markdown(result, 5)
    assert "prefill 0 captured, 0 launched; decode 0 captured, 0 launched." in text
    assert "| decode | 1 |" in text and "## decode: the plan of the last token" in text and "## prefill: top kernels" in text
    if _has_matplotlib():
        profile.plot(result, str(tmp_path / "picture.png"), 5)
        assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("arguments, message", [
    (["-n", "0"], "--n-gen: at least 1"), (["-ctk", "q9"], "--cache-type-k: 'q9' is none of"), (["--top", "0"], "--top: at least 1")])
def test_wrong_usage(arguments, message):
    done = run("-m", "any.gguf", *arguments)
    assert done.returncode == 2 and message in done.stderr


def test_a_missing_model():
    done = run("-m", "/no/such.gguf")
    assert (done.returncode, done.stdout) == (1, "") and "/no/such.gguf" in done.stderr


def _has_matplotlib() -> bool:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True
