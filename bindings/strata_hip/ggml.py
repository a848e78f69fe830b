"""ggml's C functions and the plugin's own, through cffi: `ffi` and `lib`, and ggml's types by name.

They are those of the libraries that llama_cpp has loaded into this process, declared by the very headers that the plugin was compiled
against. For what this package needs; `strata_hip.ops` is made for users.
"""
import functools
import os
from typing import Any, Dict

import cffi

from . import plugin
from .errors import DeviceError
from .locations import library_folder

DECLARATIONS = "ggml_declarations.h"


def _declarations() -> str:
    path = library_folder() / DECLARATIONS
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DeviceError(f"{path}: {error.strerror}. Build it with `make build`, or name its folder in STRATA_LIBRARY_DIR") from None


ffi: Any = cffi.FFI()
ffi.cdef(_declarations(), override=True)  # the headers repeat some typedefs
lib: Any = ffi.dlopen("libggml.so.0")     # by its SONAME: the copy that llama_cpp has loaded (plugin.ggml)

TYPES: Dict[str, int] = {ffi.string(lib.ggml_type_name(i)).decode(): i for i in range(lib.GGML_TYPE_COUNT)
                         if lib.ggml_type_name(i) != ffi.NULL and lib.ggml_blck_size(i) > 0}
"""Type numbers by the names that ggml gives them: f32, f16, bf16, q4_0, q4_K, i32, ..."""


@functools.cache
def plugin_functions() -> Any:
    """The plugin's own C functions (backend/strata_hip.h); the plugin must have been loaded."""
    return ffi.dlopen(os.fspath(library_folder() / plugin.PLUGIN))
