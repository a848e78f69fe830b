"""The device itself, from numpy: code objects, memory, launches, streams and events, on a GPU or on the emulator.

    import numpy as np
    from strata_hip import compiler, runtime

    with runtime.open("emulator") as gpu:
        module = gpu.load(compiler.compile_hip(source))              # or a .co file's path
        print(*module.kernels.values(), sep="\\n")                    # names and arguments, from the metadata
        x = gpu.upload(np.arange(1024, dtype=np.float32))
        y = gpu.empty(x.shape, x.dtype)
        module["scale"].launch(4, 256, y, x, 2.5, 1024)              # grid in workgroups, block in work-items, then the arguments
        print(y.download())

docs/python.md has a whole kernel and its test. Everything here is given back by close(), at the end of a with block, with its runtime,
or when it is forgotten, whichever comes first. Launches run behind the caller's back: copies to and from numpy wait for them.

Raises HipError (a DeviceError), which carries HIP's name of the error and says what to do; HipMemoryError; ArgumentError for what can
be told before HIP is called.
"""
import contextlib
import ctypes
import dataclasses
import os
import pathlib
import struct
import weakref
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, TypeVar, Union

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from . import plugin
from .code_object import Argument, KernelInfo, read_kernels
from .errors import ArgumentError, DeviceError
from .hip_library import DEVICE_TO_HOST, DISABLE_TIMING, HOST_TO_DEVICE, NON_BLOCKING, NOT_READY, HipError, HipMemoryError, Library

__all__ = ["Argument", "Array", "Device", "Event", "HipError", "HipMemoryError", "Kernel", "KernelInfo", "Module", "Runtime", "Stream",
           "open", "read_kernels"]

Size = Union[int, Sequence[int]]
"""A grid or a block: x, (x, y) or (x, y, z)."""

_PROPERTIES, _ARCH = 1472, 1160  # hipDeviceProp_tR0600: its size, and where gcnArchName is
_COMPUTE_UNITS = 10015           # hipDeviceAttributePhysicalMultiProcessorCount; the plain one counts pairs on RDNA

_Self = TypeVar("_Self", bound="_Closing")


class _Closing:
    """Something that close() gives back."""

    def close(self) -> None:
        """Gives it back; a second time does nothing."""
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclasses.dataclass(frozen=True)
class Device:
    """A device of a runtime."""
    index: int
    name: str
    arch: str            # "gfx1151"
    compute_units: int
    memory: int          # bytes


def open(device: Optional[str] = None, index: int = 0) -> "Runtime":
    """The runtime that the backend uses in this process, and one of its devices.

    device: "hip" (AMD's runtime), "emulator", or None: what $STRATA_RUNTIME says, otherwise hip. A process has one.
    index: the device's number. Raises DeviceError: no supported GPU and no emulator asked for, or no such device."""
    return Runtime(plugin.load(device).info["library"], index)


class Runtime(_Closing):
    """A device of a HIP library, and all that was made on it. Can be used from any thread, and as a context manager.

    Attributes: library, the Library; device, the Device."""

    def __init__(self, library: Union[str, "os.PathLike[str]", Library], index: int = 0):
        """library: a file, or a Library. Raises DeviceError: it cannot be used, or has no device of that number."""
        self.library = library if isinstance(library, Library) else Library(library)
        self._owned: "weakref.WeakSet[_Owned]" = weakref.WeakSet()
        self._closed = False
        self.library.call("hipInit", 0)
        devices = self.devices()
        if not 0 <= index < len(devices):
            raise DeviceError(f"there is no device {index}, but " + (", ".join(f"{each.index}: {each.name}" for each in devices) or "none"))
        self.device = devices[index]

    def devices(self) -> List[Device]:
        """All devices of the library."""
        count = ctypes.c_int()
        self.library.call("hipGetDeviceCount", ctypes.byref(count))
        return [self._describe(index) for index in range(count.value)]

    def _describe(self, index: int) -> Device:
        properties = ctypes.create_string_buffer(_PROPERTIES)
        self.library.call("hipGetDevicePropertiesR0600", properties, index)
        units = ctypes.c_int()
        self.library.call("hipDeviceGetAttribute", ctypes.byref(units), _COMPUTE_UNITS, index)
        self.library.call("hipSetDevice", index)
        arch = properties.raw[_ARCH:].split(b"\0")[0].decode().split(":")[0]
        return Device(index, properties.value.decode("utf-8", "replace"), arch, units.value, self._memory()[1])

    def _memory(self) -> Tuple[int, int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.library.call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    @property
    def emulated(self) -> bool:
        """Whether the device is the emulator's."""
        return self.library.emulated

    @property
    def memory_free(self) -> int:
        """Bytes that are free on the device now."""
        self._activate()
        return self._memory()[0]

    def load(self, code_object: Union[bytes, str, "os.PathLike[str]"]) -> "Module":
        """Loads a code object, given as bytes or as a file. Raises ArgumentError: it is none; HipError: it is of another arch."""
        if isinstance(code_object, (str, os.PathLike)):
            try:
                image = pathlib.Path(code_object).read_bytes()
            except OSError as error:
                raise ArgumentError(f"{os.fspath(code_object)}: {error.strerror}") from None
        else:
            image = bytes(code_object)
        return Module(self, image)

    def empty(self, shape: Union[int, Sequence[int]], dtype: DTypeLike = np.float32) -> "Array":
        """An array on the device with nothing in it yet. Raises HipMemoryError."""
        return Array(self, shape, dtype)

    def upload(self, values: ArrayLike) -> "Array":
        """A copy of a numpy array on the device. Raises HipMemoryError."""
        host = np.asarray(values, order="C")
        made = Array(self, host.shape, host.dtype)
        made.upload(host)
        return made

    def stream(self) -> "Stream":
        """A queue of its own: its work runs beside that of other streams."""
        return Stream(self)

    def event(self, timing: bool = True) -> "Event":
        """A point in a stream's work, to wait for or to take the time at."""
        return Event(self, timing)

    def synchronize(self) -> None:
        """Waits for everything that was given to the device. Raises HipError if any of it failed."""
        self.call("hipDeviceSynchronize")

    def call(self, name: str, *arguments: Any) -> None:
        """Calls one of HIP's functions (hip_library.SIGNATURES) with this device as the thread's. Raises HipError."""
        self._activate()
        self.library.call(name, *arguments)

    def made(self, name: str, *arguments: Any) -> int:
        """As call(), for a function that stores what it makes at its first argument, which is returned."""
        self._activate()
        return self.library.made(name, *arguments)

    def _activate(self) -> None:
        if self._closed:
            raise DeviceError("this runtime has been closed")
        self.library.call("hipSetDevice", self.device.index)

    def close(self) -> None:
        """Waits for the device and gives back all that was made on it. Raises HipError if work has failed that nobody has waited for; all
        is given back nonetheless."""
        if self._closed:
            return
        try:
            self.synchronize()
        finally:
            for each in list(self._owned):
                each._give_back()
            self._closed = True


class _Owned(_Closing):
    """A handle of the runtime's that is given back once."""

    def __init__(self, runtime: Runtime, handle: int, give_back: str, in_use: bool = False):
        """give_back: the function that takes the handle. in_use: it does not wait for queued work that uses what it gives back."""
        self.runtime = runtime
        self._handle = handle
        self._give_back = weakref.finalize(self, _give_back, runtime.library, runtime.device.index, give_back, handle, in_use)
        runtime._owned.add(self)

    @property
    def handle(self) -> int:
        """HIP's handle or address of it. Raises DeviceError after close()."""
        self.require_open()
        return self._handle

    def require_open(self) -> None:
        """Raises DeviceError after close()."""
        if not self._give_back.alive:
            raise DeviceError(f"this {type(self).__name__} has been closed")

    def close(self) -> None:
        """Gives it back; a second time does nothing."""
        self._give_back()


def _give_back(library: Library, device: int, function: str, handle: int, wait: bool) -> None:
    """Gives a handle back. What fails then is work that was queued before, and that is told to whoever waits for it."""
    with contextlib.suppress(HipError):
        library.call("hipSetDevice", device)
    if wait:
        with contextlib.suppress(HipError):
            library.call("hipDeviceSynchronize")
    with contextlib.suppress(HipError):
        library.call(function, handle)


class Array(_Owned):
    """Memory of the device, shaped as a numpy array; C order.

    Attributes: shape, dtype, nbytes."""

    def __init__(self, runtime: Runtime, shape: Union[int, Sequence[int]], dtype: DTypeLike):
        self.shape: Tuple[int, ...] = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        if self.dtype.hasobject:
            raise ArgumentError("Python objects cannot be copied to a device")
        if any(n < 0 for n in self.shape):
            raise ArgumentError(f"an array of shape {self.shape} cannot be")
        self.nbytes = self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))
        super().__init__(runtime, runtime.made("hipMalloc", max(self.nbytes, 1)), "hipFree")

    @property
    def pointer(self) -> int:
        """Its address on the device; one can add to it. Raises DeviceError after close()."""
        return self.handle

    def upload(self, values: ArrayLike, stream: Optional["Stream"] = None) -> None:
        """Copies values of this shape and dtype to the device, after all work given to the stream (None: to the whole device)."""
        host = np.asarray(values, order="C")
        if host.shape != self.shape or host.dtype != self.dtype:
            raise ArgumentError(f"{host.dtype} values of shape {host.shape} do not fit an array of {self.dtype}, {self.shape}")
        self._copy(self.pointer, host.ctypes.data, HOST_TO_DEVICE, stream)

    def download(self, stream: Optional["Stream"] = None) -> np.ndarray:
        """A copy in host memory, after all work given to the stream (None: to the whole device). Raises HipError if that work failed."""
        host = np.empty(self.shape, self.dtype)
        self._copy(host.ctypes.data, self.pointer, DEVICE_TO_HOST, stream)
        return host

    def _copy(self, target: int, source: int, kind: int, stream: Optional["Stream"]) -> None:
        if self.nbytes == 0:
            return
        if stream is None:
            self.runtime.synchronize()
            self.runtime.call("hipMemcpy", target, source, self.nbytes, kind)
        else:
            self.runtime.call("hipMemcpyAsync", target, source, self.nbytes, kind, stream.handle)
            stream.synchronize()  # numpy's memory may be gone afterwards

    def fill(self, byte: int = 0, stream: Optional["Stream"] = None) -> None:
        """Sets all bytes to one value, in the stream's turn (None: that of the device's null stream)."""
        if self.nbytes:
            self.runtime.call("hipMemsetAsync", self.pointer, byte, self.nbytes, stream.handle if stream else None)

    def __repr__(self) -> str:
        return f"Array(shape={self.shape}, dtype={self.dtype})"


class Stream(_Owned):
    """A queue: what is given to it runs in order, beside other streams."""

    def __init__(self, runtime: Runtime):
        super().__init__(runtime, runtime.made("hipStreamCreateWithFlags", NON_BLOCKING), "hipStreamDestroy")

    def synchronize(self) -> None:
        """Waits until all that was given to it is done. Raises HipError if any of it failed."""
        self.runtime.call("hipStreamSynchronize", self.handle)

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return _done(self.runtime, "hipStreamQuery", self.handle)

    def wait(self, event: "Event") -> None:
        """What is given to the stream from now on waits for the event."""
        self.runtime.call("hipStreamWaitEvent", self.handle, event.handle, 0)


class Event(_Owned):
    """A point in a stream's work."""

    def __init__(self, runtime: Runtime, timing: bool):
        super().__init__(runtime, runtime.made("hipEventCreateWithFlags", 0 if timing else DISABLE_TIMING), "hipEventDestroy")

    def record(self, stream: Optional[Stream] = None) -> None:
        """Stands for what was given to the stream so far (None: to the null stream)."""
        self.runtime.call("hipEventRecord", self.handle, stream.handle if stream else None)

    def synchronize(self) -> None:
        """Waits for it. Raises HipError if the work failed."""
        self.runtime.call("hipEventSynchronize", self.handle)

    @property
    def done(self) -> bool:
        """Whether the work before it is done."""
        return _done(self.runtime, "hipEventQuery", self.handle)

    def milliseconds_since(self, start: "Event") -> float:
        """Between two events that are done. On the emulator, this CPU's time, which says nothing of the chip's."""
        return self.runtime.library.elapsed(start.handle, self.handle)


def _done(runtime: Runtime, query: str, handle: int) -> bool:
    try:
        runtime.call(query, handle)
    except HipError as error:
        if error.code != NOT_READY:
            raise
        return False
    return True


class Module(_Owned):
    """A loaded code object: module["name"] is a kernel of it, kernels describes all by name."""

    def __init__(self, runtime: Runtime, image: bytes):
        self.kernels: Dict[str, KernelInfo] = read_kernels(image)
        self._image = image  # HIP may read it as long as the module is loaded
        runtime._activate()
        super().__init__(runtime, runtime.library.load(image), "hipModuleUnload", in_use=True)

    def __getitem__(self, name: str) -> "Kernel":
        """Raises ArgumentError: no such kernel."""
        if name not in self.kernels:
            raise ArgumentError(f"the code object has no kernel {name!r}, but {', '.join(self.kernels) or 'none'}; "
                                'extern "C" keeps a name plain')
        return Kernel(self, self.kernels[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.kernels)


class Kernel:
    """A kernel that can be launched. Attributes: module, info."""

    def __init__(self, module: Module, info: KernelInfo):
        self.module, self.info = module, info
        self._function = module.runtime.made("hipModuleGetFunction", module.handle, info.name.encode())

    def launch(self, grid: Size, block: Size, *arguments: Any, lds: int = 0, stream: Optional[Stream] = None) -> None:
        """Queues a launch and returns; whoever waits for it hears of its failure.

        grid: in workgroups, block: in work-items of a workgroup; each x, (x, y) or (x, y, z). lds: bytes of LDS a workgroup beside those
        that the kernel declares. stream: None is the device's null stream.

        arguments, one for each of info.arguments: for a pointer an Array, an address, or None; for a value a numpy scalar of its size, a
        Python int (an integer of its size), a Python float (an IEEE number of its size), or, for a struct, its bytes: bytes, a
        ctypes.Structure or a record of a numpy structured array. The metadata does not say whether a value is an integer: 2 for a float
        parameter is the wrong bits, 2.0 or np.float32(2) is right.

        Raises ArgumentError if they do not fit, HipError if HIP does not take the launch."""
        if len(arguments) != len(self.info.arguments):
            raise ArgumentError(f"{self.info} takes {len(self.info.arguments)} arguments, {len(arguments)} are given")
        stored = [ctypes.create_string_buffer(self._encode(i, value), self.info.arguments[i].size) for i, value in enumerate(arguments)]
        pointers = (ctypes.c_void_p * max(len(stored), 1))(*[ctypes.addressof(each) for each in stored])
        self.module.require_open()
        self.module.runtime.call("hipModuleLaunchKernel", self._function, *_three("grid", grid), *_three("block", block), lds,
                                 stream.handle if stream else None, pointers, None)

    def _encode(self, index: int, value: Any) -> bytes:
        """The bytes of one argument."""
        argument = self.info.arguments[index]
        what = f"argument {index} of {self.info}"
        if isinstance(value, Array):
            if value.runtime.library is not self.module.runtime.library:
                raise ArgumentError(f"{what} is an array of another runtime")
            value = value.pointer
        elif value is None and argument.pointer:
            value = 0
        if isinstance(value, (np.generic, np.ndarray)) and not (argument.pointer and isinstance(value, np.integer)):
            if isinstance(value, np.ndarray) and value.ndim:
                raise ArgumentError(f"{what} is an array in host memory: Runtime.upload() copies it to the device")
            data = value.tobytes()
        elif isinstance(value, (bytes, bytearray, memoryview, ctypes.Structure)) and not argument.pointer:
            data = bytes(value)
        elif isinstance(value, (bool, int, np.integer)):
            return _integer(what, int(value), argument.size)
        elif isinstance(value, float) and not argument.pointer and argument.size in (2, 4, 8):
            return struct.pack({2: "<e", 4: "<f", 8: "<d"}[argument.size], value)
        else:
            raise ArgumentError(f"{what} cannot be made from {value!r}")
        if len(data) != argument.size:
            raise ArgumentError(f"{what} has {argument.size} bytes, {len(data)} are given")
        return data


def _integer(what: str, value: int, size: int) -> bytes:
    try:
        return value.to_bytes(size, "little", signed=value < 0)
    except OverflowError:
        raise ArgumentError(f"{what} has {size} bytes, which do not hold {value}") from None


def _three(name: str, size: Size) -> Tuple[int, int, int]:
    """x, y, z."""
    sizes = (size,) if isinstance(size, (int, np.integer)) else tuple(size)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(n, (int, np.integer)) and 0 <= n < 2**32 for n in sizes):
        raise ArgumentError(f"{name}={size!r}: one to three sizes, none negative")
    x, y, z = (int(n) for n in (*sizes, 1, 1)[:3])
    return x, y, z
