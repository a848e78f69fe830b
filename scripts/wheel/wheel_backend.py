"""What pip builds the package with: scikit-build-core, and then the name that says which Linux a wheel runs on.

auditwheel looks at every library and program in the wheel, says which of the manylinux platforms has all they need, and renames the
wheel so. Nothing is copied into it: ggml's libraries come with llama-cpp-python, which the package requires.
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Optional

from scikit_build_core.build import *  # noqa: F403  (the rest of what pip asks for)
from scikit_build_core.build import build_wheel as build_plain_wheel

OF_LLAMA_CPP_PYTHON = ("libggml*.so*", "libllama*.so*", "libmtmd.so*")


def build_wheel(wheel_directory: str, config_settings: "Optional[dict[str, Any]]" = None, metadata_directory: Optional[str] = None) -> str:
    """Builds the wheel and returns its file name (PEP 517). Where no manylinux platform fits, as with a C library newer than auditwheel
    knows, the name keeps the plain linux platform and a line says why."""
    with tempfile.TemporaryDirectory() as folder:
        plain = pathlib.Path(folder) / build_plain_wheel(folder, config_settings, metadata_directory)
        named = pathlib.Path(folder) / "named"
        command = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--patcher", "none", "--wheel-dir", str(named)]
        for pattern in OF_LLAMA_CPP_PYTHON:
            command += ["--exclude", pattern]
        done = subprocess.run([*command, str(plain)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        made = sorted(named.glob("*.whl")) if done.returncode == 0 else []
        if not made:
            print(f"{done.stdout}\nstrata-hip: no manylinux platform fits this wheel, see above; it is for systems like this one",
                  file=sys.stderr)
        wheel = made[0] if made else plain
        shutil.move(wheel, pathlib.Path(wheel_directory) / wheel.name)
        return wheel.name
