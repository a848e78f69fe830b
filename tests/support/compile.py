"""Device code at test time: HIP sources and assembler text become gfx1151 code objects, by the clang that the build uses."""

from __future__ import annotations

import functools
import getpass
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from .paths import llama_cpp_source

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = ROOT / "ggml_hip_ext" / "include"
TARGET = "gfx1151"
# As in cmake/DeviceCode.cmake.
HIP_FLAGS = ("-x", "hip", "--offload-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-std=c++20", "-O3",
             "-ffp-contract=off", "-fno-exceptions", "-I", str(INCLUDE))


@functools.cache
def find_clang() -> str:
    """A clang++ with the AMDGPU target, looked for in the same order as cmake/DeviceClang.cmake does."""
    if "STRATA_CLANG" in os.environ:
        candidates = [os.environ["STRATA_CLANG"]]
    else:
        rocm = os.environ.get("ROCM_PATH")
        candidates = [f"{rocm}/llvm/bin/clang++"] if rocm else []
        candidates += [f"clang++-{version}" for version in (19, 20, 21, 22)] + ["clang++"]
    for candidate in candidates:
        path = shutil.which(candidate)
        if path and "amdgcn" in subprocess.run([path, "--print-targets"], capture_output=True, text=True).stdout:
            return path
    raise RuntimeError(f"no clang++ with the AMDGPU target (looked for {', '.join(candidates)}); on Debian: apt-get install clang-19 "
                       "lld-19")


def _cache_dir() -> Path:
    path = Path(tempfile.gettempdir()) / f"strata-hip-test-code-{getpass.getuser()}"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


@functools.cache
def _headers_digest() -> bytes:
    digest = hashlib.sha256()
    for header in sorted(INCLUDE.rglob("*.h")):
        digest.update(header.read_bytes())
    return digest.digest()


def _compile(source: str, suffix: str, flags: tuple[str, ...]) -> bytes:
    clang = find_clang()
    headers = _headers_digest() if suffix == ".hip" else b""
    key = hashlib.sha256("\0".join((source, suffix, clang, *flags)).encode() + headers).hexdigest()
    cached = _cache_dir() / f"{key}.co"
    if not cached.exists():
        with tempfile.TemporaryDirectory(dir=_cache_dir()) as work:
            text = Path(work) / f"kernel{suffix}"
            text.write_text(source)
            made = Path(work) / "kernel.co"
            done = subprocess.run([clang, *flags, "-o", str(made), str(text)], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{clang} failed:\n{done.stderr}")
            made.replace(cached)
    return cached.read_bytes()


def compile_hip(source: str, target: str = TARGET, flags: tuple[str, ...] = ()) -> bytes:
    """The code object of HIP C++ text, which may include the project's device headers (strata/*.h)."""
    ggml = str(llama_cpp_source() / "ggml" / "src")
    return _compile(source, ".hip", (*HIP_FLAGS, "-isystem", ggml, f"--offload-arch={target}", *flags))


def assemble(source: str, target: str = TARGET, flags: tuple[str, ...] = ()) -> bytes:
    """The linked code object of assembler text, which brings its own kernel descriptors and metadata."""
    return _compile(source, ".s", ("-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", *flags))
