"""The plugin in this process: where its libraries are, loading it into llama_cpp's ggml, and its C interface (cffi)."""
import contextlib
import ctypes
import json
import os
import pathlib
import threading
from typing import Any, Dict, Iterator, List, Optional

import cffi
import llama_cpp

from . import environment, log
from .errors import DeviceError
from .locations import library_folder

RUNTIMES = ("auto", "hip", "emulator")
PLUGIN = "libggml-strata-hip.so"

_ffi = cffi.FFI()
_ffi.cdef("""
    const char * strata_hip_version(void);
    const char * strata_hip_last_error(void);
    uint64_t strata_hip_thread_errors(void);
    const char * strata_hip_device_json(void);
    uint64_t strata_hip_counter(const char * name);
""")
_lock = threading.Lock()
_loaded: Optional["Plugin"] = None


def ggml() -> ctypes.CDLL:
    """The libggml that libllama uses. By its SONAME: the wheel holds the file under several names, and loading it by another
    path would give a second copy with a registry that libllama never sees."""
    library = ctypes.CDLL("libggml.so.0")
    for name in ("ggml_backend_load", "ggml_backend_dev_get"):
        getattr(library, name).restype = ctypes.c_void_p
    library.ggml_backend_dev_count.restype = ctypes.c_size_t
    return library


def ggml_base() -> ctypes.CDLL:
    """The libggml-base that libllama uses."""
    library = ctypes.CDLL("libggml-base.so.0")
    for name in ("ggml_backend_dev_name", "ggml_backend_dev_description", "ggml_backend_reg_name"):
        getattr(library, name).restype = ctypes.c_char_p
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.ggml_backend_dev_type.argtypes = [ctypes.c_void_p]
    library.ggml_backend_dev_backend_reg.restype = ctypes.c_void_p
    library.ggml_backend_dev_backend_reg.argtypes = [ctypes.c_void_p]
    return library


class Plugin:
    """The registered plugin."""

    def __init__(self, library: Any, registry: int):
        self._library = library
        self.registry = registry

    @property
    def version(self) -> str:
        return _ffi.string(self._library.strata_hip_version()).decode()

    @property
    def last_error(self) -> str:
        """What failed last on the device for this thread, or else for any; or an empty text."""
        return _text(self._library.strata_hip_last_error())

    @property
    def thread_errors(self) -> int:
        """How many errors this thread has met."""
        return int(self._library.strata_hip_thread_errors())

    @property
    def info(self) -> Dict[str, Any]:
        """What the plugin says of itself: version, ggml_version, runtime, library, devices, code_objects, switches
        (backend/strata_hip.h)."""
        return json.loads(_text(self._library.strata_hip_device_json()))

    def counter(self, name: str) -> int:
        """A counter since the plugin was loaded: graphs_planned, graphs_replayed, launches, copies, nodes, allocated_bytes,
        errors, graphs_captured, graph_launches. Raises KeyError for another name."""
        value = self._library.strata_hip_counter(name.encode())
        if value == 2**64 - 1:
            raise KeyError(name)
        return value

    @property
    def runtime(self) -> str:
        """"hip" or "emulator"."""
        return str(self.info["runtime"])

    def devices(self) -> List[int]:
        """Addresses of the plugin's ggml devices."""
        return [device for device in all_devices() if ggml_base().ggml_backend_dev_backend_reg(device) == self.registry]


def _text(pointer: Any) -> str:
    return _ffi.string(pointer).decode("utf-8", "replace") if pointer else ""


def all_devices() -> List[int]:
    """Addresses of every ggml device of this process."""
    library = ggml()
    return [library.ggml_backend_dev_get(ctypes.c_size_t(i)) for i in range(library.ggml_backend_dev_count())]


def loaded() -> Optional[Plugin]:
    """The plugin if this process has loaded it."""
    return _loaded


def load(device: Optional[str] = None) -> Plugin:
    """Registers the plugin with llama_cpp's ggml, once a process.

    device: "hip" (AMD's runtime), "emulator", or None/"auto": what $STRATA_RUNTIME says, otherwise hip.
    Raises DeviceError: no supported GPU, another ggml version, a missing library, or another device in use already."""
    global _loaded
    if device not in (None, *RUNTIMES):
        raise ValueError(f"device={device!r}: expected one of {', '.join(map(repr, RUNTIMES))} or None")
    with _lock:
        if _loaded:
            if device not in (None, "auto", _loaded.runtime):
                raise DeviceError(f"this process already computes on {_loaded.runtime!r}: start another process for {device!r}")
            return _loaded
        path = library_folder() / PLUGIN
        if not path.exists():
            raise DeviceError(f"{path} does not exist: build it with `make build`, or name its folder in STRATA_LIBRARY_DIR")
        with environment.changed(**({} if device is None else {"STRATA_RUNTIME": device})), \
                log.captured(quiet=True) as messages:  # the exception says it
            library = _open(path)
            registry = ggml().ggml_backend_load(os.fsencode(path))
        if not registry:
            raise DeviceError(_text(library.strata_hip_last_error()) or messages.reason() or f"ggml refused {path}")
        _loaded = Plugin(library, registry)
        return _loaded


@contextlib.contextmanager
def failures_raise(ctx: Any) -> Iterator[None]:
    """Waits at the end for what was decoded in the llama.cpp context, and raises DeviceError if the device failed. Failures that
    other threads meet meanwhile are theirs."""
    ours = loaded()
    before = ours.thread_errors if ours else 0
    error: Optional[RuntimeError] = None
    try:
        yield
    except RuntimeError as caught:
        error = caught
    llama_cpp.llama_synchronize(ctx)
    if ours and ours.thread_errors > before:
        raise DeviceError(f"{error}: {ours.last_error}" if error else ours.last_error) from error
    if error:
        raise error


def _open(path: pathlib.Path) -> Any:
    """The plugin's own C functions. ggml must be in the process first: the plugin binds to it by its SONAME."""
    ggml()
    try:
        return _ffi.dlopen(os.fspath(path))
    except OSError as error:
        raise DeviceError(f"the plugin cannot be loaded: {error}") from None
