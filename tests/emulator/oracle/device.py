"""Runs groups of cases on the emulator, through its HIP ABI."""

from __future__ import annotations

import struct

import numpy as np

from support.compile import assemble
from support.hip import HOST_TO_DEVICE, Hip, HipError

from .assembler import kernel_source
from .case import Group, make_waves, pack, unpack
from .compare import differences, predict
from .inputs import Source
from .wave import LANES


def build(groups: list[Group]) -> bytes:
    """One code object for all groups."""
    return assemble(kernel_source(groups))


def check(hip: Hip, image: bytes, group: Group, seed: int) -> dict[int, list[str]]:
    """Runs the cases of a group on fresh inputs; returns the differences by the case's number.

    If the launch fails, the cases run one by one, so that only those which fail alone are blamed.
    """
    numbers = list(range(len(group.cases)))
    try:
        return _check_together(hip, hip.kernel(image, group.name), group, numbers, seed)
    except HipError:
        hip.call("hipDeviceReset")
    found = {}
    for number in numbers:
        try:
            found |= _check_together(hip, hip.kernel(image, group.name), group, [number], seed)
        except HipError as error:
            found[number] = [f"{group.cases[number]}: {error}"]
            hip.call("hipDeviceReset")
    return found


def _check_together(hip: Hip, function: int, group: Group, numbers: list[int], seed: int) -> dict[int, list[str]]:
    cases = [group.cases[n] for n in numbers]
    total = sum(case.waves for case in cases)
    memory_size = sum(case.memory * case.waves for case in cases)
    memory = hip.malloc(memory_size) if memory_size else 0
    inputs, contents, planned, where = [], [], [], memory
    for number, case in zip(numbers, cases):
        waves = make_waves(case, Source(seed + number), where)
        where += case.memory * case.waves
        planned.append((waves, predict(case, waves)))
        inputs.append(pack(waves, number))
        contents += [bytes(w.memory) for w in waves]
    if memory:
        hip.call("hipMemcpy", memory, b"".join(contents), memory_size, HOST_TO_DEVICE)
    source = hip.upload(np.frombuffer(b"".join(inputs), np.uint8))
    result = hip.upload(np.full(group.block_bytes * total, 0xA5, np.uint8))
    hip.launch(function, total, LANES, struct.pack("<QQ", source, result))
    hip.synchronize()
    output = hip.download(result, group.block_bytes * total, np.uint8).tobytes()
    stored = hip.download(memory, memory_size, np.uint8).tobytes() if memory else b""
    for pointer in filter(None, (source, result, memory)):
        hip.free(pointer)
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
