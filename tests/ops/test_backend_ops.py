"""ggml's own operator tests (test-backend-ops of the pinned sources) against the CPU backend.

Every case of the ops below that the plugin accepts must pass. `make test-full` runs them all; `make test` a random sample that
holds every op and every type combination (STRATA_TEST_SEED repeats one).
"""
import collections
import csv
import functools
import io
import math
import os
import re
import subprocess
import sys

import pytest

from support.libraries import library_dir
from support.ops import new_rng
from support.paths import ROOT

# op -> accepted cases that the pinned list must have at least; fewer means that support was lost
OPS = {
    "MUL_MAT": 600, "GET_ROWS": 60, "SET_ROWS": 100, "FLASH_ATTN_EXT": 700, "SOFT_MAX": 150, "RMS_NORM": 40, "ROPE": 200,
    "ADD": 100, "SUB": 100, "MUL": 100, "DIV": 100, "SCALE": 6, "CONT": 30, "CPY": 100, "DUP": 4,
    "GEGLU": 24, "SWIGLU": 24, "REGLU": 24, "GEGLU_ERF": 24, "GEGLU_QUICK": 24,
    "TANH": 8, "SILU": 8, "GELU": 8, "RELU": 8, "SIGMOID": 8,
}
MUL_MAT_TYPES = ("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_K", "q5_K", "q6_K")
SAMPLE_COST = 2e6     # multiply-adds / 16 or elements of a case that `make test` takes
SAMPLE_PER_GROUP = 4  # cases of each combination of types
SAMPLE_MOST = 48      # cases of an op

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@functools.cache
def program() -> str:
    """test-backend-ops, compiled if need be."""
    command = [sys.executable, str(ROOT / "scripts" / "build_test_backend_ops.py")]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def run(*arguments: str, timeout: float) -> subprocess.CompletedProcess:
    """test-backend-ops on STRATA0."""
    env = dict(os.environ, GGML_BACKEND_PATH=str(library_dir() / "libggml-strata-hip.so"))
    env.setdefault("STRATA_RUNTIME", "emulator")
    return subprocess.run([program(), *arguments, "-b", "STRATA0"], env=env, capture_output=True, text=True, timeout=timeout)


@functools.cache
def listed() -> dict:
    """op -> {case parameters: accepted}, as the plugin's supports_op says."""
    result = run("support", "--output", "csv", timeout=300)
    assert result.returncode == 0, result.stderr
    cases = collections.defaultdict(dict)
    for row in csv.DictReader(io.StringIO(result.stdout)):
        cases[row["op_name"]][row["op_params"]] = row["supported"] == "1"
    return cases


def accepted(op: str) -> list[str]:
    return [parameters for parameters, yes in listed()[op].items() if yes]


def run_cases(op: str, cases: list[str], timeout: float) -> None:
    """Runs the cases, prints the counts, asserts that each was run and passed. The CPU backend, which is the reference, lacks a
    few (copies between two blocks of an IQ type): those are counted apart."""
    passed, failed, seen, without_reference = 0, [], set(), 0
    for begin in range(0, len(cases), 200):
        some = cases[begin:begin + 200]
        result = run("test", "-o", ",".join(f"{op}({each})" for each in some), timeout=timeout)
        for line in result.stdout.splitlines():
            line = COLOUR.sub("", line)  # "[OP] ERR = ... OP(parameters): FAIL", the first part only after a failure
            case = line.rpartition(f"{op}(")[2].rpartition("): ")[0]
            if case not in some:
                continue
            seen.add(case)
            if line.endswith("): OK"):
                passed += 1
            elif line.rstrip().endswith("not supported [CPU]"):
                without_reference += 1
            else:
                failed.append(line)
        missing = [each for each in some if each not in seen]
        assert not missing, f"{len(missing)} cases were not run, the first: {op}({missing[0]})\n{result.stdout[-2000:]}\n{result.stderr[-4000:]}"
    refused = len(listed()[op]) - len(accepted(op))
    print(f"{op}: {passed} passed, {len(failed)} failed, {without_reference} without reference, "
          f"{refused} of {len(listed()[op])} listed cases refused")
    assert not failed, "\n".join(failed)
    assert len(seen) == len(cases) and passed >= len(cases) / 2


def types(parameters: str) -> str:
    """What makes two cases of an op different in kind: the types in their parameters."""
    return ",".join(re.findall(r"\b\w*type\w*=\w+", parameters))


def cost(parameters: str) -> float:
    """Multiply-adds / 16 for products and attention, elements for the rest; roughly."""
    values = dict(re.findall(r"(\w+)=(\[[\d,]*\]|-?\d+)(?=,|$)", parameters))

    def product(*names: str) -> int:
        return math.prod(abs(int(number)) or 1 for name in names for number in re.findall(r"\d+", values.get(name, "1")))

    if {"m", "n", "k"} <= values.keys():
        return product("m", "n", "k", "bs", "nr") / 16
    if {"hsk", "nh", "kv", "nb"} <= values.keys():
        return product("hsk", "nh", "nr23", "kv", "nb") / 16
    if {"n", "m", "r"} <= values.keys():
        return product("n", "r", "be1", "be2")
    if {"ne", "nr"} <= values.keys():
        return product("ne", "nr")
    return max((math.prod(int(number) or 1 for number in re.findall(r"\d+", value)) for value in values.values()), default=1)


@pytest.mark.parametrize("op", OPS)
def test_the_plugin_accepts_what_it_should(op):
    cases = accepted(op)
    print(f"{op}: {len(cases)} of {len(listed()[op])} listed cases accepted")
    assert len(cases) >= OPS[op]


@pytest.mark.parametrize("kind", MUL_MAT_TYPES)
def test_every_weight_type_is_accepted_for_few_and_many_columns(kind):
    columns = {int(re.search(r"\bn=(\d+)", case)[1]) for case in accepted("MUL_MAT") if f"type_a={kind},type_b=f32" in case}
    assert {1, 2, 8} <= columns and max(columns) > 8, columns


@pytest.mark.parametrize("op", OPS)
def test_sample(op):
    rng = new_rng()
    groups = collections.defaultdict(list)
    for case in accepted(op):
        if cost(case) <= SAMPLE_COST:
            groups[types(case)].append(case)
    chosen = []
    for group in groups.values():
        chosen += rng.choice(group, min(SAMPLE_PER_GROUP, len(group)), replace=False).tolist()
    if len(chosen) > SAMPLE_MOST:
        chosen = rng.choice(chosen, SAMPLE_MOST, replace=False).tolist()
    run_cases(op, chosen, timeout=300)


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("op", OPS)
def test_all(op):
    run_cases(op, accepted(op), timeout=3600)
