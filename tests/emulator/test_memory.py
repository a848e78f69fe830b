"""Memory of the emulated device: what is allocated, what is refused, what copies check."""

import ctypes

import numpy as np
import pytest

from support.hip import DEFAULT, DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, HipError
from support.process import run_python


def test_new_memory_is_poisoned(hip):
    pointer = hip.malloc(100_003)
    assert pointer % 256 == 0
    assert (hip.download(pointer, 100_003, np.uint8) == 0xFF).all()


def test_freed_memory_is_not_given_out_again(hip):
    first = hip.malloc(4096)
    hip.free(first)
    assert all(hip.malloc(4096) != first for _ in range(50))


def test_allocations_keep_their_distance(hip):
    ranges = sorted((hip.malloc(size), size) for size in (1, 4095, 4096, 4097, 2**21, 3 * 2**21 + 1))
    assert all(b - (a + size) >= 65536 for (a, size), (b, _) in zip(ranges, ranges[1:])), ranges


def test_zero_bytes(hip):
    assert hip.malloc(0) == 0
    hip.free(0)


def test_double_free(hip):
    pointer = hip.malloc(64)
    hip.free(pointer)
    with pytest.raises(HipError, match="which was freed") as error:
        hip.free(pointer)
    assert error.value.name == "hipErrorInvalidDevicePointer"


def test_free_wants_the_start_of_an_allocation(hip):
    pointer = hip.malloc(64)
    with pytest.raises(HipError, match="inside allocation"):
        hip.free(pointer + 16)
    with pytest.raises(HipError, match="was not allocated by hipMalloc"):
        hip.free(hip.host_malloc(64))


def test_copies_of_freed_memory_are_refused(hip):
    pointer = hip.malloc(64)
    hip.free(pointer)
    with pytest.raises(HipError, match="source.*which was freed") as error:
        hip.download(pointer, 64, np.uint8)
    assert error.value.name == "hipErrorInvalidValue"


@pytest.mark.parametrize("offset, size", [(0, 65), (64, 1), (1, 64), (-1, 64), (-64, 32), (0, 2**40), (0, 2**64 - 1)])
def test_copies_stay_within_an_allocation(hip, offset, size):
    pointer = hip.malloc(64)
    host = np.zeros(128, np.uint8)
    for call, arguments in [("hipMemcpy", (pointer + offset, host.ctypes.data, size, HOST_TO_DEVICE)),
                            ("hipMemcpyAsync", (host.ctypes.data, pointer + offset, size, DEVICE_TO_HOST, None)),
                            ("hipMemset", (pointer + offset, 0, size))]:
        with pytest.raises(HipError) as error:
            hip.call(call, *arguments)
        assert error.value.name == "hipErrorInvalidValue"
        assert call in error.value.message
    assert (hip.download(pointer, 64, np.uint8) == 0xFF).all()


def test_direction_must_fit(hip):
    device, host = hip.malloc(64), np.zeros(64, np.uint8)
    for arguments in [(device, host.ctypes.data, 64, DEVICE_TO_HOST), (host.ctypes.data, device, 64, HOST_TO_DEVICE),
                      (device, host.ctypes.data, 64, DEVICE_TO_DEVICE)]:
        with pytest.raises(HipError, match="the direction says otherwise"):
            hip.call("hipMemcpy", *arguments)
    with pytest.raises(HipError, match="hipMemcpyKind") as error:
        hip.call("hipMemcpy", device, host.ctypes.data, 64, 17)
    assert error.value.name == "hipErrorInvalidMemcpyDirection"
    hip.call("hipMemcpy", device, host.ctypes.data, 64, DEFAULT)
    assert (hip.download(device, 64, np.uint8) == 0).all()


def test_round_trip(hip):
    seed = np.random.SeedSequence().entropy
    print("seed", seed)
    data = np.random.default_rng(seed).integers(0, 256, 5_000_001, np.uint8)  # more than is staged
    first, second = hip.upload(data), hip.malloc(data.nbytes)
    hip.call("hipMemcpy", second, first, data.nbytes, DEVICE_TO_DEVICE)
    assert (hip.download(second, data.shape, np.uint8) == data).all()
    hip.call("hipMemset", second + 7, 0x5A, 1000)
    data[7:1007] = 0x5A
    assert (hip.download(second, data.shape, np.uint8) == data).all()


@pytest.mark.parametrize("width, height, device_pitch, host_pitch",
                         [(5, 7, 8, 5), (16, 3, 16, 40), (1, 1, 1, 1), (3, 0, 4, 4), (0, 3, 4, 4)])
def test_two_dimensional_copies(hip, width, height, device_pitch, host_pitch):
    seed = np.random.SeedSequence().entropy
    print("seed", seed)
    rows = max(height, 1)
    host = np.random.default_rng(seed).integers(0, 255, (rows, host_pitch), np.uint8)
    size = (rows - 1) * device_pitch + max(width, 1)  # the last row's padding does not exist
    device = hip.malloc(size)
    hip.call("hipMemcpy2DAsync", device, device_pitch, host.ctypes.data, host_pitch, width, height, HOST_TO_DEVICE, None)
    wanted = np.full(rows * device_pitch, 0xFF, np.uint8).reshape(rows, device_pitch)
    wanted[:height, :width] = host[:height, :width]
    assert (hip.download(device, size, np.uint8) == wanted.ravel()[:size]).all()
    back = np.zeros_like(host)
    hip.call("hipMemcpy2DAsync", back.ctypes.data, host_pitch, device, device_pitch, width, height, DEVICE_TO_HOST, None)
    hip.synchronize()
    assert (back[:height, :width] == host[:height, :width]).all()
    assert (back[:, width:] == 0).all()


def test_two_dimensional_copies_check_their_last_row(hip):
    device, host = hip.malloc(100), np.zeros((10, 16), np.uint8)
    with pytest.raises(HipError, match="past the end"):
        hip.call("hipMemcpy2DAsync", device, 11, host.ctypes.data, 16, 2, 10, HOST_TO_DEVICE, None)
    with pytest.raises(HipError) as error:
        hip.call("hipMemcpy2DAsync", device, 4, host.ctypes.data, 16, 5, 2, HOST_TO_DEVICE, None)
    assert error.value.name == "hipErrorInvalidPitchValue"
    with pytest.raises(HipError, match="impossible size"):
        hip.call("hipMemcpy2DAsync", device, 2**63, host.ctypes.data, 16, 1, 4, HOST_TO_DEVICE, None)


def test_pinned_memory_is_the_hosts_too(hip):
    pointer = hip.host_malloc(256)
    view = (ctypes.c_uint8 * 256).from_address(pointer)
    view[:] = bytes(range(256))
    device = hip.malloc(256)
    hip.call("hipMemcpy", device, pointer, 256, HOST_TO_DEVICE)
    assert bytes(hip.download(device, 256, np.uint8)) == bytes(range(256))
    hip.call("hipHostFree", pointer)
    with pytest.raises(HipError, match="which was freed"):
        hip.call("hipMemcpy", device, pointer, 256, HOST_TO_DEVICE)


def test_memory_info_counts_what_is_allocated():
    done = run_python("""
import ctypes
from support.hip import emulator, HipError
hip = emulator()
def info():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    hip.call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value
assert info() == (64 << 20, 64 << 20)
pointer = hip.malloc(48 << 20)
assert info() == (16 << 20, 64 << 20)
hip.host_malloc(32 << 20)   # the host's, not the device's
assert info() == (16 << 20, 64 << 20)
try:
    hip.malloc((16 << 20) + 1)
    raise SystemExit("too much was given")
except HipError as e:
    assert e.name == "hipErrorOutOfMemory", e
    assert "16777217" in e.message and "STRATA_EMULATOR_MEMORY" in e.message, e
hip.malloc(16 << 20)
hip.free(pointer)
assert info()[0] == 48 << 20
try:
    hip.malloc(2**63)
    raise SystemExit("too much was given")
except HipError as e:
    assert e.name == "hipErrorOutOfMemory", e
""", STRATA_EMULATOR_MEMORY="64M")
    assert done.returncode == 0, done.stderr + done.stdout


def test_default_memory_is_part_of_the_machines():
    done = run_python("""
import ctypes
from support.hip import emulator
free, total = ctypes.c_size_t(), ctypes.c_size_t()
emulator().call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
ram = next(int(line.split()[1]) * 1024 for line in open("/proc/meminfo") if line.startswith("MemTotal:"))
assert 0 < free.value <= total.value <= ram, (free, total, ram)
""", STRATA_EMULATOR_MEMORY="")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "is not a size" in done.stderr


@pytest.mark.parametrize("text", ["lots", "-1", "1T", "99999999999G"])
def test_bad_memory_sizes_are_named(text):
    done = run_python("from support.hip import emulator; emulator().malloc(1)", STRATA_EMULATOR_MEMORY=text)
    assert done.returncode == 0 and f"STRATA_EMULATOR_MEMORY={text} is not a size" in done.stderr
