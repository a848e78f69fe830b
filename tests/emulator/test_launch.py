"""Launches: limits and their messages, the two forms of arguments, hidden arguments, counters."""

import ctypes
import struct

import numpy as np
import pytest

from support.compile import compile_hip
from support.hip import HipError
from support.kernels import basic_kernels, store_args

HIDDEN = """
#include "strata/device.h"
using namespace strata;

extern "C" __attribute__((shared)) uint32_t dynamic[];  // its size is passed only to kernels that use it

/// Writes what the kernel is told about its launch, through the implicit argument pointer (code object v5).
STRATA_KERNEL(1024) void hidden(uint32_t * out) {
    auto * counts = (__attribute__((address_space(4))) const uint32_t *) __builtin_amdgcn_implicitarg_ptr();
    auto * sizes = (__attribute__((address_space(4))) const uint16_t *) counts;
    if (block_x() == 0 && block_y() == 0 && block_z() == 0 && thread_x() == 0 && thread_y() == 0 && thread_z() == 0) {
        for (int i = 0; i < 3; ++i) {
            out[i] = counts[i];
            out[3 + i] = sizes[6 + i];   // group sizes at byte 12
            out[6 + i] = sizes[9 + i];   // remainders at byte 18
        }
        out[9] = sizes[32];              // grid dimensions at byte 64
        out[10] = counts[30];            // dynamic LDS size at byte 120
        if (counts[30]) {
            *(volatile uint32_t *) dynamic = 1;
        }
    }
}

STRATA_KERNEL(1024) void sizes_of_the_packet(uint32_t * out) {
    out[0] = __builtin_amdgcn_workgroup_size_x();
    out[1] = __builtin_amdgcn_workgroup_size_y();
    out[2] = __builtin_amdgcn_workgroup_size_z();
}
"""

ARGUMENTS = """
#include "strata/device.h"
using namespace strata;

STRATA_KERNEL(32) void several(uint64_t * out, uint8_t a, uint32_t b, uint16_t c, double d) {
    if (thread_x() == 0) {
        out[0] = a; out[1] = b; out[2] = c; out[3] = bit_cast<uint64_t>(d);
    }
}
"""

LDS = """
#include "strata/device.h"
using namespace strata;

extern "C" __attribute__((shared)) uint32_t dynamic[];

/// Copies the dynamic LDS, as it is found, and then what was written to it.
STRATA_KERNEL(64) void use_lds(uint32_t * out) {
    __attribute__((shared)) static volatile uint32_t fixed[64];
    const uint32_t i = thread_x();
    out[i] = dynamic[i];
    fixed[i] = i;
    dynamic[i] = 100 + fixed[i];
    barrier();
    out[64 + i] = dynamic[63 - i];
}

STRATA_KERNEL(64) void much_lds(uint32_t * out) {
    __attribute__((shared)) static uint32_t fixed[16384];
    fixed[thread_x() * 200] = out[0];
    barrier();
    out[thread_x()] = fixed[thread_x() * 100];
}
"""


def error_of(hip, *arguments, **named) -> HipError:
    with pytest.raises(HipError) as error:
        hip.launch(*arguments, **named)
    return error.value


def test_empty_grids_and_blocks(hip):
    nothing = hip.kernel(basic_kernels(), "nothing")
    for sizes in (((0, 1, 1), 32), ((1, 0, 1), 32), ((1, 1, 0), 32), (1, (0, 1, 1)), (1, (1, 0, 1)), (1, (1, 1, 0))):
        error = error_of(hip, nothing, *sizes)
        assert error.name == "hipErrorInvalidConfiguration" and "empty" in error.message and "nothing" in error.message


def test_block_limits(hip):
    module = hip.load(basic_kernels())
    nothing, spin = hip.function(module, "nothing"), hip.function(module, "spin")
    for block in ((1025, 1, 1), (32, 33, 1), (2, 2, 257), (2**16, 2**16, 1), (2**31, 2, 2**31), (2**32 - 1,) * 3):
        error = error_of(hip, nothing, 1, block)
        assert error.name == "hipErrorInvalidConfiguration" and "1024" in error.message
    error = error_of(hip, spin, 1, 33, struct.pack("<QI4x", 0, 0))
    assert error.name == "hipErrorInvalidConfiguration" and "at most 32" in error.message
    for block in ((1024, 1, 1), (1, 1024, 1), (16, 8, 8)):
        hip.launch(nothing, 1, block)
    hip.synchronize()


def test_grid_limits(hip):
    nothing = hip.kernel(basic_kernels(), "nothing")
    for grid, block in (((2**27, 1, 1), (32, 1, 1)), ((1, 2**31, 1), (1, 2, 1))):
        error = error_of(hip, nothing, grid, block)
        assert error.name == "hipErrorInvalidConfiguration" and "2^32" in error.message


def test_lds_limit(hip):
    module = hip.load(compile_hip(LDS))
    data = hip.malloc(512)
    error = error_of(hip, hip.function(module, "use_lds"), 1, 64, struct.pack("<Q", data), lds=65536 - 255)
    assert error.name == "hipErrorInvalidValue" and "65536" in error.message and "256 bytes of static" in error.message
    hip.launch(hip.function(module, "use_lds"), 1, 64, struct.pack("<Q", data), lds=65536 - 256)
    assert error_of(hip, hip.function(module, "much_lds"), 1, 64, struct.pack("<Q", data), lds=1).name == "hipErrorInvalidValue"
    hip.synchronize()


def test_lds_is_poisoned_and_dynamic_lds_follows_static_lds(hip):
    data = hip.malloc(512)
    hip.launch(hip.kernel(compile_hip(LDS), "use_lds"), 1, 64, struct.pack("<Q", data), lds=256)
    result = hip.download(data, 128, np.uint32)
    assert (result[:64] == 0xFFFFFFFF).all()
    assert (result[64:] == 163 - np.arange(64)).all()


@pytest.mark.parametrize("size", [0, 8, 23, 33])
def test_argument_size_must_fit(hip, size):
    store = hip.kernel(basic_kernels(), "store")
    error = error_of(hip, store, 1, 32, bytes(size))
    assert error.name == "hipErrorInvalidValue" and f"{size} bytes of arguments are given, the kernel takes 24" in error.message


def test_arguments_by_buffer_and_by_pointers(hip):
    several = hip.kernel(compile_hip(ARGUMENTS), "several")
    values = 0xA5, 0xDEADBEEF, 0x1234, -2.5
    wanted = [values[0], values[1], values[2], struct.unpack("<Q", struct.pack("<d", values[3]))[0]]
    data = hip.malloc(32)
    hip.launch(several, 1, 32, struct.pack("<QB3xIH6xd", data, *values))
    assert list(hip.download(data, 4, np.uint64)) == wanted
    hip.call("hipMemset", data, 0, 32)
    kinds = ctypes.c_uint64, ctypes.c_uint8, ctypes.c_uint32, ctypes.c_uint16, ctypes.c_double
    holders = [kind(value) for kind, value in zip(kinds, (data, *values))]
    pointers = (ctypes.c_void_p * 5)(*map(ctypes.addressof, holders))
    hip.call("hipModuleLaunchKernel", several, 1, 1, 1, 32, 1, 1, 0, None, pointers, None)
    assert list(hip.download(data, 4, np.uint64)) == wanted


def test_malformed_arguments(hip):
    several = hip.kernel(compile_hip(ARGUMENTS), "several")
    pointers = (ctypes.c_void_p * 5)()
    for params, extra, reason in ((None, None, "is not given"), (pointers, None, "argument 0"),
                                  (pointers, (ctypes.c_void_p * 1)(3), "twice"), (None, (ctypes.c_void_p * 1)(3), "no buffer"),
                                  (None, (ctypes.c_void_p * 3)(9, 0, 3), "unknown entry")):
        with pytest.raises(HipError, match=reason) as error:
            hip.call("hipModuleLaunchKernel", several, 1, 1, 1, 32, 1, 1, 0, None, params, extra)
        assert error.value.name == "hipErrorInvalidValue"


@pytest.mark.parametrize("grid, block, lds", [((3, 1, 1), (64, 1, 1), 0), ((5, 7, 2), (8, 4, 3), 4096), ((1, 1, 9), (1, 1, 1), 4)])
def test_hidden_arguments(hip, grid, block, lds):
    module = hip.load(compile_hip(HIDDEN))
    out = hip.malloc(44)
    hip.launch(hip.function(module, "hidden"), grid, block, struct.pack("<Q", out), lds=lds)
    assert list(hip.download(out, 11, np.uint32)) == [*grid, *block, 0, 0, 0, 3, lds]
    hip.launch(hip.function(module, "sizes_of_the_packet"), grid, block, struct.pack("<Q", out))
    assert list(hip.download(out, 3, np.uint32)) == list(block)


def test_workgroups_and_work_items_in_three_dimensions(hip):
    source = """
    #include "strata/device.h"
    using namespace strata;
    struct args { uint32_t * out; };
    STRATA_KERNEL(1024) void where(args a) {
        const uint32_t item = (thread_z() * 5 + thread_y()) * 7 + thread_x();          // block (7, 5, 3)
        const uint32_t group = (block_z() * 3 + block_y()) * 2 + block_x();            // grid (2, 3, 4)
        a.out[group * 105 + item] = block_x() | block_y() << 4 | block_z() << 8 | thread_x() << 12 | thread_y() << 16 | thread_z() << 20;
    }
    """
    out = hip.malloc(4 * 24 * 105)
    hip.launch(hip.kernel(compile_hip(source), "where"), (2, 3, 4), (7, 5, 3), struct.pack("<Q", out))
    result = hip.download(out, (4, 3, 2, 3, 5, 7), np.uint32)
    z, y, x, tz, ty, tx = np.indices(result.shape)
    assert (result == (x | y << 4 | z << 8 | tx << 12 | ty << 16 | tz << 20)).all()


def test_counters(hip):
    module = hip.load(basic_kernels())
    store, nothing = hip.function(module, "store"), hip.function(module, "nothing")
    data = hip.malloc(4 * 96)
    before = hip.counters()
    hip.launch(nothing, 10, 33)  # one instruction in each of two waves
    hip.synchronize()
    middle = hip.counters()
    assert tuple(b - a for a, b in zip(before, middle)) == (1, 20, 20)
    counts = []
    for _ in range(2):
        start = hip.counters()
        hip.launch(store, 3, 32, store_args(data))
        hip.synchronize()
        counts.append(tuple(b - a for a, b in zip(start, hip.counters())))
    assert counts[0] == counts[1] and counts[0][:2] == (1, 3) and counts[0][2] % 3 == 0
