"""`strata-hip ops`: with the real test-backend-ops on cheap operators, and with a program that plays it, for what goes wrong."""
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import time

import pytest

from strata_hip import op_tests
from strata_hip.errors import StrataError


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "strata_hip.cli", "ops", *arguments, "--runtime", "emulator"], capture_output=True, text=True,
                          timeout=500, env={**os.environ, **environment})


def test_cheap_operators_pass():
    done = run("test", "-o", "ADD_ADD,SQR,TANH", "-p", "type=f16|broadcast=1")
    assert done.returncode == 0, done.stdout + done.stderr
    counts = [int(word) for word in done.stdout.split() if word.isdigit()]
    assert counts[0] == counts[1] > 5 and ", 0 failed;" in done.stdout


def test_list_and_support():
    listed = run("list", "-o", "SQR")
    assert listed.returncode == 0 and all(line.startswith("SQR(type=") and line.endswith(")\taccepted") for line in listed.stdout.splitlines())
    table = run("support", "-o", "SQ.*")
    assert table.returncode == 0
    assert [line.split()[0] for line in table.stdout.splitlines()[1:3]] == ["SQR", "SQRT"]


def test_one_case_by_its_name():
    name = run("list", "-o", "SQR").stdout.splitlines()[0].partition("\t")[0]
    done = run("test", "-o", name)
    assert done.returncode == 0 and done.stdout.startswith("1 cases: 1 run")


@pytest.mark.parametrize("arguments,message", [(("-o", "NOTHING"), "no case"), (("-p", "("), "not a regular expression")])
def test_wrong_filters(arguments, message):
    done = run("test", *arguments)
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments,message", [(("-o", "NOTHING"), "no case"), (("-p", "("), "not a regular expression"),
                                                 (("-o", "[", "-p", "x"), "not a regular expression")])
def test_wrong_filters_of_perf(player, arguments, message):
    done = run("perf", *arguments, STRATA_TOOLS=str(player))
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr


def test_the_device_is_looked_for_before_anything_is_compiled(tmp_path):
    """No program is there either, which would be told otherwise."""
    without = {"STRATA_RUNTIME": "", "STRATA_HIP_LIBRARY": "/nowhere/libamdhip64.so", "STRATA_TOOLS": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "strata_hip.cli", "ops", "list"], capture_output=True, text=True, timeout=300,
                          env={**os.environ, **without})
    assert done.returncode == 1 and "no usable AMD GPU" in done.stderr and "does not hold" not in done.stderr


def test_perf_says_that_it_is_emulated(player):
    done = run("perf", "-o", "A", "-p", "x=2", STRATA_TOOLS=str(player))
    assert done.returncode == 0
    first, timed, last = done.stdout.splitlines()
    assert first.startswith("Emulated: ") and timed.endswith("us/run (emulated)") and last == "1 cases timed, 1 refused"


def test_perf_that_ends_early(player):
    done = run("perf", "-o", "B", STRATA_TOOLS=str(player))
    assert done.returncode == 1 and "ended with exit code 3 here" in done.stdout and "0 cases timed" in done.stdout


def test_a_summary_fits_on_a_screen(player):
    """Thirty failures: the first ones with the assertion and what repeats them, the others counted."""
    done = run("test", "-o", "D", STRATA_TOOLS=str(player))
    assert done.returncode == 1 and "30 cases: 30 run" in done.stdout and "30 failed" in done.stdout
    assert done.stdout.count("\nFAILED D(x=") == op_tests.FAILURES_SHOWN and "... and 26 more: 26 of D" in done.stdout
    assert len(done.stdout.splitlines()) < 40


def test_interrupted(player):
    """Ctrl-C ends the program and tells what came of what was run."""
    process = subprocess.Popen([sys.executable, "-m", "strata_hip.cli", "ops", "test", "-o", "E", "--runtime", "emulator"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "STRATA_TOOLS": str(player)})
    started = player / "started"
    while not started.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGINT and "Traceback" not in error
    told, left = int(re.search(r"2 cases: (\d) run", out)[1]), int(re.search(r"Interrupted: (\d) cases were not run", out)[1])
    assert told <= 1 and told + left == 2
    assert not pathlib.Path(f"/proc/{started.read_text().strip()}").exists()


def test_an_assertion_is_told_before_a_backtrace():
    lines = ["x", "a.cpp:1: GGML_ASSERT(ok) failed", *(f"#{i}" for i in range(50)), "ended"]
    assert op_tests.telling(lines, 3) == ["a.cpp:1: GGML_ASSERT(ok) failed", "#48", "#49", "ended"]
    assert op_tests.telling(lines[:2], 3) == lines[:2]


PLAYER = """#!/bin/bash
# Lists its cases; of those it is asked for, A(x=1) and E(x=1) pass, A(x=2) and all D fail, A(x=3) ends the program, E(x=2) hangs.
if [ "$1" = perf ]; then
    case "$*" in
        *"-o A"*) echo "  A(x=2):  852 runs -  1178.27 us/run"; echo "  A(x=3): not supported";;
        *"-o B"*) echo "lost the device"; exit 3;;
    esac
    exit 0
fi
if [ "$STRATA_REFUSALS" = all ]; then
    for i in 1 2 3; do echo "  A(x=$i): not supported [STRATA0]"; done
    printf '@refused\\tB\\tf32[1,1,1,1] <-\\tno kernel for this op\\n'
    echo "  B(x=1): not supported [STRATA0]"
    echo "  C(x=1): not supported [STRATA0, CPU]"
    echo "  A(x=4): not supported [STRATA0]"
    for i in 1 2; do echo "  E(x=$i): not supported [STRATA0]"; done
    for i in $(seq 30); do echo "  D(x=$i): not supported [STRATA0]"; done
    exit 0
fi
case "$*" in *"A(x=1)"*) printf '  A(x=1): \\033[1;32mOK\\033[0m\\n';; esac
case "$*" in *"A(x=2)"*) printf '[A] ERR = 0.5 > 0.1   A(x=2): \\033[1;31mFAIL\\033[0m\\n';; esac
case "$*" in *"A(x=3)"*) echo "GGML_ASSERT(false) failed"; kill -ABRT $$;; esac
case "$*" in *"E(x=1)"*) echo "  E(x=1): OK"; echo $$ > "$(dirname "$0")/started"; exec sleep 60;; *"E(x=2)"*) exec sleep 60;; esac
for i in $(seq 30); do
    case "$*" in *"D(x=$i)"*) echo "[D] ERR = 0.5 > 0.1   D(x=$i): FAIL";; esac
done
case "$*" in *"A(x=4)"*) printf '  A(x=4): \\033[1;32mOK\\033[0m\\n';; esac
exit 1
"""


@pytest.fixture
def player(tmp_path):
    program = tmp_path / op_tests.PROGRAM
    program.write_text(PLAYER)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / f"lib{op_tests.PRELOAD}.so").touch()
    return tmp_path


def test_failures_are_told_with_what_repeats_them(player):
    """A failed case and one that ends the program count as failed; those after it are run all the same."""
    done = run("test", "-o", "A,B,C", STRATA_TOOLS=str(player))
    assert done.returncode == 1
    assert "6 cases: 4 run" in done.stdout and "2 passed, 2 failed; 1 refused by the device; 1 not computed by the reference" in done.stdout
    assert "1 B: no kernel for this op (B)" in done.stdout
    assert "FAILED A(x=2)" in done.stdout and "ERR = 0.5 > 0.1" in done.stdout
    assert "FAILED A(x=3)" in done.stdout and "ended by signal 6 here" in done.stdout and "GGML_ASSERT(false) failed" in done.stdout
    assert f"{player / op_tests.PROGRAM} test -b STRATA0 -o 'A(x=3)'" in done.stdout


def test_a_filter_leaves_failures_out(player):
    done = run("test", "-o", "A", "-p", "x=[14]", STRATA_TOOLS=str(player))
    assert done.returncode == 0 and "2 run" in done.stdout and "2 passed" in done.stdout


@pytest.mark.parametrize("jobs", ["1", "3", "50"])
def test_jobs(player, jobs):
    """However many programs run at a time, each case is told once, and failures in the order of the list."""
    done = run("test", "-o", "A,D", "-j", jobs, STRATA_TOOLS=str(player))
    assert "34 cases: 34 run" in done.stdout and "2 passed, 32 failed" in done.stdout
    assert re.findall(r"FAILED (\S+)", done.stdout) == ["A(x=2)", "A(x=3)", "D(x=1)", "D(x=2)"]


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_wrong_jobs(jobs):
    done = run("test", "-j", jobs)
    assert done.returncode == 2 and "-j" in done.stderr and "Traceback" not in done.stderr


def test_chosen():
    cases = [op_tests.Case("ADD", "type=f32", None, True), op_tests.Case("ADD_ADD", "type=f16", None, True)]
    assert op_tests.chosen(cases, "ADD", None) == cases[:1]
    assert op_tests.chosen(cases, "ADD.*", "f16") == cases[1:]
    assert op_tests.chosen(cases, "ADD_ADD(type=f16)", None) == cases[1:]
    with pytest.raises(StrataError):
        op_tests.chosen(cases, "ADD", "f16")
