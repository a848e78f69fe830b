"""HIP as tests call it: every function of the emulator by its name, with plain handles and addresses."""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

import numpy as np

from strata_hip.hip_library import DEFAULT, DEVICE_TO_DEVICE, HipError  # noqa: F401
from strata_hip.hip_library import DEVICE_TO_HOST, HOST_TO_DEVICE, NON_BLOCKING, SIGNATURES, Library

from .libraries import emulator_library


class Hip(Library):
    """A loaded emulator. `raw` is the ctypes library; the methods raise HipError."""

    # What programs that hipcc compiled call too.
    signatures = {
        **SIGNATURES,
        "hipDeviceReset": [],
        "hipModuleLaunchCooperativeKernel": [c_void_p, *[c_uint] * 7, c_void_p, c_void_p],
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
    }

    def __init__(self, path):
        super().__init__(path)
        self.raw.strata_emulator_last_fault.restype = c_char_p
        self.raw.strata_emulator_counters.argtypes = [c_uint64 * 3]
        self.raw.strata_emulator_counters.restype = None

    def malloc(self, size: int) -> int:
        return self.made("hipMalloc", size)

    def host_malloc(self, size: int) -> int:
        return self.made("hipHostMalloc", size, 0)

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
        return self.made("hipStreamCreateWithFlags", flags)

    def event(self, flags: int = 0) -> int:
        return self.made("hipEventCreateWithFlags", flags)

    def synchronize(self, stream: int | None = None) -> None:
        """Waits for a stream, or for the device."""
        if stream is None:
            self.call("hipDeviceSynchronize")
        else:
            self.call("hipStreamSynchronize", stream)

    def function(self, module: int, name: str) -> int:
        return self.made("hipModuleGetFunction", module, name.encode())

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

    def launch_cooperative(self, function: int, grid, block, arguments: bytes = b"", lds: int = 0, stream: int = 0) -> None:
        """Queues a launch of a kernel with one argument, a struct, all workgroups at a time."""
        grid, block = ((d, 1, 1) if isinstance(d, int) else tuple(d) + (1,) * (3 - len(d)) for d in (grid, block))
        buffer = ctypes.create_string_buffer(arguments, max(1, len(arguments)))
        self.call("hipModuleLaunchCooperativeKernel", function, *grid, *block, lds, stream, (c_void_p * 1)(ctypes.addressof(buffer)))

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
