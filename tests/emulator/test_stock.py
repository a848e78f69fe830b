"""The unmodified stock ggml-hip backend as a guest of the emulator: ggml's own operator tests pass on it, and its kernels execute
as many instructions of each kind as they do in another emulator.

The backend is built by tests/bench/peer/build_stock_hip.py, which takes a while; without it these tests are skipped. What of them
needs no stock backend (the mnemonics of its kernels) is in test_instruction_coverage.py.
"""

import csv
import hashlib
import math
import os
import re
import subprocess

import pytest
from oracle import coverage, suite

from strata_hip import ops
from support import peer
from support.libraries import emulator_library

LIBRARY = peer.library()
pytestmark = [pytest.mark.full,
              pytest.mark.skipif(LIBRARY is None, reason="stock ggml-hip is not built: run tests/bench/peer/build_stock_hip.py")]

# op -> cases tried: the first by hash among those that are not too large
SAMPLE = {"MUL_MAT": 120, "MUL_MAT_ID": 40, "FLASH_ATTN_EXT": 60, "GATED_DELTA_NET": 36, "SSM_CONV": 40, "SSM_SCAN": 8, "NORM": 20,
          "RMS_NORM": 20, "L2_NORM": 10, "GROUP_NORM": 4, "TOP_K": 20, "TOPK_MOE": 30, "ARGSORT": 20, "SOFT_MAX": 30, "ROPE": 30,
          "GET_ROWS": 30, "SET_ROWS": 30, "CPY": 40, "SOLVE_TRI": 8, "OUT_PROD": 16, "CONV_2D": 8, "GLU": 10, "CUMSUM": 8}
LARGEST = {"MUL_MAT": 2**22, "MUL_MAT_ID": 2**22, "FLASH_ATTN_EXT": 2**22}
SECONDS = 1500


def run(*arguments: str, **environment: str) -> str:
    """The output of test-backend-ops on the stock backend."""
    program, = ops.tools(ops.PROGRAM)
    result = subprocess.run([str(program), *arguments, "-b", "ROCm0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            timeout=SECONDS, errors="replace",
                            env=os.environ | {"LD_PRELOAD": str(emulator_library()), "GGML_BACKEND_PATH": str(LIBRARY)} | environment)
    return re.sub(r"\x1b\[[0-9;]*m", "", result.stdout)


def size(parameters: str) -> int:
    """Roughly the multiplications of a case, or its elements."""
    values = {name: math.prod(max(1, abs(int(n))) for n in re.findall(r"-?\d+", value))
              for name, value in re.findall(r"(\w+)=(\[[-\d,]*\]|-?\d+)(?=,|$)", parameters)}

    def product(*names: str) -> int:
        return math.prod(values.get(name, 1) for name in names)

    if {"m", "n", "k"} <= values.keys():
        return product("m", "n", "k", "bs", "nr", "n_used", "n_mats")
    if {"hsk", "kv", "nb"} <= values.keys():
        return product("hsk", "nh", "nr23", "kv", "nb")
    return max(values.values(), default=1)


def cases(op: str) -> list[str]:
    """Names of cases of an op that the stock backend takes."""
    table = csv.DictReader(line for line in run("support", "-o", op, "--output", "csv").splitlines() if line.startswith('"'))
    names = [f"{row['op_name']}({row['op_params']})" for row in table
             if row["supported"] == "1" and size(row["op_params"]) <= LARGEST.get(op, 2**20)]
    return sorted(set(names), key=lambda name: hashlib.sha256(name.encode()).hexdigest())


@pytest.mark.parametrize("op", SAMPLE)
def test_eval_cases(op):
    chosen = cases(op)[:SAMPLE[op]]
    assert chosen, f"the stock backend takes no case of {op}"
    output = run("test", "-o", ",".join(chosen), STRATA_EMULATOR_MEMORY="8G")
    passed = re.search(r"(\d+)/(\d+) tests passed", output)
    failed = [line.strip() for line in output.splitlines() if "FAIL" in line or "strata-emulator:" in line]
    assert passed and not failed, "\n".join(failed) or output[-3000:]
    assert int(passed[1]) == int(passed[2]) >= len(chosen) // 2


def test_the_list_of_mnemonics_is_the_stock_backends(tmp_path):
    found = set()
    for number, image in enumerate(peer.code_objects(LIBRARY)):
        file = tmp_path / f"{number}.co"
        file.write_bytes(image)
        found |= set(coverage.mnemonics(file))
    assert found == suite.stock_mnemonics()
