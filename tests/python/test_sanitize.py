"""`strata-hip sanitize -- PROGRAM`."""
import os
import subprocess
import sys

import pytest

from support.paths import ROOT

PROGRAM = """
from support.hip import emulator
from support.kernels import basic_kernels, copy_args
hip = emulator()
out, data = hip.malloc(128), hip.malloc(128)
if {written}:
    hip.call("hipMemset", data, 0, 128)
hip.launch(hip.kernel(basic_kernels(), "copy"), 1, 32, copy_args(out, data))
hip.synchronize()
raise SystemExit({code})
"""


def run(*arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, "-m", "strata_hip.cli", "sanitize", *arguments], capture_output=True, text=True, timeout=300,
                          env=environment)


def program(written: bool, code: int = 0) -> tuple:
    return ("--", sys.executable, "-c", PROGRAM.format(written=written, code=code))


@pytest.mark.parametrize("written, code, expected, reports", [(True, 0, 0, 0), (False, 0, 1, 1), (True, 7, 7, 0), (False, 7, 7, 1)])
def test_exit_codes(written, code, expected, reports):
    done = run(*program(written, code))
    assert done.returncode == expected, done.stderr
    assert f"strata-hip sanitize: {reports} report{'' if reports == 1 else 's'} (all)" in done.stderr
    assert ("an undefined value is stored" in done.stderr) == bool(reports)


def test_only_the_kinds_that_are_wanted():
    done = run("-k", "memory,race,wait", *program(False))
    assert done.returncode == 0 and "0 reports (memory,race,wait)" in done.stderr


def test_a_program_that_runs_nothing_on_the_emulator_is_not_called_clean():
    done = run("--", sys.executable, "-c", "print(1)")
    assert done.returncode == 1 and "nothing was checked" in done.stderr


def test_wrong_usage():
    assert run().returncode == 2
    done = run("-k", "memory,colour", "--", "true")
    assert done.returncode == 2 and "'colour' is none of" in done.stderr
    done = run("--", "/no/such/program")
    assert done.returncode == 1 and "/no/such/program" in done.stderr
