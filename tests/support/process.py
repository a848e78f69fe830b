"""Python code in a process of its own: for settings that are read once, for exits and for forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def run_python(code: str, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `code` with tests/ on its path and the variables added to the environment; the output is captured as text."""
    variables = {**os.environ, **environment}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=timeout)
