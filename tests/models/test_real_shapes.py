"""The operators of Qwen3.6-35B-A3B, Qwen3.5-27B, Gemma 3 270M and gpt-oss-20b in their real shapes (real_shapes.py), at 1, 7, 64 and
512 tokens: all are accepted, and those that the emulator and the reference can compute in reasonable time are right."""
import math
import os
import re

import pytest

import real_shapes
from strata_hip import op_tests

BATCHES = (7, 64, 512)  # and a single token, which every run has
MOST_ELEMENTS = 3e8     # of a source: it is filled with random numbers and quantized first
MOST_PRODUCTS = 1e10    # multiply-adds


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """listed(name, *arguments): test-backend-ops with the model's operators, and them as cases."""
    made = {}

    def get(name: str, *arguments: str) -> tuple[op_tests.Tests, list[op_tests.Case]]:
        if (name, arguments) not in made:
            folder = tmp_path_factory.mktemp("shapes")
            model = real_shapes.MODELS[name](folder)
            file = folder / "operators.txt"
            file.write_text("\n".join(real_shapes.operators(model, BATCHES, folder, *arguments)) + "\n")
            tests = op_tests.Tests(os.environ.get("STRATA_RUNTIME", "emulator"), file=file)
            made[name, arguments] = tests, tests.cases()
            if model.parent == folder:
                model.unlink()
        return made[name, arguments]

    return get


def sources(case: op_tests.Case) -> list[list[int]]:
    """The dimensions of an operator's sources."""
    text = case.parameters.partition("sources=")[2]
    return [[int(n) for n in found.split(",")] for found in re.findall(r"(?:^|,)\w+\[([\d,]+)\]", text)]


def feasible(case: op_tests.Case) -> bool:
    """Whether it is done in reasonable time, and test-backend-ops can do it: GET_ROWS with strided indices of a file is beyond it."""
    if case.op == "GET_ROWS" and re.search(r"i32\[[\d,]+\]nb", case.parameters):
        return False
    largest = max(map(math.prod, sources(case)), default=0)
    result = math.prod(int(n) for n in re.search(r"\bne=\[([\d,]+)\]", case.parameters)[1].split(","))
    products = result * sources(case)[0][0] if case.op.startswith("MUL_MAT") else largest
    return largest <= MOST_ELEMENTS and products <= MOST_PRODUCTS


@pytest.mark.parametrize("name", list(real_shapes.MODELS))
@pytest.mark.parametrize("arguments", [
    pytest.param((), id="fa"),
    pytest.param(("-fa", "off"), id="nofa", marks=pytest.mark.full),
    pytest.param(("-ctk", "q8_0", "-ctv", "q8_0", "-fa", "on"), id="q8_0", marks=pytest.mark.full)])
def test_every_operator_is_accepted(listed, name, arguments):
    _, cases = listed(name, *arguments)
    kinds = {case.op for case in cases}
    print(f"{name}: {len(cases)} operators of {len(kinds)} kinds: {', '.join(sorted(kinds))}")
    assert {"MUL_MAT", "ROPE", "RMS_NORM"} <= kinds and ("FLASH_ATTN_EXT" in kinds) == (arguments != ("-fa", "off"))
    assert not [f"{case.name}: {case.refusal}" for case in cases if case.refusal]


@pytest.mark.full
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("name", list(real_shapes.MODELS))
def test_operators(listed, name):
    tests, cases = listed(name)
    todo = [case for case in cases if case.runs and feasible(case)]
    results = list(tests.run(todo))
    print(f"{name}: {len(results)} of {len(cases)} operators run")
    failed = [result for result in results if not result.passed]
    assert not failed, "\n\n".join(f"{result.message}\n{tests.command(result.case)}" for result in failed)
    assert len(results) == len(todo) > len(cases) / 2
