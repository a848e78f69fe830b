"""Python code in a process of its own: for what happens once a process, or must not end it."""
import os
import pathlib
import subprocess
import sys

from .paths import ROOT

_ALIVE = "still alive"
_KEPT = ("STRATA_LIBRARY_DIR", "STRATA_CLANG", "STRATA_SANITIZE", "STRATA_SANITIZE_REPORTS")


def python_path(*first: pathlib.Path) -> str:
    """$PYTHONPATH for a child that may run in another folder, with these folders first."""
    given = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join([*map(str, first), *(os.path.abspath(each) for each in given.split(os.pathsep) if each)])


def run_python(code: str, timeout: float = 300, **environment) -> subprocess.CompletedProcess:
    """Runs `code` with tests/ on the path and the given variables set (None removes one). Fails unless the process lives to
    its end. Returns what it printed: .stdout without the marker of life, .stderr."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_") or name in _KEPT}
    env["PYTHONPATH"] = python_path(ROOT / "tests")
    for name, value in environment.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = str(value)
    result = subprocess.run([sys.executable, "-c", code + f"\nprint({_ALIVE!r})"], env=env, capture_output=True, text=True, timeout=timeout)
    assert result.returncode == 0 and result.stdout.endswith(_ALIVE + "\n"), \
        f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
    result.stdout = result.stdout.removesuffix(_ALIVE + "\n")
    return result
