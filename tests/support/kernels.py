"""Small device programs that several emulator tests run."""

from __future__ import annotations

import struct

import numpy as np

from .compile import compile_hip

# The struct of the arguments, and a kernel each. `spin` computes `count` steps of a linear congruential generator.
_SOURCE = """
#include "strata/device.h"
using namespace strata;

struct buffer_args { uint32_t * data; uint64_t index; uint32_t value; };

/// data[index + item] = value + item
STRATA_KERNEL(1024) void store(buffer_args a) {
    const uint32_t item = block_x() * 32 + thread_x();
    a.data[a.index + item] = a.value + item;
}

struct spin_args { uint32_t * data; uint32_t count; };

STRATA_KERNEL(32) void spin(spin_args a) {
    uint32_t x = 1;
    for (uint32_t i = 0; i < a.count; ++i) {
        x = x * 1664525u + 1013904223u;
        asm volatile("" : "+s"(x));
    }
    if (thread_x() == 0) {
        a.data[0] = x;
    }
}

struct copy_args { uint32_t * to; const uint32_t * from; };

STRATA_KERNEL(32) void copy(copy_args a) { a.to[thread_x()] = a.from[thread_x()]; }

STRATA_KERNEL(1024) void nothing() {}
"""


def basic_kernels() -> bytes:
    """A code object with the kernels store, spin, copy and nothing."""
    return compile_hip(_SOURCE)


def store_args(data: int, index: int = 0, value: int = 0) -> bytes:
    return struct.pack("<QQI4x", data, index & (2**64 - 1), value)


def spin_args(data: int, count: int) -> bytes:
    return struct.pack("<QI4x", data, count)


def copy_args(to: int, source: int) -> bytes:
    return struct.pack("<QQ", to, source)


def spin_result(count: int) -> int:
    """What spin stores: the affine map applied `count` times, by squaring."""
    multiply, add = 1, 0
    step_multiply, step_add = 1664525, 1013904223
    while count:
        if count & 1:
            multiply, add = multiply * step_multiply % 2**32, (add * step_multiply + step_add) % 2**32
        step_multiply, step_add = step_multiply**2 % 2**32, (step_add * step_multiply + step_add) % 2**32
        count >>= 1
    return int(np.uint32((multiply + add) % 2**32))
