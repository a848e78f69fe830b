"""ggml's own operator tests (test-backend-ops of the pinned sources) against the CPU backend.

Every case that the plugin accepts must pass, and it must accept what it once did. `make test-full` runs all of them, as
`strata-hip ops test` does; `make test` a fixed sample that holds each op with each combination of types, spread by hash.
"""
import collections
import hashlib
import json
import math
import os
import pathlib
import re

import pytest

from strata_hip import op_tests

# op -> cases that are accepted; fewer means that support was lost. `python tests/ops/test_backend_ops.py` rewrites it.
ACCEPTED = pathlib.Path(__file__).with_name("accepted_cases.json")
SAMPLE_COST = 2e6     # multiply-adds / 16 or elements of a case that `make test` takes
SAMPLE_PER_GROUP = 2  # cases of each combination of types
SAMPLE_MOST = 32      # cases of an op
PARTS = 8             # of the sample, a test each


@pytest.fixture(scope="session")
def tests() -> op_tests.Tests:
    return op_tests.Tests(os.environ.get("STRATA_RUNTIME", "emulator"))


@pytest.fixture(scope="session")
def cases(tests) -> list[op_tests.Case]:
    """All cases, and whether the plugin accepts them."""
    return tests.cases()


def spread(name: str) -> str:
    """A fixed order that has nothing to do with how the cases are listed."""
    return hashlib.sha256(name.encode()).hexdigest()


def types(case: op_tests.Case) -> str:
    """What makes two cases of an op different in kind: the types in their parameters, and the modes."""
    return ",".join(re.findall(r"\b(?:\w*type\w*|mode|glu_op|is_2D|kind|K)=\w+", case.parameters))


def cost(case: op_tests.Case) -> float:
    """Multiply-adds / 16 for products, attention, convolutions; elements for the rest. Roughly."""
    values = {name: [abs(int(number)) or 1 for number in re.findall(r"-?\d+", value)]
              for name, value in re.findall(r"(\w+)=(\[[-\d,]*\]|-?\d+)(?=,|$)", case.parameters)}

    def product(*names: str) -> float:
        return math.prod(number for name in names for number in values.get(name, [1]))

    if {"m", "n", "k"} <= values.keys():
        used = values.get("n_used", [1])[0]
        return product("m", "n", "k", "bs", "nr", "batch_dims") * used / 16 + product("n_mats") * product("m", "k") / 32
    if {"hsk", "kv", "nb"} <= values.keys():
        return product("hsk", "nh", "nr23", "kv", "nb", "ns") / 16
    if {"head_size", "n_seq_tokens"} <= values.keys():
        return product("head_count", "head_size", "head_size", "n_seq_tokens", "n_seqs", "v_repeat") / 8
    if {"head", "v_heads", "n_seq_tokens"} <= values.keys():
        return product("head", "head", "v_heads", "n_seq_tokens", "n_seqs") / 8
    if {"n_embd", "n_ff", "n_expert"} <= values.keys():
        return product("n_embd", "n_ff") * (product("n_tokens", "n_used") * 3 / 16 + product("n_expert") * 3 / 32)
    if "d_state" in values:
        return product("d_state", "head_dim", "n_head", "n_seq_tokens", "n_seqs") / 8
    if "ne_kernel" in values:
        return product("ne_input") * product("ne_kernel") / 16
    if {"N", "IC", "OC", "KD"} <= values.keys():
        return product("N", "IC", "ID", "IH", "IW", "OC", "KD", "KH", "KW") / 16
    if "ne_lhs" in values:
        return product("ne_lhs") * values["ne_rhs"][0] / 4
    if {"n", "m", "r"} <= values.keys():
        return product("n", "r", "be1", "be2")
    if {"ne", "nr"} <= values.keys():
        return product("ne", "nr")
    return max((product(name) for name in values), default=1)


def sample(cases: list[op_tests.Case]) -> list[op_tests.Case]:
    """Cases of each op and combination of types, the same ones each time."""
    groups: dict[str, dict[str, list[op_tests.Case]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for case in sorted((case for case in cases if case.runs and cost(case) <= SAMPLE_COST), key=lambda case: spread(case.name)):
        groups[case.op][types(case)].append(case)
    chosen = []
    for by_types in groups.values():
        # The first of every group, then the second ones.
        ranked = [case for rank in range(SAMPLE_PER_GROUP) for group in by_types.values() for case in group[rank:rank + 1]]
        chosen += ranked[:SAMPLE_MOST]
    return chosen


def check(tests: op_tests.Tests, cases: list[op_tests.Case], told: collections.Counter) -> None:
    """Runs cases, tells the counts, asserts that each passed."""
    results = list(tests.run(cases))
    failed = [result for result in results if not result.passed]
    told.update(run=len(results), failed=len(failed))
    spent = collections.Counter()
    for result in results:
        spent[result.case.op] += result.seconds
    print(f"{len(results)} cases run, {len(failed)} failed; most time: "
          + ", ".join(f"{op} {seconds:.1f} s" for op, seconds in spent.most_common(5)))
    assert not failed, "\n\n".join(f"{result.message}\n{tests.command(result.case)}" for result in failed)
    assert len(results) == len(cases)


def accepted(cases: list[op_tests.Case]) -> dict[str, int]:
    return dict(sorted(collections.Counter(case.op for case in cases if case.refusal is None).items()))


def test_the_plugin_accepts_what_it_did(cases):
    now = accepted(cases)
    lost = {op: f"{now.get(op, 0)} of {count}" for op, count in json.loads(ACCEPTED.read_text()).items() if now.get(op, 0) < count}
    print(f"{sum(now.values())} of {len(cases)} listed cases are accepted")
    assert not lost


def test_what_the_cpu_backend_computes_is_accepted(cases):
    """But for a SUM whose rows do not lie in one piece, for which the CPU backend reads other elements than the tensor's."""
    assert [case.name for case in cases if case.reference and case.refusal] == ["SUM(type=f32,ne=[33,256,1,1],permute=[1,0,2,3])"]


@pytest.mark.parametrize("part", range(PARTS))
def test_sample(tests, cases, told, part):
    told["all"] = sum(case.runs for case in cases)
    chosen = sorted(sample(cases), key=lambda case: spread(case.name))
    check(tests, chosen[part::PARTS], told)


@pytest.mark.full
@pytest.mark.timeout(4 * 3600)
def test_all(tests, cases, told):
    wanted = [case for case in cases if case.runs]
    told.clear()  # the sample is among them
    told["all"] = len(wanted)
    check(tests, wanted, told)


if __name__ == "__main__":
    ACCEPTED.write_text(json.dumps(accepted(op_tests.Tests("emulator").cases()), indent=1) + "\n")
