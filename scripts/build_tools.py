#!/usr/bin/env python3
"""Builds test-backend-ops of the pinned llama.cpp against the ggml libraries of the installed llama_cpp package, and prints
the program's path. The result is cached (see fetch_sources.py) under a hash of sources, compiler, flags and libraries.

Use it as    GGML_BACKEND_PATH=.../libggml-strata-hip.so test-backend-ops test -b STRATA0 -o MUL_MAT
"""
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import fetch_sources

FLAGS = ["-std=c++17", "-O1", "-w", "-pthread"]
LIBRARIES = ["libggml.so.0", "libggml-base.so.0", "libggml-cpu.so.0"]


def compiler() -> str:
    """A C++ compiler, clang first. Exits with a message if there is none."""
    for name in (os.environ.get("STRATA_CLANG"), "clang++-19", "clang++", "c++", "g++"):
        if name and shutil.which(name):
            return name
    sys.exit("strata-hip: no C++ compiler was found; apt-get install clang-19")


def library_folder() -> pathlib.Path:
    """llama_cpp/lib of the Python environment this runs in. Exits with a message if it is not installed."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None:
        sys.exit("strata-hip: llama_cpp is not installed for this Python; run `make build` and use .venv/bin/python")
    return pathlib.Path(next(iter(spec.submodule_search_locations))) / "lib"


def build() -> pathlib.Path:
    """The path of the program, built if it is not in the cache. Exits with a message on failure."""
    source = pathlib.Path(fetch_sources.llama_cpp()) / "tests" / "test-backend-ops.cpp"
    folder, clang = library_folder(), compiler()
    version = subprocess.run([clang, "--version"], capture_output=True, text=True).stdout
    digest = hashlib.sha256("\0".join([version, *FLAGS, str(folder)]).encode())
    for file in [source, *(folder / name for name in LIBRARIES)]:
        digest.update(file.read_bytes())
    target = fetch_sources.cache_folder() / "test-backend-ops" / digest.hexdigest()[:16] / "test-backend-ops"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    ggml = source.parent.parent / "ggml"
    print("strata-hip: compiling test-backend-ops (about a minute)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        program = pathlib.Path(work) / "program"
        command = [clang, *FLAGS, "-I", str(ggml / "include"), "-I", str(ggml / "src"), str(source), "-o", str(program),
                   *(str(folder / name) for name in LIBRARIES), f"-Wl,-rpath,{folder}"]
        if subprocess.run(command, stdout=sys.stderr).returncode != 0:
            sys.exit("strata-hip: test-backend-ops could not be compiled; the lines above say why.")
        program.replace(target)
    return target


if __name__ == "__main__":
    print(build())
