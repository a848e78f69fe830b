"""STRATA_SANITIZE=race: waves in LDS between barriers, workgroups in device memory."""
import re
import struct

import numpy as np
import pytest

from support.compile import compile_hip
from support.instruments import sanitizing

SOURCE = """
#include "strata/device.h"
using namespace strata;

struct args { uint32_t * data; uint32_t way; };

/// Each wave writes its part of LDS and reads the part of the next one. way 0: with barriers.
STRATA_KERNEL(128) void exchange(args a) {
    __attribute__((shared)) static uint32_t block[128];
    const uint32_t i = thread_x();
    block[i] = i;
    if (a.way == 0) { barrier(); }
    else { asm volatile("s_waitcnt lgkmcnt(0)" ::: "memory"); }
    a.data[i] = block[(i + 32) % 128];
}

/// The second round overwrites what others may still read. way 0: with a barrier in between.
STRATA_KERNEL(128) void reuse(args a) {
    __attribute__((shared)) static uint32_t block[128];
    const uint32_t i = thread_x();
    block[i] = i;
    barrier();
    const uint32_t seen = block[127 - i];
    if (a.way == 0) { barrier(); }
    else { asm volatile("s_waitcnt lgkmcnt(0)" ::: "memory"); }
    block[i] = seen;
    barrier();
    a.data[i] = block[127 - i];
}

/// Waves write bytes of the same dwords. way 0: each its own.
STRATA_KERNEL(128) void bytes(args a) {
    __attribute__((shared)) static volatile uint8_t block[128];
    const uint32_t i = thread_x(), wave = i / 32, lane = i % 32;
    block[a.way == 0 ? lane * 4 + wave : lane] = uint8_t(i);
    barrier();
    a.data[i] = block[i];
}

/// Workgroups write data[way 0: their own, 1: all the same, 2: one byte further in each, 3: all the same, and the same values].
STRATA_KERNEL(32) void publish(args a) {
    const uint32_t i = thread_x();
    auto * bytes = (volatile uint8_t *) a.data;
    if (a.way == 2) bytes[i * 4 + block_x()] = uint8_t(i);
    else if (a.way == 3) ((volatile uint32_t *) a.data)[i] = i;
    else ((volatile uint32_t *) a.data)[a.way == 0 ? block_x() * 32 + i : i] = 7 + i * block_x();
}

/// A workgroup reads what another writes. way 0: it reads elsewhere.
STRATA_KERNEL(32) void neighbour(args a) {
    const uint32_t i = thread_x(), other = (block_x() + 1) % 4;
    volatile uint32_t * data = a.data;
    const uint32_t seen = data[(a.way == 0 ? 4 : other) * 32 + i];
    data[block_x() * 32 + i] = seen;
}

/// Workgroups of one work-item read and write halves of the same dwords. way 0: each its own, 1: all read both, 2: all read and write the first.
STRATA_KERNEL(1) void halves(args a) {
    auto * half = (volatile uint16_t *) a.data;
    const uint32_t own = a.way == 2 ? 0 : block_x();
    const uint16_t seen = a.way == 1 ? half[block_x() ^ 1] + half[block_x()] : half[own];
    half[own] = seen + 1;
}

STRATA_KERNEL(32) void count(args a) {
    if (a.way == 0) __atomic_fetch_add(a.data, 1u, __ATOMIC_RELAXED);
    else if (thread_x() == 0) *(volatile uint32_t *) a.data = *(volatile uint32_t *) a.data + 1;
}
"""


started, hip = sanitizing("race")


def run(hip, kernel: str, way: int, grid: int, block: int) -> list[str]:
    data = hip.upload(np.zeros(1024, np.uint32))
    hip.launch(hip.kernel(compile_hip(SOURCE), kernel), grid, block, struct.pack("<QI4x", data, way))
    hip.synchronize()
    return hip.reports()


@pytest.mark.parametrize("kernel", ["exchange", "reuse", "bytes"])
def test_waves_in_lds(hip, kernel):
    assert run(hip, kernel, 0, 1, 128) == []
    reports = run(hip, kernel, 1, 1, 128)
    assert reports and all("two waves of a workgroup touch the same LDS bytes and no barrier is between them" in each for each in reports)
    assert "of the same workgroup" in reports[0] and reports[0].count("ing it in `") == 2


def test_one_wave_is_in_order(hip):
    assert run(hip, "exchange", 1, 1, 32) == []


@pytest.mark.parametrize("way, faulty", [(0, False), (1, True), (2, False), (3, False)])
def test_workgroups_write(hip, way, faulty):
    reports = run(hip, "publish", way, 4, 32)
    assert bool(reports) == faulty, reports
    if faulty:
        assert "two workgroups of a launch touch the same bytes" in reports[0]
        assert len(set(re.findall(r"workgroup (\(\d, 0, 0\))", reports[0]))) == 2 and reports[0].count("writing it in `") == 2


def test_equal_values_at_the_same_time(hip):
    """A workgroup may look at a word before the store of another, noted already, has come to it."""
    kernel = hip.kernel(compile_hip(SOURCE), "publish")
    for _ in range(400):
        data = hip.upload(np.zeros(1024, np.uint32))
        hip.launch(kernel, 64, 32, struct.pack("<QI4x", data, 3))
        hip.synchronize()
        hip.free(data)
    assert hip.reports() == []


@pytest.mark.parametrize("way, faulty", [(0, False), (1, True)])
def test_workgroups_read_and_write(hip, way, faulty):
    assert bool(run(hip, "neighbour", way, 4, 32)) == faulty


@pytest.mark.parametrize("way, faulty", [(0, False), (1, True), (2, True)])
def test_workgroups_share_a_dword(hip, way, faulty):
    assert bool(run(hip, "halves", way, 4, 1)) == faulty


@pytest.mark.parametrize("way, faulty", [(0, False), (1, True)])
def test_atomics_do_not_race(hip, way, faulty):
    assert bool(run(hip, "count", way, 4, 32)) == faulty


def test_launches_follow_each_other(hip):
    data = hip.upload(np.zeros(1024, np.uint32))
    kernel = hip.kernel(compile_hip(SOURCE), "publish")
    for _ in range(3):
        hip.launch(kernel, 1, 32, struct.pack("<QI4x", data, 1))
    hip.synchronize()
    assert hip.reports() == []
