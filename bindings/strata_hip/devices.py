"""ggml's devices in this process, their buffer types, and pools of CPU threads."""
import ctypes
import dataclasses
from typing import Any, Dict, Iterable, List, Optional

from .errors import DeviceError, StrataError
from .ggml import ffi, lib

MAX_THREADS = 512  # GGML_MAX_N_THREADS


@dataclasses.dataclass(frozen=True)
class Device:
    """One that ggml knows."""
    pointer: Any
    name: str
    description: str
    on_cpu: bool       # the CPU itself
    accelerates: bool  # helps the CPU, as BLAS does

    @property
    def address(self) -> int:
        return address(self.pointer)


def address(pointer: Any) -> int:
    """Of what a cffi pointer points to."""
    return int(ffi.cast("uintptr_t", pointer))


def all_devices() -> List[Device]:
    """Every device of this process."""
    pointers = [lib.ggml_backend_dev_get(i) for i in range(lib.ggml_backend_dev_count())]
    kinds = [lib.ggml_backend_dev_type(pointer) for pointer in pointers]
    return [Device(pointer, ffi.string(lib.ggml_backend_dev_name(pointer)).decode(),
                   ffi.string(lib.ggml_backend_dev_description(pointer)).decode(), kind == lib.GGML_BACKEND_DEVICE_TYPE_CPU,
                   kind == lib.GGML_BACKEND_DEVICE_TYPE_ACCEL) for pointer, kind in zip(pointers, kinds)]


def table() -> str:
    """The devices but the CPU, as llama.cpp's --list-devices prints them."""
    lines = ["Available devices:"]
    for device in all_devices():
        if not device.on_cpu:
            free, total = ffi.new("size_t *"), ffi.new("size_t *")
            lib.ggml_backend_dev_memory(device.pointer, free, total)
            lines.append(f"  {device.name}: {device.description} ({total[0] >> 20} MiB, {free[0] >> 20} MiB free)")
    return "\n".join(lines if len(lines) > 1 else [*lines, "  (none)"])


def named(names: str) -> ctypes.Array:
    """A NULL-terminated array of the devices in "NAME/NAME/..."; "none": of none. Raises StrataError for a name that is no device's, or
    the CPU's."""
    by_name = {device.name: device.address for device in all_devices() if not device.on_cpu}
    wanted = [] if names.strip() == "none" else [name.strip() for name in names.split("/")]
    for name in wanted:
        if name not in by_name:
            raise StrataError(f"invalid device: {name!r} is none of {', '.join([*by_name, 'none', 'auto'])}")
    return (ctypes.c_void_p * (len(wanted) + 1))(*(by_name[name] for name in wanted), None)


def buffer_types(chosen: Iterable[Optional[int]]) -> Dict[str, int]:
    """Addresses of the buffer types of the CPU and of the chosen devices, by name."""
    wanted = set(chosen)
    found = [lib.ggml_backend_dev_buffer_type(device.pointer) for device in all_devices() if device.on_cpu or device.address in wanted]
    return {ffi.string(lib.ggml_backend_buft_name(each)).decode(): address(each) for each in found if each != ffi.NULL}


class ThreadPool:
    """A pool of CPU threads for contexts.

    Args:
        mask: bit n allows CPU n; 0: all.
        strict: a CPU a thread.
        poll: 0 (sleep while there is no work) to 100 (spin).
        priority: -1 (low) to 3 (real time).

    Raises DeviceError if it cannot be made.
    """

    def __init__(self, n_threads: int, mask: int = 0, strict: bool = False, poll: int = 50, priority: int = 0):
        parameters = ffi.new("struct ggml_threadpool_params *")
        lib.ggml_threadpool_params_init(parameters, n_threads)
        parameters.cpumask = [bool(mask >> cpu & 1) for cpu in range(MAX_THREADS)]
        parameters.strict_cpu, parameters.poll, parameters.prio = strict, poll, priority
        self._pool = lib.ggml_threadpool_new(parameters)
        if self._pool == ffi.NULL:
            raise DeviceError(f"a pool of {n_threads} CPU threads could not be made")

    def attach(self, ctx: Any) -> None:
        """Makes a llama.cpp context compute with these threads, prompts too."""
        attach = ctypes.CDLL("libllama.so.0").llama_attach_threadpool  # llama_cpp has no binding of it
        attach.argtypes, attach.restype = [ctypes.c_void_p] * 3, None
        attach(ctx, address(self._pool), None)

    def close(self) -> None:
        """Ends the threads; no context may use the pool any more."""
        lib.ggml_threadpool_free(self._pool)
