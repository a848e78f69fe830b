#!/usr/bin/env python3
"""Prints the path of a llama-cpp-python wheel built on this machine from the pinned source distribution.

llama-cpp-python compiles for the CPU it is built on, so the wheel is kept in the cache folder (see fetch_sources.py)
under a key of version, sha256, Python, CPU features and CMAKE_ARGS, and is built only when that key is not there.

On a CPU with AMX it is compiled for all that such CPUs have beside it: GCC 12 takes ldtilecfg for a read of 8 bytes and leaves out the
stores of the other 56, so that ggml's AMX products end in a general protection fault.
"""
import hashlib
import os
import pathlib
import platform
import shutil
import sys
import tempfile

import fetch_sources
import progress


def cpu_features() -> str:
    """What of this machine's CPU decides the code that -march=native gives."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return platform.machine() + " ".join(sorted(flags.partition(":")[2].split()))


WITHOUT_AMX = "-DGGML_NATIVE=OFF -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON"


def cmake_arguments() -> str:
    """$CMAKE_ARGS, after what this CPU needs."""
    return " ".join(filter(None, [WITHOUT_AMX if "amx_tile" in cpu_features().split() else "", os.environ.get("CMAKE_ARGS", "")]))


def key() -> str:
    """The name of the wheel's folder in the cache."""
    features = hashlib.sha256((cpu_features() + cmake_arguments()).encode()).hexdigest()[:12]
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{fetch_sources.VERSION}-{fetch_sources.SHA256[:12]}-{python}-{features}"


def wheel(log: pathlib.Path) -> pathlib.Path:
    """The wheel's path, after building it if need be (about 8 minutes on 2 cores). Raises progress.Failed."""
    folder = fetch_sources.cache_folder() / "wheels" / key()
    built = sorted(folder.glob("llama_cpp_python-*.whl"))
    if built:
        return built[0]
    folder.parent.mkdir(exist_ok=True)
    source = fetch_sources.sdist()
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        progress.run(f"building llama-cpp-python {fetch_sources.VERSION} (once; about 8 minutes on 2 cores)",
                     [sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "-w", work, str(source)], log, dict(os.environ, CMAKE_ARGS=cmake_arguments()))
        made = next(pathlib.Path(work).glob("llama_cpp_python-*.whl"))
        folder.mkdir(exist_ok=True)
        shutil.move(made, folder / made.name)
    return folder / made.name


if __name__ == "__main__":
    print(wheel(pathlib.Path(tempfile.gettempdir()) / "strata-hip-llama-wheel.log"))
