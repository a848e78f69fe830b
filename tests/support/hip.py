"""HIP through ctypes, for tests: calls raise HipError, memory is copied from and to numpy arrays."""

from __future__ import annotations

import ctypes
import functools
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

import numpy as np

from .libraries import emulator_library

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT = 1, 2, 3, 4
NON_BLOCKING = 1

_SIGNATURES = {
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
    "hipDeviceReset": [],
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
    "hipLaunchHostFunc": [c_void_p, c_void_p, c_void_p],
    "hipFuncSetAttribute": [c_void_p, c_int, c_int],
    "hipOccupancyMaxActiveBlocksPerMultiprocessor": [c_void_p, c_void_p, c_int, c_size_t],
    "hipDeviceCanAccessPeer": [c_void_p, c_int, c_int],
    "hipDeviceEnablePeerAccess": [c_int, c_uint],
    "hipDeviceDisablePeerAccess": [c_int],
    "hipMallocManaged": [c_void_p, c_size_t, c_uint],
    "hipMemAdvise": [c_void_p, c_size_t, c_int, c_int],
    "hipMemcpyPeerAsync": [c_void_p, c_int, c_void_p, c_int, c_size_t, c_void_p],
    "hipHostGetDevicePointer": [c_void_p, c_void_p, c_uint],
    "hipHostRegister": [c_void_p, c_size_t, c_uint],
    "hipHostUnregister": [c_void_p],
    "hipStreamBeginCapture": [c_void_p, c_int],
    "hipStreamEndCapture": [c_void_p, c_void_p],
    "hipStreamIsCapturing": [c_void_p, c_void_p],
    "hipGraphInstantiate": [c_void_p, c_void_p, c_void_p, c_void_p, c_size_t],
    "hipGraphExecUpdate": [c_void_p, c_void_p, c_void_p, c_void_p],
    "hipGraphLaunch": [c_void_p, c_void_p],
    "hipGraphDestroy": [c_void_p],
    "hipGraphExecDestroy": [c_void_p],
    "hipGetLastError": [],
    "strata_emulator_module_load": [c_void_p, c_void_p, c_size_t],
}


class HipError(RuntimeError):
    """A failed call: `name` is the error's HIP name, `message` the emulator's sentence."""

    def __init__(self, call: str, code: int, name: str, message: str):
        super().__init__(f"{call}: {name} ({code}): {message}")
        self.code, self.name, self.message = code, name, message


class Hip:
    """A loaded HIP library. `raw` is the ctypes library; the methods raise HipError."""

    def __init__(self, path: Path | str):
        self.raw = ctypes.CDLL(str(path))
        for name, parameters in _SIGNATURES.items():
            function = getattr(self.raw, name)
            function.argtypes, function.restype = parameters, c_int
        for name in ("hipGetErrorName", "hipGetErrorString"):
            getattr(self.raw, name).argtypes = [c_int]
            getattr(self.raw, name).restype = c_char_p
        for name in ("strata_emulator_last_message", "strata_emulator_last_fault"):
            getattr(self.raw, name).restype = c_char_p
        self.raw.strata_emulator_counters.argtypes = [c_uint64 * 3]
        self.raw.strata_emulator_counters.restype = None

    def call(self, name: str, *arguments) -> None:
        """Calls a HIP function and raises HipError if it does not return hipSuccess."""
        code = getattr(self.raw, name)(*arguments)
        if code != 0:
            message = self.raw.strata_emulator_last_message().decode()
            raise HipError(name, code, self.raw.hipGetErrorName(code).decode(), message)

    def _made(self, name: str, *arguments) -> int:
        result = c_void_p()
        self.call(name, byref(result), *arguments)
        return result.value or 0

    def malloc(self, size: int) -> int:
        return self._made("hipMalloc", size)

    def host_malloc(self, size: int) -> int:
        return self._made("hipHostMalloc", size, 0)

    def free(self, pointer: int) -> None:
        self.call("hipFree", pointer)

    def upload(self, array: np.ndarray) -> int:
        """A new allocation of exactly the array's size, holding its contents."""
        array = np.ascontiguousarray(array)
        pointer = self.malloc(array.nbytes)
        self.call("hipMemcpy", pointer, array.ctypes.data, array.nbytes, HOST_TO_DEVICE)
        return pointer

    def download(self, pointer: int, shape, dtype) -> np.ndarray:
        result = np.empty(shape, dtype)
        self.call("hipMemcpy", result.ctypes.data, pointer, result.nbytes, DEVICE_TO_HOST)
        return result

    def stream(self, flags: int = NON_BLOCKING) -> int:
        return self._made("hipStreamCreateWithFlags", flags)

    def event(self, flags: int = 0) -> int:
        return self._made("hipEventCreateWithFlags", flags)

    def elapsed(self, start: int, stop: int) -> float:
        """Milliseconds."""
        result = c_float()
        self.call("hipEventElapsedTime", byref(result), start, stop)
        return result.value

    def synchronize(self, stream: int | None = None) -> None:
        """Waits for a stream, or for the device."""
        if stream is None:
            self.call("hipDeviceSynchronize")
        else:
            self.call("hipStreamSynchronize", stream)

    def load(self, image: bytes) -> int:
        """A module of a code object; its bytes' end is known to the loader."""
        return self._made("strata_emulator_module_load", image, len(image))

    def function(self, module: int, name: str) -> int:
        return self._made("hipModuleGetFunction", module, name.encode())

    def kernel(self, image: bytes, name: str) -> int:
        """A kernel of a code object that stays loaded."""
        return self.function(self.load(image), name)

    def launch(self, function: int, grid, block, arguments: bytes = b"", lds: int = 0, stream: int = 0) -> None:
        """Queues a launch; grid in workgroups, block in work-items, as an int or a tuple; arguments as the kernel's segment."""
        grid, block = ((d, 1, 1) if isinstance(d, int) else tuple(d) + (1,) * (3 - len(d)) for d in (grid, block))
        buffer = ctypes.create_string_buffer(arguments, len(arguments))
        size = c_size_t(len(arguments))
        extra = (c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 3)
        self.call("hipModuleLaunchKernel", function, *grid, *block, lds, stream, None, extra)

    def counters(self) -> tuple[int, int, int]:
        """Launches, waves and wave instructions since the process started."""
        out = (c_uint64 * 3)()
        self.raw.strata_emulator_counters(out)
        return tuple(out)

    def last_fault(self) -> str:
        return self.raw.strata_emulator_last_fault().decode()


def divisor(by: int) -> tuple[int, int, int]:
    """The fast_divisor that make_divisor of strata/args/division.h makes."""
    shift = (by - 1).bit_length()
    return by, -(-(1 << (31 + shift)) // by), shift


@functools.cache
def emulator() -> Hip:
    """The emulator, loaded once a process."""
    return Hip(emulator_library())
