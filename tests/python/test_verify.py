"""`strata-hip verify`: it passes on this backend, and fails on a device that is wrong."""
import dataclasses
import io
import json
import os
import subprocess
import sys
from typing import List, Tuple

import numpy as np
import pytest

from strata_hip import scores, verify, verify_report
from strata_hip.errors import StrataError
from strata_hip.provenance import Provenance
from strata_hip.scores import Divergence
from strata_hip.verify_report import Accuracy, Report, Sameness, Setting
from support.fakes import faulty_device
from support.paths import ROOT

sys.path.insert(0, str(ROOT / "tests" / "models"))
import toys  # noqa: E402

ORIGIN = Provenance("STRATA0: a GPU", "hip", "gfx1151", "HIP 6.3.42131, Linux 6.14", "0123456789abcdef", "", False)


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """A model whose weights of type f16 the CPU and the device multiply alike, with recurrent and attention layers."""
    path = tmp_path_factory.mktemp("verify") / "toy.gguf"
    toys.write(path, toys.SHAPES["qwen35"], "f16")
    return path


def run(model, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "strata_hip.cli", "verify", "-m", str(model), "--runtime", "emulator", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, env=dict(os.environ, **environment))


def check(model, *arguments: str, **environment: str) -> Tuple[int, dict]:
    """(exit code, JSON)."""
    done = run(model, "--tokens", "32", "-o", "json", *arguments, **environment)
    assert done.returncode in (0, 1) and done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_right(toy):
    code, report = check(toy)
    assert (code, report["verdict"], report["failures"]) == (0, "right", [])
    assert report["runtime"] == "emulator" and report["emulated"] is True and report["arch"] == "gfx1151" and report["code_objects"]
    assert {each["flash_attn"] for each in report["accuracy"]} == {True, False}
    assert {each["type_k"] for each in report["accuracy"]} == {"f16", "q8_0"}
    assert [each["n_gpu_layers"] for each in report["accuracy"]][-3:] == [0, 2, 4] and report["accuracy"][0]["n_gpu_layers"] == -1
    assert all(abs(each["difference"]) < 0.01 and each["perplexity"] > 100 for each in report["accuracy"])
    assert report["accuracy"][-3]["divergence"]["largest"] < 1e-3, "no layer on the device: all of it is the CPU's work"
    assert all(each["runs"] >= 2 for each in report["sameness"]) and len(report["sameness"]) == 7
    assert report["left_out"] == []
    assert report["bounds"] == json.loads(json.dumps(vars(verify.BOUNDS)))


@pytest.mark.full
def test_every_combination(toy):
    done = run(toy, "--tokens", "130", "-o", "json", "--full")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert len(report["accuracy"]) == 2 * 2 * 2 * 3 + 4 + 4
    assert {each["name"]: each["runs"] for each in report["sameness"]}["question beside 8 sequences, fa off: 10 times"] == 10


def test_a_cache_that_llama_cpp_refuses_is_left_out(tmp_path):
    """Heads of 80 are not rows of whole blocks of 32."""
    path = tmp_path / "toy.gguf"
    toys.write(path, dataclasses.replace(toys.SHAPES["qwen35"], head=80, rotated=64), "f16")
    code, report = check(path)
    assert (code, report["failures"]) == (0, []) and len(report["left_out"]) == 1 and "q8_0" in report["left_out"][0]
    assert {each["type_k"] for each in report["accuracy"]} == {"f16"}


def test_lost_launches_are_found(toy, tmp_path):
    """Products that never happen: every comparison with the CPU fails; those without a layer on the device do not."""
    code, report = check(toy, STRATA_EMULATOR_LIBRARY=str(faulty_device(tmp_path)), FAULT_KERNEL="mul_mat", FAULT_WHEN="always")
    assert (code, report["verdict"]) == (1, "wrong")
    assert all(each["failures"] for each in report["accuracy"] if each["n_gpu_layers"] != 0)


def test_runs_that_differ_are_found(toy, tmp_path):
    """One launch in 40 is lost, another one each time."""
    code, report = check(toy, STRATA_EMULATOR_LIBRARY=str(faulty_device(tmp_path)), FAULT_KERNEL="mul_mat", FAULT_WHEN="sometimes")
    assert (code, report["verdict"]) == (1, "wrong")
    wrong = {each["name"] for each in report["sameness"] if each["failures"]}
    assert "prompt: repeated" in wrong or "tokens one by one: repeated" in wrong


def test_missing_waits_are_found(toy, tmp_path):
    """What is lost only where launches overlap is there when each is waited for."""
    code, report = check(toy, STRATA_EMULATOR_LIBRARY=str(faulty_device(tmp_path)), FAULT_KERNEL="mul_mat", FAULT_WHEN="overlap")
    assert (code, report["verdict"]) == (1, "wrong")
    wrong = {each["name"] for each in report["sameness"] if each["failures"]}
    assert "prompt: launches waited for" in wrong and "tokens one by one: launches waited for" in wrong


def test_a_text_of_ones_own_and_bad_input(toy, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("x" * 100)
    done = run(toy, "-f", str(text))
    assert (done.returncode, done.stdout) == (1, "") and "too few" in done.stderr
    done = run(toy, "-f", str(text), "--tokens", "64")
    assert done.returncode == 1 and "fewer than --tokens 64" in done.stderr
    for arguments, told in ((("-f", "/no/such"), "/no/such"), (("--tokens", "0"), "--tokens: at least 1")):
        done = run(toy, *arguments)
        assert done.returncode in (1, 2) and told in done.stderr
    done = run("/no/such.gguf")
    assert (done.returncode, done.stdout) == (1, "") and "/no/such.gguf" in done.stderr


# What is run

def test_every_value_once_or_every_combination():
    quick, full = verify.settings(2048, False), verify.settings(2048, True)
    for some in (quick, full):
        assert len(set(some)) == len(some)
        assert some[0] == Setting(2048)
        for field, values in (("n_ubatch", {1, 64, 128, 512, 2048}), ("flash_attn", {True, False}), ("type_k", {"f16", "q8_0"}),
                              ("n_seq", {1, 4})):
            assert {getattr(each, field) for each in some} == values
    assert len(full) == 2 * 2 * 2 * 4 + 4 and len(quick) < 10
    assert all(each.type_v == "f16" for each in full if not each.flash_attn), "llama.cpp needs flash attention for a quantized V"


@pytest.mark.parametrize("n_tokens,ubatches", [(32, {64}), (64, {64}), (65, {64, 128}), (512, {64, 128, 512}), (513, {64, 128, 512, 2048})])
def test_no_batch_size_twice(n_tokens, ubatches):
    assert {each.n_ubatch for each in verify.settings(n_tokens, True)} == ubatches | {1}


def test_offload_levels():
    assert verify.offload_levels(30, True) == [0, 1, 15, 30] and verify.offload_levels(30, False) == [0, 15, 30]
    assert verify.offload_levels(1, True) == [0, 1]


# Arithmetic

class FixedLogits:
    """A context that answers each row with given logits."""

    def __init__(self, logits: np.ndarray, n_batch: int):
        self.logits, self.n_batch, self.at = logits, n_batch, 0
        self.batches: List[list] = []

    def decode(self, rows: list) -> np.ndarray:
        self.batches.append(rows)
        self.at += len(rows)
        return self.logits[self.at - len(rows):self.at]


def test_scores_are_those_of_float64():
    rng = np.random.default_rng(0)
    logits = (3 * rng.standard_normal((12, 50))).astype(np.float32)
    other = (3 * rng.standard_normal((12, 50))).astype(np.float32)
    tokens = rng.integers(0, 50, 12).tolist()
    p, q = (np.exp(each.astype(np.float64)) / np.exp(each.astype(np.float64)).sum(axis=1, keepdims=True) for each in (logits, other))
    kept = np.zeros((12, 50), np.float32)
    first, none = scores.score(FixedLogits(logits, 5), [tokens], keep=kept)
    assert none is None
    assert np.allclose(kept, np.log(p), atol=1e-5)
    assert np.allclose(first.loss, -np.log(p[np.arange(11), tokens[1:]]), atol=1e-5)
    assert first.perplexity == pytest.approx(np.exp(-np.log(p[np.arange(11), tokens[1:]]).mean()), rel=1e-5)
    second, divergence = scores.score(FixedLogits(other, 12), [tokens], reference=kept)
    assert np.allclose(divergence, (p * np.log(p / q)).sum(axis=1), atol=1e-4)
    assert second.agreement(first) == np.mean(p.argmax(axis=1) == q.argmax(axis=1)) < 1
    assert first.digest != second.digest


def test_sequences_side_by_side():
    """Positions go in order, as many of all sequences a call as fit; the results stand sequence by sequence."""
    sequences = scores.split(list(range(10, 23)), 3)
    assert sequences == [[10, 11, 12, 13], [14, 15, 16, 17], [18, 19, 20, 21]]
    context = FixedLogits(np.eye(12, 30, dtype=np.float32), 7)
    result, _ = scores.score(context, sequences)
    assert context.batches == [[(sequences[s][p], p, s) for s in range(3) for p in some] for some in ((0, 1), (2, 3))]
    assert result.likeliest.tolist() == [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11] and len(result.loss) == 9


def a_run(loss: np.ndarray, reference: np.ndarray, divergence: Divergence, agreement: float) -> Accuracy:
    difference = loss - reference
    return Accuracy(Setting(len(loss)), float(np.exp(loss.mean())), float(np.exp(reference.mean())), float(np.expm1(difference.mean())),
                    verify.standard_error(difference), divergence, agreement, loss, "")


def failures_of(measured: Accuracy, own_agreement: float = 0.97, own: float = 0.003) -> List[str]:
    work = verify.Verification(verify.Options("m"), range(9), None, None)
    work.own = a_run(np.ones(99), np.ones(99), Divergence(own, 5 * own, 20 * own), own_agreement)
    return work.wrong(measured)


def test_bounds():
    """Each is crossed by itself."""
    rng = np.random.default_rng(1)
    reference = rng.exponential(3, 2048)
    close, small = reference + 0.05 * rng.standard_normal(2048), Divergence(0.003, 0.02, 0.05)
    assert failures_of(a_run(close, reference, small, 0.96)) == []
    assert ["perplexity" in text for text in failures_of(a_run(close + 0.03, reference, small, 0.96))] == [True]
    assert ["mean divergence" in text for text in failures_of(a_run(close, reference, Divergence(0.05, 0.06, 0.07), 0.96))] == [True]
    assert ["at 99 %" in text for text in failures_of(a_run(close, reference, Divergence(0.01, 0.3, 0.4), 0.96))] == [True]
    assert ["largest" in text for text in failures_of(a_run(close, reference, Divergence(0.01, 0.02, 8.0), 0.96))] == [True]
    assert ["likeliest" in text for text in failures_of(a_run(close, reference, small, 0.8))] == [True]
    close[7] = np.nan
    assert any("1 positions are not finite" in text for text in failures_of(a_run(close, reference, small, 0.96)))


def test_a_model_that_the_cpu_itself_is_unsure_of_is_given_more_room():
    reference = np.ones(2048)
    measured = a_run(reference.copy(), reference, Divergence(0.05, 0.15, 0.5), 0.86)
    assert len(failures_of(measured)) == 3
    assert failures_of(measured, own_agreement=0.95, own=0.02) == []


# The report

def report_of(*failures: str) -> Report:
    row = a_run(np.ones(64), np.ones(64), Divergence(0.1, 0.2, float("nan")), 1.0)
    row.failures = list(failures)
    return Report("/a/model.gguf", "the built-in story", 64, False, ORIGIN, vars(verify.BOUNDS), row, [row],
                  [Sameness("prompt: repeated", 2, [])], ["KV q8_0: no"])


def test_reports():
    out = io.StringIO()
    verify_report.markdown(report_of(), out)
    assert "model.gguf: 64 tokens" in out.getvalue() and "The output is right: 2 checks" in out.getvalue()
    assert "0123456789abcdef" in out.getvalue() and "left out: KV q8_0: no" in out.getvalue() and "WRONG" not in out.getvalue()
    out = io.StringIO()
    verify_report.markdown(report_of("perplexity is off"), out)
    assert "WRONG ubatch 512, fa on, KV f16, 1 seq, all layers: perplexity is off" in out.getvalue()
    assert "The output is WRONG: 1 of 2 checks" in out.getvalue()
    out = io.StringIO()
    verify_report.as_json(report_of("perplexity is off"), out)
    found = json.loads(out.getvalue(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert found["verdict"] == "wrong" and found["accuracy"][0]["divergence"]["largest"] is None and found["device"] == "STRATA0: a GPU"


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(verify.os, "posix_fallocate", full)
    with pytest.raises(StrataError, match=r"no 1\.0 GiB .*TMPDIR"):
        verify.Verification(verify.Options("m"), range(9), tmp_path, None).array("0.f16", 2048, 262144)
