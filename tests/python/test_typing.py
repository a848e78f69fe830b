"""The types of the package: mypy finds nothing wrong with them, and programs that use them are checked against them."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

import strata_hip
from support.paths import ROOT
from support.process import python_path

PROGRAM = """
from strata_hip import Llama, compiler, ops, runtime

llm = Llama("model.gguf", device="emulator")
llm.tokenize(b"text").append(1)
with runtime.open("emulator") as gpu:
    number: int = gpu.upload([1.0])                      # wrong: an Array
    kernel = gpu.load(compiler.compile_hip("", arch=1))["name"]  # wrong: no int
    kernel.launch((1, 2), 32, 1, 2.0, lds="4")           # wrong: no text
ops.mul_mat(ops.Quantized([[1.0] * 32], "q4_0"), [1], device="CPU").shape
ops.rms_norm([1.0], eps="small")                         # wrong: no text
Llama(3)                                                 # wrong: no int
"""


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """mypy(*arguments): what it prints, and its exit code. Runs share a cache."""
    cache = tmp_path_factory.mktemp("mypy")

    def run(*arguments: str, cwd: pathlib.Path) -> tuple[str, int]:
        command = [sys.executable, "-m", "mypy", "--cache-dir", str(cache), *arguments]
        environment = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": python_path()}
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, env=environment)
        assert not done.stderr, done.stderr
        return done.stdout, done.returncode

    return run


def test_the_package_is_consistent(mypy):
    told, code = mypy(cwd=ROOT)
    assert code == 0, told


def test_programs_are_checked_against_it(mypy, tmp_path):
    assert (pathlib.Path(strata_hip.__file__).parent / "py.typed").exists()
    (tmp_path / "program.py").write_text(PROGRAM)
    told, code = mypy("program.py", cwd=tmp_path)
    wrong = [i for i, line in enumerate(PROGRAM.splitlines(), 1) if "# wrong" in line]
    assert code == 1 and sorted({int(number) for number in re.findall(r"^program.py:(\d+): error", told, re.MULTILINE)}) == wrong, told
