"""Kernels whose code is damaged: whatever they do, it ends as a result or as a fault, never as a crash or a hang."""

import json
import struct

import numpy as np

from support.process import run_python

PROGRAMS = 250


def code_range(image: bytes) -> tuple[int, int]:
    """File offset and size of the executable segment."""
    start, = struct.unpack_from("<Q", image, 32)
    count, = struct.unpack_from("<H", image, 56)
    for i in range(count):
        kind, flags, offset, _, _, size = struct.unpack_from("<IIQQQQ", image, start + 56 * i)
        if kind == 1 and flags & 1:
            return offset, size
    raise ValueError("no executable segment")


def damaged(image: bytes, rng) -> bytes:
    result = bytearray(image)
    offset, size = code_range(image)
    for _ in range(rng.integers(1, 12)):
        at = offset + 4 * int(rng.integers(0, size // 4))
        if rng.integers(2):
            result[at:at + 4] = rng.bytes(4)
        else:
            result[at + int(rng.integers(4))] ^= 1 << int(rng.integers(8))
    return bytes(result)


def run_damaged(seed: int, programs: int) -> None:
    """Runs damaged kernels in this process and prints how they ended."""
    from support.hip import HipError, emulator
    from support.kernels import basic_kernels, copy_args, spin_args, store_args

    hip, rng = emulator(), np.random.default_rng(seed)
    ends = {}
    for _ in range(programs):
        module = hip.load(damaged(basic_kernels(), rng))
        data = hip.malloc(4096)
        try:
            for name, arguments in (("store", store_args(data, 0, 3)), ("spin", spin_args(data, 100)), ("copy", copy_args(data, data + 128))):
                hip.launch(hip.function(module, name), 2, 32, arguments)
                hip.synchronize()
            end = "hipSuccess"
        except HipError as error:
            assert hip.last_fault(), error
            end = error.name
        ends[end] = ends.get(end, 0) + 1
        hip.call("hipDeviceReset")
    print(json.dumps(ends))


def test_damaged_kernels_end_well():
    seed = int(np.random.SeedSequence().entropy % 2**32)
    print("seed", seed)
    done = run_python(f"import sys; sys.path.insert(0, {__file__.rpartition('/')[0]!r})\n"
                      f"from test_random_code import run_damaged; run_damaged({seed}, {PROGRAMS})",
                      STRATA_EMULATOR_INSTRUCTION_LIMIT=100_000)
    ends = json.loads(done.stdout)
    assert set(ends) <= {"hipSuccess", "hipErrorIllegalAddress", "hipErrorLaunchFailure", "hipErrorLaunchTimeOut"}
    assert ends["hipSuccess"] > 20 and ends["hipErrorLaunchFailure"] > 20 and ends["hipErrorIllegalAddress"] > 10, ends
