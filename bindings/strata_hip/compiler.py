"""Device code at run time: HIP C++ becomes a code object, by clang alone; no ROCm is needed."""
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Sequence

from .errors import CompileError

ARCH = "gfx1151"
# As in cmake/DeviceCode.cmake.
HIP_FLAGS = ("-x", "hip", "--offload-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib", "-std=c++20", "-O3",
             "-ffp-contract=off", "-fno-exceptions")


def include_folder() -> pathlib.Path:
    """The folder of the device headers, strata/*.h: include/ of the installed package, which also has the ggml-common.h that
    strata/codebooks.h includes; or the source tree's, where that one is in the pinned llama.cpp's ggml/src."""
    package = pathlib.Path(__file__).resolve().parent
    installed = package / "include"
    return installed if installed.exists() else package.parents[1] / "ggml_hip_ext" / "include"


@functools.cache
def find_clang() -> str:
    """A clang++ with the AMDGPU target: $STRATA_CLANG, else ROCm's below $ROCM_PATH, else one in $PATH, as cmake/DeviceClang.cmake
    looks for it. Raises CompileError, saying what was looked for."""
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
    raise CompileError(f"no clang++ with the AMDGPU target (looked for {', '.join(candidates)}); on Debian: apt-get install clang-19 "
                       "lld-19")


def compile_hip(source: str, *, arch: str = ARCH, flags: Sequence[str] = ()) -> bytes:
    """The code object of HIP C++ text, which may include this project's device headers (strata/*.h).

    arch: the device's, as "gfx1151". flags: more of clang's. Raises CompileError with clang's messages."""
    return run_clang(source, ".hip", (*HIP_FLAGS, "-I", str(include_folder()), f"--offload-arch={arch}", *flags))


def run_clang(source: str, suffix: str, flags: Sequence[str]) -> bytes:
    """What clang makes of a file with this text and suffix. Raises CompileError with clang's messages."""
    clang = find_clang()
    with tempfile.TemporaryDirectory(prefix="strata-hip-") as work:
        text, made = pathlib.Path(work) / f"kernel{suffix}", pathlib.Path(work) / "kernel.co"
        text.write_text(source, encoding="utf-8")
        done = subprocess.run([clang, *flags, "-o", str(made), str(text)], capture_output=True, text=True)
        if done.returncode:
            raise CompileError(f"{clang} failed:\n{done.stderr}")
        return made.read_bytes()
