"""A HIP library through ctypes: its C functions, checked. `strata_hip.runtime` makes devices, memory and kernels of them."""
import ctypes
import os
from ctypes import c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from typing import Any, ClassVar, Dict, List, Union

from .errors import DeviceError, DeviceMemoryError

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = 1, 2, 3, 4  # enum hipMemcpyKind
NON_BLOCKING = 1                                                        # hipStreamNonBlocking
DISABLE_TIMING = 2                                                      # hipEventDisableTiming
NOT_READY = 600                                                         # hipErrorNotReady

SIGNATURES: Dict[str, List[Any]] = {
    "hipInit": [c_uint],
    "hipDriverGetVersion": [c_void_p],
    "hipRuntimeGetVersion": [c_void_p],
    "hipGetDeviceCount": [c_void_p],
    "hipSetDevice": [c_int],
    "hipGetDevice": [c_void_p],
    "hipGetDevicePropertiesR0600": [c_void_p, c_int],
    "hipDeviceGetAttribute": [c_void_p, c_int, c_int],
    "hipDeviceGetPCIBusId": [c_void_p, c_int, c_int],
    "hipDeviceSynchronize": [],
    "hipMemGetInfo": [c_void_p, c_void_p],
    "hipMalloc": [c_void_p, c_size_t],
    "hipFree": [c_void_p],
    "hipHostMalloc": [c_void_p, c_size_t, c_uint],
    "hipHostFree": [c_void_p],
    "hipMemcpy": [c_void_p, c_void_p, c_size_t, c_int],
    "hipMemcpyAsync": [c_void_p, c_void_p, c_size_t, c_int, c_void_p],
    "hipMemcpy2DAsync": [c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_int, c_void_p],
    "hipMemset": [c_void_p, c_int, c_size_t],
    "hipMemsetAsync": [c_void_p, c_int, c_size_t, c_void_p],
    "hipStreamCreateWithFlags": [c_void_p, c_uint],
    "hipStreamDestroy": [c_void_p],
    "hipStreamSynchronize": [c_void_p],
    "hipStreamQuery": [c_void_p],
    "hipStreamWaitEvent": [c_void_p, c_void_p, c_uint],
    "hipEventCreateWithFlags": [c_void_p, c_uint],
    "hipEventDestroy": [c_void_p],
    "hipEventRecord": [c_void_p, c_void_p],
    "hipEventSynchronize": [c_void_p],
    "hipEventQuery": [c_void_p],
    "hipEventElapsedTime": [c_void_p, c_void_p, c_void_p],
    "hipModuleLoadData": [c_void_p, c_void_p],
    "hipModuleUnload": [c_void_p],
    "hipModuleGetFunction": [c_void_p, c_void_p, c_char_p],
    "hipModuleLaunchKernel": [c_void_p] + [c_uint] * 7 + [c_void_p, c_void_p, c_void_p],
    "hipGetLastError": [],
}
"""The functions that the backend uses too (backend/runtime/hip_abi.h), with the types of their arguments."""

_FAILED_KERNEL = ("A kernel failed, and with it all work queued on the device, which can be used again in a new process. On the emulator "
                  "the message names instruction and lane, and `strata-hip sanitize` finds more.")
_REMEDIES = {
    "hipErrorOutOfMemory": "Close what is not needed any more, or ask for less; on an APU the share of system memory the GPU may use is "
                           "set by the kernel parameters ttm.pages_limit and amdgpu.gttsize.",
    "hipErrorInvalidImage": "Compile the code object for this device's arch (Runtime.device.arch).",
    "hipErrorNoBinaryForGpu": "Compile the code object for this device's arch (Runtime.device.arch).",
    "hipErrorInvalidConfiguration": "Grid and block count from 1; a block has at most 1024 work-items, and no more than its kernel was "
                                    "compiled for (KernelInfo.max_block).",
    "hipErrorInvalidHandle": "It was closed, or is another runtime's.",
    "hipErrorIllegalAddress": _FAILED_KERNEL,
    "hipErrorLaunchFailure": _FAILED_KERNEL,
    "hipErrorLaunchTimeOut": _FAILED_KERNEL,
}


class HipError(DeviceError):
    """A HIP call failed.

    Attributes: call, the function; code and name, HIP's of the error ("hipErrorInvalidValue"); message, the emulator's own sentence on
    it, or HIP's text."""

    def __init__(self, call: str, code: int, name: str, message: str):
        self.call, self.code, self.name, self.message = call, code, name, message
        remedy = _REMEDIES.get(name, "")
        stop = "" if message.endswith((".", "\n")) else "."
        super().__init__(f"{call} failed: {name} ({code}): {message}" + (f"{stop} {remedy}" if remedy else ""))


class HipMemoryError(HipError, DeviceMemoryError):
    """The device cannot give as much memory as was asked for."""


class Library:
    """A loaded HIP library, AMD's or the emulator: `raw` is the ctypes library, path its file, emulated whether it is the emulator."""

    signatures: ClassVar[Dict[str, List[Any]]] = SIGNATURES

    def __init__(self, path: Union[str, "os.PathLike[str]"]):
        """Loads the file. Raises DeviceError: it is none, or no HIP library."""
        self.path = os.fspath(path)
        try:
            self.raw = ctypes.CDLL(self.path)
            for name, parameters in self.signatures.items():
                function = getattr(self.raw, name)
                function.argtypes, function.restype = parameters, c_int
            for name in ("hipGetErrorName", "hipGetErrorString"):
                getattr(self.raw, name).argtypes = [c_int]
                getattr(self.raw, name).restype = c_char_p
        except (OSError, AttributeError) as error:
            raise DeviceError(f"{self.path} is not a HIP library that can be used: {error}") from None
        self.emulated = hasattr(self.raw, "strata_emulator_last_message")
        if self.emulated:
            self.raw.strata_emulator_last_message.restype = c_char_p
            self.raw.strata_emulator_module_load.argtypes = [c_void_p, c_void_p, c_size_t]

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function. Raises HipError if it does not return hipSuccess."""
        code = getattr(self.raw, name)(*arguments)
        if code != 0:
            raise self.error(name, code)

    def error(self, name: str, code: int) -> HipError:
        """The exception for a call that returned `code`."""
        text = self.raw.strata_emulator_last_message() if self.emulated else self.raw.hipGetErrorString(code)
        made = HipError if code != 2 else HipMemoryError  # hipErrorOutOfMemory
        return made(name, code, self.raw.hipGetErrorName(code).decode(), (text or b"").decode("utf-8", "replace"))

    def made(self, name: str, *arguments: Any) -> int:
        """Calls a function that stores a handle or an address at its first argument, and returns that."""
        result = c_void_p()
        self.call(name, ctypes.byref(result), *arguments)
        return result.value or 0

    def load(self, image: bytes) -> int:
        """A module of a code object's bytes. The emulator is told where they end."""
        if self.emulated:
            return self.made("strata_emulator_module_load", image, len(image))
        return self.made("hipModuleLoadData", image)

    def elapsed(self, start: int, stop: int) -> float:
        """Milliseconds between two recorded events."""
        result = c_float()
        self.call("hipEventElapsedTime", ctypes.byref(result), start, stop)
        return result.value
