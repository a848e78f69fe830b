"""Cooperative launches: workgroups that wait for each other, and what the instruments make of them."""
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from support.compile import compile_hip
from support.hip import HipError, emulator
from support.instruments import Counting, sanitizing
from support.kernels import basic_kernels, store_args
from support.process import run_python
from test_time_model import PARAMETERS

SOURCE = """
#include "strata/device.h"
using namespace strata;

/// What every workgroup wrote to global memory before it is read by every workgroup behind it. `arrivals` only grows: by one a workgroup and
/// barrier. It passes at `target`, the arrivals of all workgroups at this barrier and those before (modulo 2^32).
STRATA_DEVICE void grid_barrier(uint32_t * arrivals, uint32_t target) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");  // each wave waits for its own accesses
    __builtin_amdgcn_s_barrier();
    if (thread_x() == 0) {
        __hip_atomic_fetch_add(arrivals, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        while (static_cast<int32_t>(__hip_atomic_load(arrivals, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) - target) < 0) {
            __builtin_amdgcn_s_sleep(1);
        }
    }
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");  // the L0s and the L1 may hold what was there before
}

struct args { uint32_t * data; uint32_t * arrivals; uint32_t grid, rounds, way; };

/// way 1: waves go on with what their caches hold.
STRATA_DEVICE void pass(args a, uint32_t target) {
    if (a.way != 1) {
        grid_barrier(a.arrivals, target);
        return;
    }
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    __builtin_amdgcn_s_barrier();
    if (thread_x() == 0) {
        __hip_atomic_fetch_add(a.arrivals, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        while (__hip_atomic_load(a.arrivals, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) < target) {}
    }
    __builtin_amdgcn_s_barrier();
    asm volatile("" ::: "memory");
}

/// Each work-item takes over, in each round, what its neighbour in the next workgroup has, and adds one. way 2: without a barrier.
/// way 3: rounds use the same memory, so that a workgroup may write what another has not read yet.
STRATA_KERNEL(256) void ring(args a) {
    const uint32_t all = a.grid * BLOCK, i = block_x() * BLOCK + thread_x();
    uint32_t seen = i;
    for (uint32_t r = 0; r < a.rounds; r++) {
        uint32_t * here = a.data + (a.way == 3 ? 0 : r % 2 * all);
        here[i] = seen + 1;
        if (a.way == 2) barrier();
        else pass(a, a.grid * (r + 1));
        seen = here[(i + BLOCK) % all];
    }
    a.data[2 * all + i] = seen;
}

/// The first workgroup has its stores on the way when it tells the others. way 0: it waits for them.
STRATA_KERNEL(32) void tell(args a) {
    if (block_x() == 0) {
        a.data[thread_x()] = 7;
        if (a.way == 0) __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
        else asm volatile("" ::: "memory");
        if (thread_x() == 0) __hip_atomic_fetch_add(a.arrivals, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        return;
    }
    while (__hip_atomic_load(a.arrivals, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) == 0) {}
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
    a.data[block_x() * 32 + thread_x()] = a.data[thread_x()];
}

/// The last workgroup to come waits for one that does not exist.
STRATA_KERNEL(32) void hang(args a) {
    grid_barrier(a.arrivals, a.grid + 1);
}

/// One workgroup has much to do before all meet, the others behind that.
struct meet_args { uint32_t * arrivals; uint32_t slow; float * out; };
STRATA_KERNEL(32) void meet(meet_args a) {
    float x = a.out[0];
    if (block_x() == a.slow) for (int n = 0; n < 2000; n++) asm volatile("v_add_f32 %0, 1.0, %0" : "+v"(x));
    grid_barrier(a.arrivals, 40);
    if (block_x() != a.slow) for (int n = 0; n < 2000; n++) asm volatile("v_add_f32 %0, 1.0, %0" : "+v"(x));
    a.out[block_x() * 32 + thread_x()] = x;
}

STRATA_KERNEL(1024) void much_lds(args a) {
    __attribute__((shared)) static uint32_t block[12288];
    block[thread_x()] = a.way;
    barrier();
    a.data[block_x()] = block[0];
}
"""


def image(block: int = 256) -> bytes:
    return compile_hip(SOURCE, flags=(f"-DBLOCK={block}",))


class Rounds:
    """A ring of workgroups in a device's memory."""

    def __init__(self, hip, grid: int, block: int = 256, kernel: str = "ring"):
        self.hip, self.grid, self.block = hip, grid, block
        self.kernel = hip.kernel(image(block), kernel)
        self.data, self.arrivals = hip.upload(np.zeros(3 * grid * block, np.uint32)), hip.malloc(4)

    def start(self, rounds: int, way: int = 0) -> None:
        self.hip.call("hipMemset", self.arrivals, 0, 4)
        self.hip.launch_cooperative(self.kernel, self.grid, self.block,
                                    struct.pack("<QQIIIxxxx", self.data, self.arrivals, self.grid, rounds, way))

    def result(self) -> np.ndarray:
        return self.hip.download(self.data, (3, self.grid * self.block), np.uint32)[2]

    def expected(self, rounds: int) -> np.ndarray:
        return (np.arange(self.grid * self.block) + rounds * self.block) % (self.grid * self.block) + rounds


@pytest.mark.parametrize("grid, block", [(1, 32), (2, 64), (40, 256), (160, 256), (1280, 32)])
def test_a_barrier_over_the_grid(hip, grid, block):
    ring = Rounds(hip, grid, block)
    ring.start(5)
    assert (ring.result() == ring.expected(5)).all()
    assert hip.download(ring.arrivals, 1, np.uint32)[0] == 5 * grid


def test_a_loop_without_sleep_gives_way(hip):
    ring = Rounds(hip, 40)
    ring.start(3, way=1)
    assert (ring.result() == ring.expected(3)).all()


def test_a_grid_that_is_not_resident_at_once_is_refused(hip):
    module = hip.load(image())
    data = hip.upload(np.zeros(1 << 19, np.uint32))
    arguments = struct.pack("<QQIIIxxxx", data, data, 1, 0, 0)
    # 64 waves a processor; 128 KiB of LDS, of which a workgroup has 48.
    for name, block, most, limit in (("ring", 256, 160, "waves"), ("ring", 32, 1280, "waves"), ("much_lds", 512, 40, "lds"),
                                     ("much_lds", 32, 40, "lds")):
        kernel = hip.function(module, name)
        with pytest.raises(HipError) as error:
            hip.launch_cooperative(kernel, most + 1, block, arguments)
        assert error.value.name == "hipErrorCooperativeLaunchTooLarge"
        assert f"holds {most} workgroups of this kernel at a time (limited by {limit})" in error.value.message
        with pytest.raises(HipError):
            hip.launch_cooperative(kernel, (2**16, 2**16 - 1, 2**16), (1, 1, 1), arguments)
        hip.launch_cooperative(kernel, most, block, arguments)
        hip.launch_cooperative(kernel, (most // 4, 2, 2), block, arguments)
        hip.synchronize()


def test_a_handle_that_is_none(hip):
    with pytest.raises(HipError, match="hipModuleLaunchCooperativeKernel: 0x1234 is no function"):
        hip.launch_cooperative(0x1234, 1, 32)


def test_kernels_that_do_not_wait_run_as_ever(hip):
    data = hip.malloc(4 * 96)
    store = hip.kernel(basic_kernels(), "store")
    hip.launch_cooperative(store, 3, 32, store_args(data))
    together = hip.download(data, 96, np.uint32)
    hip.call("hipMemset", data, 0xFF, 4 * 96)
    hip.launch(store, 3, 32, store_args(data))
    assert (together == hip.download(data, 96, np.uint32)).all()


def test_a_fault_ends_the_launch(hip):
    ring = Rounds(hip, 4)
    ring.data = 0x1000
    ring.start(2)
    with pytest.raises(HipError) as error:
        hip.synchronize()
    assert error.value.name == "hipErrorIllegalAddress" and "workgroup (0, 0, 0)" in hip.last_fault()
    hip.call("hipDeviceReset")


def in_a_process(call: str, **environment) -> str:
    """What `call` prints; address space is short for many emulators in one process."""
    return run_python(f"import sys; sys.path.insert(0, {__file__.rpartition('/')[0]!r})\nimport test_cooperative as t\n{call}", **environment).stdout


def wait_for_ever() -> None:
    hip = emulator()
    Rounds(hip, 4, 32, "hang").start(0)
    with pytest.raises(HipError) as error:
        hip.synchronize()
    assert error.value.name == "hipErrorLaunchTimeOut"


def test_waiting_for_ever_is_a_hang():
    in_a_process("t.wait_for_ever()", STRATA_EMULATOR_INSTRUCTION_LIMIT=100_000)


def print_launches(folder: str) -> None:
    hip = Counting(Path(folder), STRATA_MODEL="1")
    ring = Rounds(hip, 40)
    for _ in range(2):
        ring.start(4)
    print(json.dumps(hip.launches()))


def test_the_same_counts_and_times_for_any_number_of_threads(tmp_path):
    """Turns included that wait for others: all workgroups have their turns on one thread."""
    one, four = (in_a_process(f"t.print_launches({str(tmp_path)!r})", STRATA_EMULATOR_THREADS=n) for n in (1, 4))
    assert len(json.loads(one)) == 2 and one == four


@pytest.fixture(scope="module")
def modelling(tmp_path_factory):
    return Counting(tmp_path_factory.mktemp("model"), STRATA_MODEL="1")


@pytest.mark.parametrize("grid", [40, 80])
def test_modelled_time_of_a_barrier(modelling, grid):
    """Between two barriers stand a store and a load: each is some way to the L2 and back, as are the atomic and the load that sees the last
    arrival."""
    ring = Rounds(modelling, grid)
    for rounds in (1, 1, 11, 31):  # the first finds nothing in the caches
        ring.start(rounds)
    launches = modelling.launches()[-4:]
    _, one, some, many = (each["modelled"]["us"] * PARAMETERS["clock_ghz"] * 1e3 for each in launches)
    print(f"{grid} workgroups: {(some - one) / 10:.0f} cycles a round, {(many - some) / 20:.0f}")
    assert (some - one) / 10 == pytest.approx((many - some) / 20, rel=0.1)
    assert 3 * PARAMETERS["l2_latency"] < (many - some) / 20 < 6 * PARAMETERS["l2_latency"] + grid * PARAMETERS["atomic_cycles"]
    assert all(each["modelled"]["share"] == 1 for each in launches)


def test_the_model_waits_for_the_slowest(modelling):
    """Of the workgroups that meet, one has much to do first. That the emulator runs it first or last changes nothing."""
    hip, kernel = modelling, modelling.kernel(image(), "meet")
    arrivals, out = hip.malloc(4), hip.upload(np.zeros(1280, np.float32))
    for slow in (40, 0, 20, 39, 40):  # the first finds nothing in the caches
        hip.call("hipMemset", arrivals, 0, 4)
        hip.launch_cooperative(kernel, 40, 32, struct.pack("<QI4xQ", arrivals, slow, out))
    _, first, middle, last, nobody = (each["modelled"]["us"] * PARAMETERS["clock_ghz"] * 1e3 for each in hip.launches()[-5:])
    print(first, middle, last, nobody)
    work = 2000 * PARAMETERS["valu_latency"]
    assert first == pytest.approx(last, rel=0.02) and middle == pytest.approx(last, rel=0.02)
    assert first - nobody > 0.9 * work


started, racing = sanitizing("memory,init,race,wait")


def reports(hip, kernel: str, way: int, grid: int, block: int, rounds: int = 3) -> list[str]:
    ring = Rounds(hip, grid, block, kernel)
    ring.start(rounds, way)
    hip.synchronize()
    return hip.reports()


def test_barriers_order_workgroups(racing):
    assert reports(racing, "ring", 0, 8, 64) == []


@pytest.mark.parametrize("way, told", [(1, "caches may hold the old value"), (2, "no atomic orders"), (3, "no atomic orders")])
def test_what_barriers_leave_open(racing, way, told):
    found = reports(racing, "ring", way, 8, 64)
    assert found and all(told in each and "two workgroups of a launch touch the same bytes" in each for each in found), found


@pytest.mark.parametrize("way, faulty", [(0, False), (1, True)])
def test_stores_are_waited_for_before_others_are_told(racing, way, faulty):
    found = reports(racing, "tell", way, 4, 32)
    assert bool(found) == faulty, found
    if faulty:
        assert "no atomic orders" in found[0] and "workgroup (0, 0, 0), writing it in" in found[0]
