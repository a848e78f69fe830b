"""ggml's C API as `lib` and `ffi` (cffi, ABI mode), declared from the pinned headers themselves, and the loaded plugin.

Only libraries of the installed llama_cpp package are used, as a user's program would.
"""
import functools
import os
import pathlib
import subprocess
import tempfile

import cffi

from . import paths
from .compile import find_clang
from .libraries import library_dir

HEADERS = ("ggml.h", "ggml-alloc.h", "ggml-backend.h", "ggml-cpu.h")


def _declarations() -> str:
    """The headers after preprocessing, without what cffi cannot read."""
    include = paths.llama_cpp_source() / "ggml" / "include"
    with tempfile.TemporaryDirectory() as empty:
        for name in ("stdio.h", "stdint.h", "stddef.h", "stdbool.h", "stdarg.h", "string.h"):
            (pathlib.Path(empty) / name).touch()
        source = "".join(f'#include "{name}"\n' for name in HEADERS)
        command = [find_clang(), "-E", "-P", "-x", "c", "-nostdinc", "-I", empty, "-I", str(include), "-D__attribute__(x)=", "-"]
        text = subprocess.run(command, input=source, check=True, capture_output=True, text=True).stdout
    text = text.replace("sizeof(int32_t)", "4")
    return "\n".join(line for line in text.splitlines() if "static const size_t" not in line)


ffi = cffi.FFI()
ffi.cdef(_declarations(), override=True)  # some typedefs are repeated
ffi.cdef("""
    const char * strata_hip_version(void);
    const char * strata_hip_last_error(void);
    uint64_t strata_hip_thread_errors(void);
    const char * strata_hip_device_json(void);
    uint64_t strata_hip_counter(const char * name);
    const char * strata_hip_refusal(const struct ggml_tensor * op);
""")
lib = ffi.dlopen(str(paths.ggml_folder() / "libggml.so.0"))  # the file that libllama.so needs

TYPES = {ffi.string(lib.ggml_type_name(i)).decode(): i for i in range(lib.GGML_TYPE_COUNT)
         if lib.ggml_type_name(i) != ffi.NULL and lib.ggml_blck_size(i) > 0}
"""Type numbers by the names ggml gives them: f32, f16, bf16, q4_0, q4_K, i32, ..."""


class PluginError(RuntimeError):
    """The plugin refused or failed; the message is the plugin's own."""


@functools.cache
def plugin():
    """The plugin's own functions, after ggml has loaded it. STRATA_RUNTIME is `emulator` unless the environment says otherwise."""
    os.environ.setdefault("STRATA_RUNTIME", "emulator")
    path = str(library_dir() / "libggml-strata-hip.so")
    registry = lib.ggml_backend_load(path.encode())
    functions = ffi.dlopen(path)
    if registry == ffi.NULL:
        raise PluginError(ffi.string(functions.strata_hip_last_error()).decode())
    return functions


def last_error() -> str:
    """The plugin's newest message."""
    return ffi.string(plugin().strata_hip_last_error()).decode()


def counter(name: str) -> int:
    """One of the plugin's counters: launches, graphs_planned, graphs_replayed, copies, nodes, allocated_bytes, errors."""
    return plugin().strata_hip_counter(name.encode())


def device(name: str = "STRATA0"):
    """The ggml device of that name; loads the plugin first."""
    plugin()
    found = lib.ggml_backend_dev_by_name(name.encode())
    if found == ffi.NULL:
        raise PluginError(f"no device {name}")
    return found


@functools.cache
def backend(name: str = "STRATA0"):
    """One backend instance a device, shared by the tests of a process."""
    made = lib.ggml_backend_dev_init(device(name), ffi.NULL)
    if made == ffi.NULL:
        raise PluginError(last_error())
    return made
