"""Device code at test time: HIP sources and assembler text become gfx1151 code objects, by the clang that the build uses."""

from __future__ import annotations

import functools
import getpass
import hashlib
import tempfile
from pathlib import Path

from strata_hip import compiler
from strata_hip.compiler import ARCH as TARGET
from strata_hip.compiler import find_clang, run_clang

from .paths import ROOT, llama_cpp_source

INCLUDE = ROOT / "ggml_hip_ext" / "include"  # the tree's, whatever is installed
HIP_FLAGS = (*compiler.HIP_FLAGS, "-I", str(INCLUDE))


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
    headers = _headers_digest() if suffix == ".hip" else b""
    key = hashlib.sha256("\0".join((source, suffix, find_clang(), *flags)).encode() + headers).hexdigest()
    cached = _cache_dir() / f"{key}.co"
    if not cached.exists():
        with tempfile.NamedTemporaryFile(dir=_cache_dir(), delete=False) as made:
            made.write(run_clang(source, suffix, flags))
        Path(made.name).replace(cached)
    return cached.read_bytes()


def compile_hip(source: str, target: str = TARGET, flags: tuple[str, ...] = ()) -> bytes:
    """The code object of HIP C++ text, which may include the project's device headers (strata/*.h)."""
    ggml = str(llama_cpp_source() / "ggml" / "src")
    return _compile(source, ".hip", (*HIP_FLAGS, "-isystem", ggml, f"--offload-arch={target}", *flags))


def assemble(source: str, target: str = TARGET, flags: tuple[str, ...] = ()) -> bytes:
    """The linked code object of assembler text, which brings its own kernel descriptors and metadata."""
    return _compile(source, ".s", ("-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", *flags))
