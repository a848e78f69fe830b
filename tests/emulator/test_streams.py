"""Streams are asynchronous to the host and ordered as HIP orders them. A kernel that waits for the host holds a stream up meanwhile, so that
nothing depends on how fast either is."""

import contextlib
import ctypes
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from support.compile import compile_hip
from support.hip import DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE, NON_BLOCKING, HipError
from support.kernels import basic_kernels, copy_args, store_args
from support.process import run_python

STEPS = 30_000_000  # of the spin kernel: about half a second
BLOCKING = 0
RESULT = 4711

HELD = """
#include "strata/device.h"
using namespace strata;
struct held_args { uint32_t * data; const uint32_t * gate; };

/// Stores what it finds at the gate as soon as that is not 0.
STRATA_KERNEL(32) void held(held_args a) {
    uint32_t value;
    do {
        __builtin_amdgcn_s_sleep(1);
        value = __hip_atomic_load(a.gate, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
    } while (value == 0);
    if (thread_x() == 0) {
        a.data[0] = value;
    }
}
"""


class Busy:
    """A stream with a kernel in flight that stores RESULT at `data` when it is released, and is so at the end of the block."""

    def __init__(self, hip, flags=NON_BLOCKING, stream=None, data=None):
        module = hip.load(basic_kernels())
        self.copy, self.store = (hip.function(module, name) for name in ("copy", "store"))
        self.hip, self.kernel = hip, hip.kernel(compile_hip(HELD), "held")
        self.stream = hip.stream(flags) if stream is None else stream
        self.data = data or hip.malloc(128)
        hip.synchronize()
        self.launch()

    def launch(self) -> None:
        """Also once more, after it was released."""
        self.gate = ctypes.c_uint32.from_address(self.hip.host_malloc(4))
        self.gate.value = 0
        self.hip.launch(self.kernel, 1, 32, struct.pack("<QQ", self.data, ctypes.addressof(self.gate)), stream=self.stream)

    def is_busy(self) -> bool:
        return self.hip.raw.hipStreamQuery(self.stream) == 600  # hipErrorNotReady

    def release(self) -> None:
        self.gate.value = RESULT

    @contextlib.contextmanager
    def released_soon(self):
        """From another thread, while a call waits for it."""
        timer = threading.Timer(0.1, self.release)
        timer.start()
        yield
        timer.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()


def test_a_launch_returns_before_the_kernel_has_run(hip):
    pinned = hip.host_malloc(4)
    seen = ctypes.c_uint32.from_address(pinned)
    seen.value = 77
    with Busy(hip, data=pinned) as busy:
        assert seen.value == 77
        with pytest.raises(HipError) as error:
            hip.call("hipStreamQuery", busy.stream)
        assert error.value.name == "hipErrorNotReady"
    hip.synchronize(busy.stream)
    assert seen.value == RESULT
    hip.call("hipStreamQuery", busy.stream)


def test_a_streams_commands_run_in_order(hip):
    with Busy(hip) as busy:
        other = hip.malloc(128)
        hip.launch(busy.copy, 1, 32, copy_args(other, busy.data), stream=busy.stream)
        result = np.zeros(32, np.uint32)
        hip.call("hipMemcpyAsync", result.ctypes.data, other, 128, DEVICE_TO_HOST, busy.stream)
        hip.call("hipMemsetAsync", other, 0, 128, busy.stream)
        assert (result == 0).all() and busy.is_busy()
    hip.synchronize(busy.stream)
    assert result[0] == RESULT and (result[1:] == 0xFFFFFFFF).all()
    assert (hip.download(other, 32, np.uint32) == 0).all()


def test_streams_do_not_wait_for_each_other_unless_told(hip):
    second = hip.stream()
    result = np.zeros(1, np.uint32)
    with Busy(hip) as busy:
        hip.call("hipMemcpyAsync", result.ctypes.data, busy.data, 4, DEVICE_TO_HOST, second)
        hip.synchronize(second)
        assert busy.is_busy() and result[0] == 0xFFFFFFFF  # the missing synchronization shows
        event = hip.event()
        hip.call("hipEventRecord", event, busy.stream)
        hip.call("hipStreamWaitEvent", second, event, 0)
        hip.call("hipMemcpyAsync", result.ctypes.data, busy.data, 4, DEVICE_TO_HOST, second)
    hip.synchronize(second)
    assert result[0] == RESULT


def test_the_null_stream_waits_for_blocking_streams_only(hip):
    with Busy(hip, BLOCKING) as busy, busy.released_soon():
        assert hip.download(busy.data, 1, np.uint32)[0] == RESULT
    with Busy(hip, NON_BLOCKING) as busy:
        assert hip.download(busy.data, 1, np.uint32)[0] == 0xFFFFFFFF
    hip.synchronize()


def test_blocking_streams_wait_for_the_null_stream(hip):
    result = np.zeros(1, np.uint32)
    for flags in (BLOCKING, NON_BLOCKING):
        stream = hip.stream(flags)
        with Busy(hip, stream=0) as busy, busy.released_soon() if flags == BLOCKING else contextlib.nullcontext():
            hip.call("hipMemcpyAsync", result.ctypes.data, busy.data, 4, DEVICE_TO_HOST, stream)
            hip.synchronize(stream)
            assert result[0] == (RESULT if flags == BLOCKING else 0xFFFFFFFF)
        hip.synchronize()


def test_pinned_sources_are_read_late_and_pageable_ones_at_once(hip):
    device = hip.malloc(8)
    pinned = ctypes.c_uint32.from_address(hip.host_malloc(4))
    pageable = ctypes.c_uint32(1)
    pinned.value = 1
    with Busy(hip) as busy:
        hip.call("hipMemcpyAsync", device, ctypes.addressof(pinned), 4, HOST_TO_DEVICE, busy.stream)
        hip.call("hipMemcpyAsync", device + 4, ctypes.addressof(pageable), 4, HOST_TO_DEVICE, busy.stream)
        assert busy.is_busy()
        pinned.value = pageable.value = 2
    hip.synchronize(busy.stream)
    assert list(hip.download(device, 2, np.uint32)) == [2, 1]


def test_a_large_pageable_source_is_copied_before_the_call_returns(hip):
    source = np.arange(2_000_000, dtype=np.uint32)
    device = hip.malloc(source.nbytes)
    with Busy(hip) as busy, busy.released_soon():
        hip.call("hipMemcpyAsync", device, source.ctypes.data, source.nbytes, HOST_TO_DEVICE, busy.stream)
        source[:] = 0
    hip.synchronize(busy.stream)
    assert (hip.download(device, source.shape, np.uint32) == np.arange(2_000_000)).all()


def test_device_to_device_copies_are_only_queued(hip):
    other = hip.malloc(4)
    with Busy(hip, BLOCKING) as busy:
        hip.call("hipMemcpy", other, busy.data, 4, DEVICE_TO_DEVICE)
        assert busy.is_busy()
    assert hip.download(other, 1, np.uint32)[0] == RESULT


def test_events(hip):
    before, after = hip.event(), hip.event()
    with Busy(hip) as busy:
        hip.call("hipEventQuery", before)  # never recorded: nothing to wait for
        hip.call("hipEventSynchronize", before)
        with pytest.raises(HipError) as error:
            hip.elapsed(before, after)
        assert error.value.name == "hipErrorInvalidHandle"
        busy.release()
        hip.synchronize(busy.stream)

        first = time.perf_counter()
        hip.call("hipEventRecord", before, busy.stream)
        hip.call("hipEventSynchronize", before)
        second = time.perf_counter()
        busy.launch()
        hip.call("hipEventRecord", after, busy.stream)
        for call in (lambda: hip.call("hipEventQuery", after), lambda: hip.elapsed(before, after)):
            with pytest.raises(HipError) as error:
                call()
            assert error.value.name == "hipErrorNotReady"
        time.sleep(0.01)
        third = time.perf_counter()
        busy.release()
        hip.call("hipEventSynchronize", after)
        last = time.perf_counter()
        hip.call("hipEventQuery", after)
    assert (third - second) * 1000 - 0.01 <= hip.elapsed(before, after) <= (last - first) * 1000 + 0.01  # it is a float
    assert hip.elapsed(after, before) == -hip.elapsed(before, after)
    hip.call("hipEventDestroy", before)
    with pytest.raises(HipError) as error:
        hip.call("hipEventRecord", before, busy.stream)
    assert error.value.name == "hipErrorInvalidHandle"


def test_an_event_without_timing_has_no_time(hip):
    events = [hip.event(2), hip.event()]
    for event in events:
        hip.call("hipEventRecord", event, None)
    hip.synchronize()
    with pytest.raises(HipError, match="without timing"):
        hip.elapsed(*events)


def test_an_event_recorded_again_stands_for_the_new_place(hip):
    event = hip.event()
    with Busy(hip) as busy:
        hip.call("hipEventRecord", event, hip.stream())
        hip.call("hipEventSynchronize", event)
        hip.call("hipEventRecord", event, busy.stream)
        with pytest.raises(HipError) as error:
            hip.call("hipEventQuery", event)
        assert error.value.name == "hipErrorNotReady"


def test_free_waits_for_the_device(hip):
    with Busy(hip) as busy, busy.released_soon():
        hip.free(busy.data)
        assert not busy.is_busy()
    hip.synchronize()  # no fault: the kernel's memory was there until its end


def test_a_destroyed_stream_finishes_its_work(hip):
    with Busy(hip) as busy, busy.released_soon():
        hip.call("hipStreamDestroy", busy.stream)
        with pytest.raises(HipError) as error:
            hip.synchronize(busy.stream)
        assert error.value.name == "hipErrorInvalidHandle"
    hip.synchronize()
    assert hip.download(busy.data, 1, np.uint32)[0] == RESULT


def test_invented_handles_are_refused(hip):
    for handle in (3, 0x51 << 40, 0xDEADBEEF0):
        for call in (("hipStreamSynchronize", handle), ("hipStreamDestroy", handle), ("hipEventSynchronize", handle),
                     ("hipEventRecord", handle, None), ("hipModuleUnload", handle)):
            with pytest.raises(HipError) as error:
                hip.call(*call)
            assert error.value.name == "hipErrorInvalidHandle"


def test_many_threads_and_streams(hip):
    """Sixteen streams filled from as many threads, each checking its own results."""
    module = hip.load(basic_kernels())
    store = hip.function(module, "store")

    def work(number: int) -> bool:
        stream, data = hip.stream(), hip.malloc(4 * 64)
        result = np.zeros(64, np.uint32)
        for step in range(20):
            hip.launch(store, 2, 32, store_args(data, value=1000 * number + step), stream=stream)
            hip.call("hipMemcpyAsync", result.ctypes.data, data, result.nbytes, DEVICE_TO_HOST, stream)
            hip.synchronize(stream)
            if not (result == 1000 * number + step + np.arange(64)).all():
                return False
        hip.free(data)
        return True

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


@pytest.mark.parametrize("variable", ["STRATA_EMULATOR_SYNC", "HIP_LAUNCH_BLOCKING"])
def test_launches_can_be_made_synchronous(variable):
    done = run_python(f"""
import ctypes
from support.hip import emulator
from support.kernels import *
hip = emulator()
spin = hip.kernel(basic_kernels(), "spin")
pinned = hip.host_malloc(4)
stream = hip.stream()
hip.launch(spin, 1, 32, spin_args(pinned, {STEPS}), stream=stream)
assert ctypes.c_uint32.from_address(pinned).value == spin_result({STEPS})
hip.call("hipStreamQuery", stream)
""", **{variable: "1"})
    assert done.returncode == 0, done.stderr
