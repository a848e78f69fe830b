#!/usr/bin/env python3
"""Builds programs of the pinned llama.cpp against the libraries of the installed llama_cpp package, and prints their paths.

    build_tools.py test-backend-ops       a minute
    build_tools.py test-llama-archs ...   the first of those that need llama.cpp's common code: three minutes on 2 cores
    build_tools.py llama-server           half a minute more; without the pages for a browser, which are not in the sources
    build_tools.py --pack FOLDER          those of the wheel into a folder, for strata_hip/bin beside any llama_cpp

What is built stays in the cache (see fetch_sources.py), in a folder named by a hash of sources, compiler, flags and libraries; the objects
in one that the next such hash can use. test-backend-ops is built from its source as the series in patches/ changes it, all else as it is.
LD_PRELOAD the library strata-preload into programs that do not load ggml's backends by themselves:

    GGML_BACKEND_PATH=.../libggml-strata-hip.so LD_PRELOAD=.../libstrata-preload.so test-llama-archs -a llama -b STRATA0
"""
import argparse
import fcntl
import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import fetch_sources
import patches
import progress

PROJECT = pathlib.Path(__file__).resolve().parent / "tools"
FLAGS = "-O1 -w"
LIBRARIES = ["libggml.so.0", "libggml-base.so.0", "libggml-cpu.so.0", "libllama.so.0", "libmtmd.so.0"]
SHARED_LIBRARIES = ["strata-preload", "ggml-rpc"]
TOOLS = [*SHARED_LIBRARIES, "test-backend-ops", "test-llama-archs", "test-recurrent-state-rollback", "test-save-load-state",
         "test-backend-sampler", "test-export-graph-ops", "test-fusion", "llama-bench", "llama-server", "ggml-rpc-server"]
PACKED = [*SHARED_LIBRARIES, "test-backend-ops", "llama-bench", "llama-server", "ggml-rpc-server"]  # what the package's commands start
PACKED_RPATH = "$ORIGIN/../../llama_cpp/lib"
BESIDE = {"llama-bench": ["ggml-rpc"], "llama-server": ["ggml-rpc"], "ggml-rpc-server": ["ggml-rpc"]}  # what a program looks for there


def compiler() -> str:
    """A C++ compiler. GCC first: it folds the two logarithms of constants that libstdc++ has for every random number, which are three
    quarters of what test-backend-ops' small cases take otherwise. Exits with a message if there is none."""
    for name in ("g++", "c++", "clang++-19", "clang++"):
        if shutil.which(name):
            return str(shutil.which(name))
    sys.exit("strata-hip: no C++ compiler was found; apt-get install g++")


def build_program(name: str) -> str:
    """cmake or ninja: what $CMAKE or $NINJA name, else those of the Python environment this runs in, else those on the path."""
    if given := os.environ.get(name.upper()):
        return given
    path = os.pathsep.join([str(pathlib.Path(sys.prefix) / "bin"), os.environ.get("PATH", "")])
    found = shutil.which(name, path=path)
    if found is None:
        sys.exit(f"strata-hip: {name} was not found; run `make build` and use .venv/bin/python")
    return found


def library_folder() -> pathlib.Path:
    """llama_cpp/lib of the Python environment this runs in. Exits with a message if it is not installed."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None:
        sys.exit("strata-hip: llama_cpp is not installed for this Python; run `make build` and use .venv/bin/python")
    return pathlib.Path(next(iter(spec.submodule_search_locations))) / "lib"


def folders() -> "tuple[pathlib.Path, pathlib.Path]":
    """(of the built tools, of the objects they are made from) in the cache. The build system sees itself which objects are out of date
    when only its own files, the patches or the libraries have changed."""
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True).stdout
    digest = hashlib.sha256("\0".join([version, FLAGS, fetch_sources.SHA256]).encode())
    objects = digest.copy()
    objects.update(str(PROJECT).encode())
    digest.update(f"\0{library_folder()}".encode())
    for file in [*sorted(PROJECT.iterdir()), *(library_folder() / name for name in LIBRARIES)]:
        digest.update(file.read_bytes())
    digest.update(patches.digest().encode())
    cache = fetch_sources.cache_folder() / "tools"
    return cache / digest.hexdigest()[:16], cache / f"objects-{objects.hexdigest()[:16]}"


def build(*tools: str) -> "list[pathlib.Path]":
    """The paths of the tools, built if they are not in the cache. Exits with a message on failure."""
    folder, objects = folders()
    needed = dict.fromkeys([*tools, *(name for tool in tools for name in BESIDE.get(tool, []))])
    paths = {tool: folder / file_name(tool) for tool in needed}
    if not all(path.exists() for path in paths.values()):
        make(folder, objects, paths)
    return [paths[tool] for tool in tools]


def pack(folder: pathlib.Path) -> None:
    """Builds the tools of the wheel into a folder that holds nothing else, linked so that they find llama_cpp/lib from strata_hip/bin of
    the same environment."""
    _, objects = folders()
    shutil.rmtree(folder, ignore_errors=True)
    make(folder, objects, {tool: folder / file_name(tool) for tool in PACKED}, PACKED_RPATH)


def file_name(tool: str) -> str:
    return f"lib{tool}.so" if tool in SHARED_LIBRARIES else tool


def make(folder: pathlib.Path, work: pathlib.Path, paths: "dict[str, pathlib.Path]", rpath: str = "") -> None:
    """Builds the tools that are not there at their paths in the folder, with objects in `work`. rpath: where they look for libraries when
    they run; where they are linked from if empty."""
    for made in (folder, work):
        made.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("strata-hip: waiting for another process that compiles programs of llama.cpp (minutes)", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        names = [tool for tool, path in paths.items() if not path.exists()]
        if not names:
            return
        patched = work / f"patched-{patches.digest()[:16]}"
        if not patched.exists():
            patches.apply(patched)
        configure = [
            build_program("cmake"), "-G", "Ninja", "-S", str(PROJECT), "-B", str(work), f"-DCMAKE_CXX_COMPILER={compiler()}",
            f"-DCMAKE_MAKE_PROGRAM={build_program('ninja')}", f"-DCMAKE_CXX_FLAGS={FLAGS}", "-DCMAKE_BUILD_TYPE=None",
            f"-DLLAMA_CPP={fetch_sources.llama_cpp()}", f"-DLLAMA_PATCHED={patched}", f"-DLLAMA_LIBRARIES={library_folder()}",
            f"-DCMAKE_BUILD_WITH_INSTALL_RPATH={'ON' if rpath else 'OFF'}", f"-DCMAKE_INSTALL_RPATH={rpath}"]
        compile_them = [build_program("cmake"), "--build", str(work), "--parallel", str(len(os.sched_getaffinity(0))), "--target", *names]
        try:
            progress.run("configuring programs of llama.cpp", configure, work / "configure.log")
            progress.run(f"compiling {', '.join(names)} (once; minutes)", compile_them, work / "compile.log")
        except progress.Failed as error:
            sys.exit(str(error))
        for name in names:
            # Last, and at once: a file by this name is whole.
            made = paths[name].with_suffix(".new")
            shutil.copy2(work / "bin" / paths[name].name, made)
            made.replace(paths[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"of {', '.join(TOOLS)}; all if none is named")
    parser.add_argument("--pack", type=pathlib.Path, metavar="FOLDER", help="those of the wheel into a folder instead")
    arguments = parser.parse_args()
    for wanted in arguments.tools:
        if wanted not in TOOLS:
            sys.exit(f"strata-hip: {wanted} is none of {', '.join(TOOLS)}")
    if arguments.pack:
        pack(arguments.pack)
        return
    for path in build(*(arguments.tools or TOOLS)):
        print(path)


if __name__ == "__main__":
    main()
