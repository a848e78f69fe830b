"""strata-hip: a llama.cpp backend for AMD Strix Halo (gfx1151) that also runs, instruction by instruction, without the chip.

    from strata_hip import Llama
    llm = Llama("model.gguf", device="emulator")
"""
from typing import TYPE_CHECKING, Any

from .errors import (ArgumentError, CompileError, CpuWorkWarning, DeviceError, DeviceMemoryError, ModelFileError, ModelNotFoundError,
                     StrataError)

if TYPE_CHECKING:
    from .llama import Llama

__version__ = "0.1.0"
__all__ = ["Llama", "ArgumentError", "CompileError", "CpuWorkWarning", "DeviceError", "DeviceMemoryError", "ModelFileError",
           "ModelNotFoundError", "StrataError"]


def __getattr__(name: str) -> Any:
    # Importing llama_cpp takes a second; `strata-hip --help` does not need it.
    if name == "Llama":
        from .llama import Llama
        return Llama
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
