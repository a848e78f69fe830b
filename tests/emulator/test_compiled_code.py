"""What the compiler makes of C++ and the instruction tests do not see: calls, stacks, switch tables, waves that end
before a barrier, waits for another wave, atomics between workgroups; computed again by numpy or by hand."""

import os
import secrets
import struct

import numpy as np
import pytest

from support.compile import compile_hip
from support.hip import HipError

SEED = int(os.environ.get("STRATA_SEED", secrets.randbits(32)))

SOURCE = """
#include "strata/device.h"
using namespace strata;

__attribute__((device, noinline)) uint32_t triple(uint32_t x) { return 3 * x + 1; }
__attribute__((device, noinline)) uint32_t swapped(uint32_t x) { return x << 16 | x >> 16; }

struct pair_args { uint32_t * to; const uint32_t * from; };

/// Both functions are called, for different lanes.
STRATA_KERNEL(96) void calls(pair_args a) {
    const uint32_t item = block_x() * 96 + thread_x(), x = a.from[item];
    a.to[item] = x & 1 ? triple(x) : swapped(x);
}

/// A private array indexed by data, and its address as a flat pointer.
__attribute__((device, noinline)) void bump(uint32_t * p) { *p += 7; }
STRATA_KERNEL(64) void private_array(pair_args a) {
    uint32_t data[40];
    for (uint32_t i = 0; i < 40; ++i) { data[i] = i * thread_x(); }
    const uint32_t x = a.from[thread_x()];
    data[x % 40] += x;
    bump(&data[(x >> 8) % 40]);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 40; ++i) { sum = sum * 31 + data[i]; }
    a.to[thread_x()] = sum;
}

/// One pointer that is LDS in even lanes and global memory in odd ones.
STRATA_KERNEL(32) void mixed_pointers(pair_args a) {
    __shared__ uint32_t lds[32];
    lds[thread_x()] = 1000 + thread_x();
    barrier();
    const uint32_t * p = thread_x() & 1 ? a.from + thread_x() : &lds[31 - thread_x()];
    asm volatile("" : "+v"(p));
    a.to[thread_x()] = *p;
}

/// A jump table.
STRATA_KERNEL(64) void table(pair_args a) {
    const uint32_t x = a.from[thread_x()];
    uint32_t r = x;
    switch (uniform(a.from[block_x()]) % 8) {
    case 0: r = x * 5; break;
    case 1: r = x ^ 0x55555555; break;
    case 2: r = x / 3; break;
    case 3: r = __builtin_popcount(x); break;
    case 4: r = x % 1000; break;
    case 5: r = x >> 3 | x << 29; break;
    case 6: r = __builtin_bitreverse32(x); break;
    case 7: r = ~x; break;
    }
    a.to[block_x() * 64 + thread_x()] = r;
}

/// The barrier of a grid instead of a workgroup's.
STRATA_KERNEL(128) void grid_barrier(pair_args a) {
    __shared__ uint32_t lds[128];
    lds[thread_x()] = a.from[thread_x()];
    asm volatile("s_waitcnt lgkmcnt(0)\\n ds_gws_barrier v0 gds" ::: "memory");
    a.to[thread_x()] = lds[127 - thread_x()];
}

/// Waves 1 and 3 end before the barrier that waves 0 and 2 pass.
STRATA_KERNEL(128) void early_end(pair_args a) {
    __shared__ uint32_t lds[128];
    const uint32_t wave = uniform(thread_x() / 32);
    lds[thread_x()] = a.from[thread_x()];
    if (wave & 1) { return; }
    barrier();
    a.to[thread_x()] = lds[thread_x() ^ 64];
}

/// Wave 0 waits, without a barrier, for what wave 1 stores.
STRATA_KERNEL(64) void handshake(pair_args a) {
    __shared__ volatile uint32_t flag;
    if (thread_x() == 0) { flag = 0; }
    barrier();
    if (thread_x() < 32) {
        while (flag != 42) { __builtin_amdgcn_s_sleep(1); }
        a.to[thread_x()] = 7;
    } else {
        flag = 42;
    }
}

/// Every item adds to one of 16 counters and takes a ticket.
STRATA_KERNEL(64) void tickets(pair_args a) {
    const uint32_t item = block_x() * 64 + thread_x();
    __hip_atomic_fetch_add(&a.to[item % 16], item, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    const uint32_t ticket = __hip_atomic_fetch_add(&a.to[16], 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    a.to[17 + ticket] = item;
}

struct double_args { double * to; const double * from; };
STRATA_KERNEL(64) void divide_double(double_args a) { a.to[thread_x()] = a.from[2 * thread_x()] / a.from[2 * thread_x() + 1]; }
struct float_args { float * to; const float * from; };
STRATA_KERNEL(64) void divide_float(float_args a) { a.to[thread_x()] = a.from[2 * thread_x()] / a.from[2 * thread_x() + 1]; }
struct wide_args { uint64_t * to; const uint64_t * from; };
STRATA_KERNEL(64) void divide_integer(wide_args a) {
    const uint64_t x = a.from[2 * thread_x()], y = a.from[2 * thread_x() + 1];
    a.to[thread_x()] = x / y ^ int64_t(x) % int64_t(y);
}

STRATA_KERNEL(32) void trap(pair_args a) {
    if (a.to) { __builtin_trap(); }
}
"""


@pytest.fixture(scope="module")
def code() -> bytes:
    return compile_hip(SOURCE)


def run(hip, code: bytes, name: str, source: np.ndarray, count: int, block: int, grid: int = 1, dtype=np.uint32) -> np.ndarray:
    """The `count` values that the kernel stores, from zeros."""
    to, origin = hip.upload(np.zeros(count, dtype)), hip.upload(source)
    hip.launch(hip.kernel(code, name), grid, block, struct.pack("<QQ", to, origin))
    hip.synchronize()
    result = hip.download(to, (count,), dtype)
    hip.free(to)
    hip.free(origin)
    return result


def numbers(count: int) -> np.ndarray:
    print(f"seed {SEED}")
    return np.random.default_rng(SEED).integers(0, 2**32, count, np.uint32)


def test_calls(hip, code):
    x = numbers(96 * 5)
    expected = np.where(x & 1, 3 * x + 1, x << 16 | x >> 16)
    np.testing.assert_array_equal(run(hip, code, "calls", x, 96 * 5, 96, 5), expected)


def test_private_arrays(hip, code):
    x = numbers(64)
    expected = []
    for item, value in enumerate(x.tolist()):
        data = [i * item for i in range(40)]
        data[value % 40] += value
        data[(value >> 8) % 40] += 7
        total = 0
        for d in data:
            total = (total * 31 + d) & 0xFFFFFFFF
        expected.append(total)
    np.testing.assert_array_equal(run(hip, code, "private_array", x, 64, 64), np.array(expected, np.uint32))


def test_a_pointer_to_lds_or_global_memory(hip, code):
    x = numbers(32)
    lane = np.arange(32, dtype=np.uint32)
    np.testing.assert_array_equal(run(hip, code, "mixed_pointers", x, 32, 32), np.where(lane & 1, x, 1000 + 31 - lane))


def test_jump_tables(hip, code):
    x = numbers(64)
    x[:8] = x[:8] & ~np.uint32(7) | np.arange(8, dtype=np.uint32)
    cases = [x * 5, x ^ 0x55555555, x // 3, [int(v).bit_count() for v in x], x % 1000, x >> 3 | x << 29,
             [int(f"{v:032b}"[::-1], 2) for v in x], ~x]
    expected = np.concatenate([np.array(cases[int(x[block]) % 8], np.uint32) for block in range(8)])
    np.testing.assert_array_equal(run(hip, code, "table", x, 64 * 8, 64, 8), expected)


def test_waves_that_end_before_a_barrier(hip, code):
    x = numbers(128)
    expected = np.zeros(128, np.uint32)
    expected[0:32], expected[64:96] = x[64:96], x[0:32]
    np.testing.assert_array_equal(run(hip, code, "early_end", x, 128, 128), expected)


def test_a_wave_that_waits_for_another(hip, code):
    np.testing.assert_array_equal(run(hip, code, "handshake", numbers(1), 32, 64), np.full(32, 7, np.uint32))


def test_atomics_between_workgroups(hip, code):
    blocks = 40
    result = run(hip, code, "tickets", numbers(1), 17 + 64 * blocks, 64, blocks)
    items = np.arange(64 * blocks, dtype=np.uint32)
    np.testing.assert_array_equal(result[:16], [items[n::16].sum() for n in range(16)])
    assert result[16] == 64 * blocks
    np.testing.assert_array_equal(np.sort(result[17:]), items)


@pytest.mark.parametrize(("name", "dtype"), [("divide_float", np.float32), ("divide_double", np.float64)])
def test_division_is_correctly_rounded(hip, code, name, dtype):
    """IEEE division, which the compiler spells out in ten instructions, denormals and infinities included."""
    print(f"seed {SEED}")
    bits = np.random.default_rng(SEED).integers(0, 2 ** (8 * dtype().itemsize), 64 * 2 * 20, f"u{dtype().itemsize}")
    special = np.array([0, -0.0, 1, -1, np.inf, np.nan, np.finfo(dtype).tiny, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal], dtype)
    values = bits.view(dtype)
    values[: len(special) ** 2 * 2] = np.stack(np.meshgrid(special, special), -1).reshape(-1)
    for part in values.reshape(20, 128):
        with np.errstate(all="ignore"):
            expected = part[0::2] / part[1::2]
        np.testing.assert_array_equal(run(hip, code, name, part.copy(), 64, 64, dtype=dtype), expected)


def test_64_bit_integer_division(hip, code):
    print(f"seed {SEED}")
    generator = np.random.default_rng(SEED)
    x = generator.integers(0, 2**64, 128, np.uint64) >> generator.integers(0, 60, 128, np.uint64)
    x[1::2] = np.maximum(x[1::2], 1)
    expected = []
    for n, d in zip(x[0::2].tolist(), x[1::2].tolist()):
        sn, sd = ((v ^ 1 << 63) - (1 << 63) for v in (n, d))
        remainder = abs(sn) % abs(sd) * (-1 if sn < 0 else 1)
        expected.append(n // d ^ remainder & 0xFFFFFFFFFFFFFFFF)
    np.testing.assert_array_equal(run(hip, code, "divide_integer", x, 64, 64, dtype=np.uint64), np.array(expected, np.uint64))


def test_a_barrier_of_the_grid(private_emulator, code):
    """As good as one of a workgroup in a grid of one; larger ones would wait for ever."""
    hip = private_emulator
    hip.call("hipDeviceReset")
    data = np.arange(128, dtype=np.uint32) * 3
    kernel, source, result = hip.kernel(code, "grid_barrier"), hip.upload(data), hip.malloc(512)
    hip.launch(kernel, 1, 128, struct.pack("<QQ", result, source))
    assert (hip.download(result, 128, np.uint32) == data[::-1]).all()
    hip.launch(kernel, 2, 128, struct.pack("<QQ", result, source))
    with pytest.raises(HipError, match="waits for all workgroups of the grid"):
        hip.synchronize()
    hip.call("hipDeviceReset")


def test_a_trap_is_reported(private_emulator, code):
    hip = private_emulator
    hip.launch(hip.kernel(code, "trap"), 1, 32, struct.pack("<QQ", hip.malloc(4), 0))
    with pytest.raises(HipError, match="trap"):
        hip.synchronize()
