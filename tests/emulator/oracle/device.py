"""Loads code objects and launches kernels through the emulator's HIP ABI."""

from __future__ import annotations

import ctypes
from pathlib import Path

from .assembler import assemble, kernel_source
from .case import Case, Group, make_waves, pack, unpack
from .compare import differences, predict
from .inputs import Source


class DeviceError(Exception):
    """A HIP call failed; the message holds its name, and the fault's text where the emulator gives one."""


class Device:
    """The emulator's library, opened by itself: no plugin and no ggml are involved."""

    def __init__(self, library: str | Path):
        self.hip = ctypes.CDLL(str(library))
        self.hip.hipGetErrorName.restype = ctypes.c_char_p
        self.hip.hipGetErrorString.restype = ctypes.c_char_p
        self.call("hipInit", 0)

    def call(self, name: str, *arguments) -> None:
        error = getattr(self.hip, name)(*arguments)
        if error:
            raise DeviceError(f"{name}: {self.hip.hipGetErrorName(error).decode()}{self.fault()}")

    def fault(self) -> str:
        """The emulator's message of the last fault."""
        function = getattr(self.hip, "strata_emulator_last_fault", None)
        if function is None:
            return ""
        function.restype = ctypes.c_char_p
        message = function()
        return f": {message.decode()}" if message else ""

    def allocate(self, size: int) -> int:
        pointer = ctypes.c_void_p()
        self.call("hipMalloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def free(self, pointer: int) -> None:
        self.call("hipFree", ctypes.c_void_p(pointer))

    def upload(self, pointer: int, data: bytes) -> None:
        self.call("hipMemcpy", ctypes.c_void_p(pointer), data, ctypes.c_size_t(len(data)), 1)

    def download(self, pointer: int, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        self.call("hipMemcpy", buffer, ctypes.c_void_p(pointer), ctypes.c_size_t(size), 2)
        return buffer.raw

    def reset(self) -> None:
        """Ends the state of error after a fault, and with it all allocations and modules."""
        self.call("hipDeviceReset")

    def load(self, image: bytes) -> Module:
        return Module(self, image)


class Module:
    def __init__(self, device: Device, image: bytes):
        self.device = device
        self.handle = ctypes.c_void_p()
        self.image = image
        device.call("hipModuleLoadData", ctypes.byref(self.handle), image)

    def launch(self, name: str, grid: int, pointers: list[int]) -> None:
        """Launches `grid` workgroups of one wave and waits for them."""
        function = ctypes.c_void_p()
        self.device.call("hipModuleGetFunction", ctypes.byref(function), self.handle, name.encode())
        arguments = (ctypes.c_uint64 * len(pointers))(*pointers)
        size = ctypes.c_size_t(ctypes.sizeof(arguments))
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(arguments), 2, ctypes.addressof(size), 3)
        self.device.call("hipModuleLaunchKernel", function, grid, 1, 1, 32, 1, 1, 0, None, None, extra)
        self.device.call("hipDeviceSynchronize")

    def unload(self) -> None:
        self.device.call("hipModuleUnload", self.handle)


def build(groups: list[Group]) -> bytes:
    """One code object for all groups."""
    return assemble(kernel_source(groups))


def check(device: Device, module: Module, group: Group, seed: int) -> dict[int, list[str]]:
    """Runs the cases of a group on fresh inputs; returns the differences by the case's number.

    If the launch fails, the cases run one by one, so that only those which fail alone are blamed.
    """
    numbers = list(range(len(group.cases)))
    try:
        return _check_together(device, module, group, numbers, seed)
    except DeviceError:
        device.reset()
    found = {}
    for number in numbers:
        fresh = device.load(module.image)
        try:
            found |= _check_together(device, fresh, group, [number], seed)
        except DeviceError as error:
            found[number] = [f"{group.cases[number]}: {error}"]
            device.reset()
    return found


def _check_together(device: Device, module: Module, group: Group, numbers: list[int], seed: int) -> dict[int, list[str]]:
    cases = [group.cases[n] for n in numbers]
    total = sum(case.waves for case in cases)
    size = group.block_bytes * total
    buffers = [device.allocate(size), device.allocate(size)]
    memory_size = sum(case.memory * case.waves for case in cases)
    memory = device.allocate(memory_size) if memory_size else 0
    inputs, contents, planned, where = [], [], [], memory
    for number, case in zip(numbers, cases):
        waves = make_waves(case, Source(seed + number), where)
        where += case.memory * case.waves
        planned.append((waves, predict(case, waves)))
        inputs.append(pack(waves, number))
        contents += [bytes(w.memory) for w in waves]
    device.upload(buffers[0], b"".join(inputs))
    device.upload(buffers[1], b"\xa5" * size)
    if memory:
        device.upload(memory, b"".join(contents))
    module.launch(group.name, total, buffers)
    output = device.download(buffers[1], size)
    stored = device.download(memory, memory_size) if memory else b""
    for pointer in buffers + ([memory] if memory else []):
        device.free(pointer)
    found, block, part = {}, 0, 0
    for number, case, (waves, expected) in zip(numbers, cases, planned):
        texts = []
        for n, (before, after) in enumerate(zip(waves, expected)):
            seen = unpack(case, output[block : block + group.block_bytes])
            block += group.block_bytes
            texts += [f"{case} [wave {n}] {t}" for t in differences(case, before, after, seen, stored[part : part + case.memory])]
            part += case.memory
        if texts:
            found[number] = texts
    return found
