"""Kernels that go wrong: a message that says where, a poisoned device, a live process."""

import ctypes
import re
import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from support.compile import assemble, compile_hip
from support.hip import DEVICE_TO_HOST, HipError
from support.kernels import basic_kernels, store_args
from support.process import run_python

KERNELS = """
#include "strata/device.h"
using namespace strata;
struct args { uint32_t * data; uint32_t lane; };

/// One lane reads data[0], the others what lies before.
STRATA_KERNEL(32) void read_far(args a) {
    const int32_t item = static_cast<int32_t>(thread_x());
    a.data[item - 64] = a.data[thread_x() == a.lane ? 0 : -1 - item];
}

__attribute__((device)) static const uint32_t table[4] = {1, 2, 3, 4};

STRATA_KERNEL(32) void write_constants(args a) {
    auto * p = (uint32_t *) &table[a.lane];
    *(volatile uint32_t *) p = 7;
}

STRATA_KERNEL(32) void lds_far(args a) {
    __attribute__((shared)) static uint32_t block[32];
    block[thread_x() * a.lane] = 1;
    barrier();
    a.data[thread_x()] = block[31 - thread_x()];
}
"""

# A kernel of which the body is given; two user SGPRs hold the argument pointer.
ASSEMBLER = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx1151"
.text
.p2align 8
.type odd,@function
odd:
    s_mov_b32 s4, 5
    {body}
    s_endpgm
.size odd, .-odd
.globl odd
.rodata
.p2align 6
.amdhsa_kernel odd
    .amdhsa_next_free_vgpr 16
    .amdhsa_next_free_sgpr 16
    .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .amdhsa_wavefront_size32 1
    .amdhsa_float_denorm_mode_32 3
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx1151
amdhsa.kernels:
  - .name: odd
    .symbol: odd.kd
    .kernarg_segment_size: 0
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 32
    .sgpr_count: 16
    .vgpr_count: 16
    .max_flat_workgroup_size: 1024
...
.end_amdgpu_metadata
"""


def odd_kernel(hip, body: str) -> int:
    return hip.kernel(assemble(ASSEMBLER.format(body=body)), "odd")


def fault_of(hip, launch, name="hipErrorIllegalAddress") -> str:
    """Runs the launch, expects that synchronizing finds a fault, returns its message."""
    launch()
    with pytest.raises(HipError) as error:
        hip.synchronize()
    assert error.value.name == name, error.value
    message = hip.last_fault()
    assert message and message in error.value.message
    return message


def args(data: int, lane: int = 0) -> bytes:
    return struct.pack("<QI4x", data & (2**64 - 1), lane)


def test_store_past_the_end(hip):
    data = hip.malloc(4 * 40)
    store = hip.kernel(basic_kernels(), "store")
    message = fault_of(hip, lambda: hip.launch(store, 2, 32, store_args(data)))
    assert "store" in message and "global_store_b32" in message
    assert re.search(r"lane 8\b", message), message
    assert f"0x{data + 160:x}" in message
    assert "past the end of allocation" in message and "160 bytes" in message
    assert re.search(r"workgroup.*1", message)


@pytest.mark.parametrize("lane", [0, 13, 31])
def test_load_names_the_lane(hip, lane):
    data = hip.malloc(256)
    kernel = hip.kernel(compile_hip(KERNELS), "read_far")
    message = fault_of(hip, lambda: hip.launch(kernel, 1, 32, args(data + 256, lane)))
    assert "read_far" in message and "load" in message and re.search(rf"lane {lane}\b", message) and f"0x{data + 256:x}" in message


def test_null_pointer(hip):
    store = hip.kernel(basic_kernels(), "store")
    message = fault_of(hip, lambda: hip.launch(store, 1, 32, store_args(0)))
    assert "null pointer" in message


def test_before_an_allocation_and_between_two(hip):
    data = hip.malloc(4096)
    store = hip.kernel(basic_kernels(), "store")
    message = fault_of(hip, lambda: hip.launch(store, 1, 1, store_args(data, -1)))
    assert "4 bytes before allocation" in message and f"0x{data - 4:x}" in message


def test_an_access_that_straddles_the_end(hip):
    data = hip.malloc(6)
    store = hip.kernel(basic_kernels(), "store")
    message = fault_of(hip, lambda: hip.launch(store, 1, 2, store_args(data)))
    assert re.search(r"lane 1\b", message) and "2 of its 4 bytes lie past the end" in message


def test_use_after_free(hip):
    data = hip.malloc(128)
    hip.free(data)
    store = hip.kernel(basic_kernels(), "store")
    message = fault_of(hip, lambda: hip.launch(store, 1, 32, store_args(data)))
    assert "which was freed" in message


def test_host_memory_of_the_process_is_out_of_reach(hip):
    host = np.zeros(64, np.uint32)
    store = hip.kernel(basic_kernels(), "store")
    fault_of(hip, lambda: hip.launch(store, 1, 32, store_args(host.ctypes.data)))
    assert (host == 0).all()


def test_constants_are_read_only(hip):
    kernel = hip.kernel(compile_hip(KERNELS), "write_constants")
    message = fault_of(hip, lambda: hip.launch(kernel, 1, 1, args(0, 2)))
    assert "read-only" in message


def test_lds_out_of_range(hip):
    data = hip.malloc(128)
    kernel = hip.kernel(compile_hip(KERNELS), "lds_far")
    hip.launch(kernel, 1, 32, args(data, 1))
    hip.synchronize()
    message = fault_of(hip, lambda: hip.launch(kernel, 1, 32, args(data, 2)))
    assert "lds_far" in message and "ds_store_b32" in message and re.search(r"lane 16\b", message) and "LDS" in message
    assert "128" in message


def test_scalar_load_out_of_range(hip):
    kernel = odd_kernel(hip, "s_mov_b64 s[6:7], 0x40\ns_load_b64 s[8:9], s[6:7], 0x0\ns_waitcnt lgkmcnt(0)")
    message = fault_of(hip, lambda: hip.launch(kernel, 1, 1))
    assert "odd" in message and "s_load_b64" in message and "0x40" in message


def test_an_instruction_that_the_emulator_does_not_know(hip):
    kernel = odd_kernel(hip, "image_load v0, v[1:2], s[0:7] dmask:0x1 dim:SQ_RSRC_IMG_2D")
    message = fault_of(hip, lambda: hip.launch(kernel, 1, 1), "hipErrorLaunchFailure")
    assert "odd" in message and "image_load" in message


def test_words_that_are_no_instruction(hip):
    kernel = odd_kernel(hip, ".long 0xffffffff, 0xffffffff")
    message = fault_of(hip, lambda: hip.launch(kernel, 1, 1), "hipErrorLaunchFailure")
    assert "odd" in message and "ff ff ff ff" in message


def test_running_out_of_the_code(hip):
    kernel = odd_kernel(hip, "s_mov_b64 s[6:7], 0x1000\ns_setpc_b64 s[6:7]")
    hip.launch(kernel, 1, 1)
    with pytest.raises(HipError, match="odd") as error:
        hip.synchronize()
    assert error.value.name in ("hipErrorIllegalAddress", "hipErrorLaunchFailure")


def test_the_fault_is_sticky_until_a_reset(hip, capfd):
    module = hip.load(basic_kernels())
    store, data, stream, event = hip.function(module, "store"), hip.malloc(128), hip.stream(), hip.event()
    hip.launch(store, 1, 32, store_args(data, value=5))
    hip.synchronize()
    capfd.readouterr()
    hip.launch(store, 1, 32, store_args(0), stream=stream)
    hip.raw.hipStreamSynchronize(stream)
    result = np.zeros(32, np.uint32)
    for call in (("hipMalloc", None, 4), ("hipStreamSynchronize", stream), ("hipEventRecord", event, stream), ("hipStreamQuery", stream),
                 ("hipMemcpy", result.ctypes.data, data, 128, DEVICE_TO_HOST), ("hipDeviceSynchronize",), ("hipFree", data),
                 ("hipModuleLoadData", None, None), ("hipEventSynchronize", event), ("hipMemsetAsync", data, 0, 4, stream)):
        with pytest.raises(HipError, match="an earlier kernel has failed") as error:
            hip.call(*call)
        assert error.value.name == "hipErrorIllegalAddress"
    with pytest.raises(HipError):
        hip.launch(store, 1, 32, store_args(data))
    assert (result == 0).all()
    assert hip.raw.hipGetLastError() == 700
    assert hip.raw.hipGetLastError() == 700  # as long as the device is poisoned
    printed = capfd.readouterr().err
    assert printed.count("strata-emulator:") == 1 and hip.last_fault() in printed
    hip.call("hipDeviceReset")
    assert hip.last_fault() == "" and hip.raw.hipGetLastError() == 0
    data = hip.malloc(128)
    hip.launch(hip.kernel(basic_kernels(), "store"), 1, 32, store_args(data, value=9))
    assert (hip.download(data, 32, np.uint32) == 9 + np.arange(32)).all()


def test_what_was_queued_behind_a_fault_does_not_run(hip):
    module = hip.load(basic_kernels())
    store, data, pinned = hip.function(module, "store"), hip.malloc(128), hip.host_malloc(128)
    stream = hip.stream()
    hip.launch(hip.function(module, "spin"), 1, 32, struct.pack("<QI4x", data, 500_000), stream=stream)
    hip.launch(store, 1, 32, store_args(0), stream=stream)
    hip.launch(store, 1, 32, store_args(pinned, value=1), stream=stream)
    with pytest.raises(HipError):
        hip.synchronize(stream)
    view = np.ctypeslib.as_array((ctypes.c_uint32 * 32).from_address(pinned))
    assert (view == 0xFFFFFFFF).all()


def test_last_error_is_a_threads_own(hip):
    hip.raw.hipSetDevice(5)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(hip.raw.hipGetLastError).result() == 0
    assert hip.raw.hipGetLastError() == 101
    assert hip.raw.hipGetLastError() == 0
    hip.raw.hipSetDevice(-1)
    hip.call("hipSetDevice", 0)  # a success leaves it
    assert hip.raw.hipGetLastError() == 101


def test_a_kernel_that_hangs_is_stopped():
    done = run_python("""
from support.hip import HipError, emulator
from support.kernels import basic_kernels, spin_args
hip = emulator()
hip.launch(hip.kernel(basic_kernels(), "spin"), 1, 32, spin_args(hip.malloc(4), 2**31))
try:
    hip.synchronize()
    raise SystemExit("it ended")
except HipError as e:
    assert e.name == "hipErrorLaunchTimeOut" and "spin" in e.message and "more than the limit of 50000" in e.message, e
""", STRATA_EMULATOR_INSTRUCTION_LIMIT=50_000)
    assert "STRATA_EMULATOR_INSTRUCTION_LIMIT" in done.stderr
