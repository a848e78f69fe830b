"""Libraries that stand in for others: a HIP without a GPU, a device that is wrong, a ggml of another version."""
import pathlib
import subprocess
import sys

from .compile import find_clang
from .libraries import emulator_library
from .paths import ROOT, llama_cpp_source


def compile_c(source: pathlib.Path, target: pathlib.Path, *flags: str) -> pathlib.Path:
    """A shared library from one C file; `flags` may be libraries too."""
    command = [find_clang(), "-x", "c", "-w", "-O1", "-shared", "-fPIC", str(source), "-x", "none", *flags, "-o", str(target)]
    subprocess.run(command, check=True)
    return target


def fake_hip(folder: pathlib.Path, *flags: str) -> pathlib.Path:
    """fake_hip.c as libamdhip64.so in `folder`; see there for its environment variables."""
    return compile_c(ROOT / "tests" / "support" / "fake_hip.c", folder / "libamdhip64.so", *flags)


def faulty_device(folder: pathlib.Path) -> pathlib.Path:
    """An emulator in `folder`, for $STRATA_EMULATOR_LIBRARY, that loses launches or fails: see faulty_device.c for its environment variables."""
    emulator = emulator_library()
    return compile_c(ROOT / "tests" / "support" / "faulty_device.c", folder / "libfaulty.so", str(emulator),
                     f"-Wl,-rpath,{emulator.parent},--no-as-needed", "-ldl", "-lpthread")


def fake_ggml(folder: pathlib.Path, definitions: str) -> pathlib.Path:
    """A libggml-base.so.0 in `folder` in which some functions are the given ones (a line each) and the rest do nothing."""
    source = folder / "ggml.c"
    headers = [llama_cpp_source() / "ggml" / name for name in
               ("include/ggml.h", "include/ggml-alloc.h", "include/ggml-backend.h", "src/ggml-impl.h", "src/ggml-backend-impl.h")]
    subprocess.run([sys.executable, str(ROOT / "cmake" / "ggml_base_stub.py"), str(source), *map(str, headers)], check=True)
    ours = [line.split("(")[0].split()[-1].lstrip("*") for line in definitions.splitlines()]
    kept = [line for line in source.read_text().splitlines() if not any(line.startswith(f"void {name}(") for name in ours)]
    source.write_text("\n".join(kept) + "\n" + definitions + "\n")
    return compile_c(source, folder / "libggml-base.so.0", "-Wl,-soname,libggml-base.so.0")
