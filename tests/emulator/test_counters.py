"""STRATA_COUNT: what is counted is exact. The numbers are derived by hand from the instructions."""
import ctypes
import struct

import numpy as np
import pytest

from support.assembly import kernel_image
from support.compile import compile_hip
from support.hip import DEVICE_TO_DEVICE
from support.instruments import Counting
from support.kernels import basic_kernels

# Run with two workgroups of two waves.
BODY = """
    s_load_b128 s[8:11], s[0:1], 0x0        ; smem: 16 bytes of the arguments
    v_lshlrev_b32 v1, 2, v0                 ; valu
    s_waitcnt lgkmcnt(0)                    ; wait
    s_lshl_b32 s12, s2, 8                   ; salu
    v_add_nc_u32 v2, s12, v1                ; valu
    global_load_b32 v3, v2, s[10:11]        ; vmem: 128 bytes a wave, a line of its own
    v_lshlrev_b32 v4, 7, v0                 ; valu
    ds_store_b32 v4, v0                     ; lds: all 32 lanes in one bank
    ds_load_b32 v5, v1                      ; lds: all banks
    s_waitcnt vmcnt(0) lgkmcnt(0)           ; wait
    s_barrier                               ; other
    v_dual_mul_f32 v6, v3, v3 :: v_dual_add_f32 v7, v4, v4                      ; vopd
    v_rcp_f32 v6, v6                        ; trans
    v_dot4_i32_iu8 v7, v3, v3, v7           ; dot
    v_wmma_f32_16x16x16_f16 v[24:31], v[8:15], v[16:23], v[24:31]               ; wmma
    v_lshlrev_b32 v8, 8, v0                 ; valu
    global_store_b64 v8, v[6:7], s[8:9]     ; vmem: 8 bytes a lane, each in a line of its own, the same in both workgroups
    s_cmp_eq_u32 s2, 99                     ; salu
    s_cbranch_scc1 out                      ; branch
    s_delay_alu instid0(VALU_DEP_1)         ; wait
    s_nop 0                                 ; other
out:"""  # and s_endpgm: other
A_WAVE = {"valu": 4, "vopd": 1, "dot": 1, "trans": 1, "wmma": 1, "salu": 2, "smem": 1, "vmem": 2, "lds": 2, "branch": 1, "wait": 3, "other": 3}


@pytest.fixture(scope="module")
def hip(tmp_path_factory):
    return Counting(tmp_path_factory.mktemp("counters"))


def run(hip) -> dict:
    out, data = hip.malloc(1 << 14), hip.upload(np.zeros(128, np.uint32))
    hip.launch(hip.kernel(kernel_image(BODY, lds=8192), "probe"), 2, 64, struct.pack("<QQ", out, data))
    return hip.launches()[-1]


def test_every_number_of_a_kernel(hip):
    hip.raw.strata_emulator_count_phase(b"by hand")
    counted = run(hip)
    hip.raw.strata_emulator_count_phase(b"")
    assert counted["kernel"] == "probe" and counted["phase"] == "by hand" and counted["waves"] == 4
    assert counted["instructions"] == {**{name: 4 * n for name, n in A_WAVE.items()}, "total": 4 * 22}
    assert counted["barriers"] == 4
    assert counted["global"] == {
        "load_requests": 4, "store_requests": 4, "atomic_requests": 0, "load_bytes": 512, "store_bytes": 1024,
        "lines": {"request": 4 + 128, "workgroup": 4 + 128, "launch": 4 + 64, "written": 64}, "lines_per_request": 16.5}
    assert counted["arguments"] == {"load_requests": 4, "load_bytes": 64}
    assert counted["lds"] == {"requests": 8, "load_bytes": 512, "store_bytes": 512, "passes": 4 * (32 + 1), "conflicts": 4 * 31}
    # 8 KiB of LDS: 16 workgroups of 2 waves on the four SIMDs of a workgroup processor.
    assert counted["occupancy"] == {"waves_per_simd": 8, "workgroups_per_wgp": 16, "limit": "lds"}


def test_copies(hip):
    """By phase, direction and size, as the program asked for them."""
    hip.raw.strata_emulator_count_phase(b"copies")
    data = hip.upload(np.zeros(100, np.uint8))
    hip.upload(np.zeros(7, np.uint8))
    other = hip.upload(np.zeros(100, np.uint8))
    hip.download(data, 64, np.uint8)
    hip.call("hipMemcpy", other, data, 100, DEVICE_TO_DEVICE)
    hip.call("hipMemcpy", other, data, 0, DEVICE_TO_DEVICE)  # nothing
    hip.raw.strata_emulator_count_phase(b"")
    none = {"copies": 0, "bytes": 0, "sizes": {}}
    assert hip.counts()["copies"]["copies"] == {
        "host_to_device": {"copies": 3, "bytes": 207, "sizes": {"7": 1, "100": 2}},
        "device_to_host": {"copies": 1, "bytes": 64, "sizes": {"64": 1}},
        "device_to_device": {"copies": 1, "bytes": 100, "sizes": {"100": 1}}, "host_to_host": none}


def test_graphs(hip):
    """Launches and copies of a graph count whenever they run, as if they had been queued by themselves."""
    data, stream = hip.upload(np.zeros(100, np.uint8)), hip.stream()
    other, graph, exec_ = hip.malloc(100), ctypes.c_void_p(), ctypes.c_void_p()
    hip.synchronize()
    hip.raw.strata_emulator_count_phase(b"captured")
    hip.call("hipStreamBeginCapture", stream, 2)
    hip.call("hipMemcpyAsync", other, data, 100, DEVICE_TO_DEVICE, ctypes.c_void_p(stream))
    for _ in range(2):
        hip.launch(hip.kernel(basic_kernels(), "nothing"), 1, 32, stream=stream)
    hip.call("hipStreamEndCapture", stream, ctypes.byref(graph))
    hip.call("hipGraphInstantiate", ctypes.byref(exec_), graph, None, None, ctypes.c_size_t(0))
    counts = hip.counts()
    assert counts["graphs"]["captured"] == {"instantiated": 1, "launched": 0}
    assert "captured" not in counts["copies"] and not [each for each in counts["launches"] if each["phase"] == "captured"]
    hip.raw.strata_emulator_count_phase(b"run")
    for _ in range(3):
        hip.call("hipGraphLaunch", exec_, ctypes.c_void_p(stream))
    counts = hip.counts()
    hip.raw.strata_emulator_count_phase(b"")
    assert counts["graphs"]["run"] == {"instantiated": 0, "launched": 3}
    assert counts["copies"]["run"]["device_to_device"] == {"copies": 3, "bytes": 300, "sizes": {"100": 3}}
    assert [each["kernel"] for each in counts["launches"] if each["phase"] == "run"] == 6 * ["nothing"]


def test_repeatable_for_any_number_of_threads(hip, tmp_path_factory):
    alone = Counting(tmp_path_factory.mktemp("alone"), STRATA_EMULATOR_THREADS="1")
    source = """
#include "strata/device.h"
using namespace strata;
STRATA_KERNEL(64) void strided(uint32_t * data) {
    __attribute__((shared)) static uint32_t block[256];
    const uint32_t i = thread_x();
    for (uint32_t n = 0; n <= block_x() % 5; ++n) { block[(i * 4 + n) % 256] = data[(block_x() * 33 + i * 3 + n) % 4096]; }
    barrier();
    data[block_x() * 64 + i] = block[i];
}
"""
    seen = []
    for each in (hip, alone):
        data = each.upload(np.zeros(4096, np.uint32))
        each.launch(each.kernel(compile_hip(source), "strided"), 64, 64, struct.pack("<Q", data))
        seen.append(each.launches()[-1])
    assert seen[0] == seen[1]
    again = hip.upload(np.zeros(4096, np.uint32))
    hip.launch(hip.kernel(compile_hip(source), "strided"), 64, 64, struct.pack("<Q", again))
    assert hip.launches()[-1] == seen[0]


@pytest.mark.parametrize("vgprs, lds, block, waves, limit", [
    (24, 0, 32, 16, "waves"), (96, 0, 32, 16, "waves"), (97, 0, 32, 12, "vgprs"), (120, 0, 256, 12, "vgprs"), (240, 0, 32, 6, "vgprs"),
    (24, 65536, 256, 4, "lds"), (24, 512, 64, 16, "waves"), (24, 513, 32, 16, "waves")])
def test_occupancy(hip, vgprs, lds, block, waves, limit):
    hip.launch(hip.kernel(kernel_image("", pointers=0, vgprs=vgprs, lds=lds), "probe"), 1, block)
    found = hip.launches()[-1]["occupancy"]
    assert (found["waves_per_simd"], found["limit"]) == (waves, limit)


@pytest.mark.parametrize("load, stride, passes, conflicts", [
    ("b32", 4, 1, 0), ("b32", 0, 1, 0), ("b32", 8, 2, 1), ("b32", 128, 32, 31), ("b32", 132, 1, 0),
    ("b64", 8, 2, 0), ("b64", 128, 32, 30), ("b128", 16, 4, 0), ("b128", 128, 32, 28), ("u8", 1, 1, 0)])
def test_bank_conflicts(hip, load, stride, passes, conflicts):
    register = {"b64": "v[4:5]", "b128": "v[4:7]"}.get(load, "v4")
    body = f"v_mul_u32_u24 v1, {stride}, v0\nds_load_{load} {register}, v1\ns_waitcnt lgkmcnt(0)"
    hip.launch(hip.kernel(kernel_image(body, pointers=0, lds=8192), "probe"), 1, 32)
    counted = hip.launches()[-1]["lds"]
    assert (counted["passes"], counted["conflicts"]) == (passes, conflicts)


def test_the_uninstrumented_instruction_count_agrees(hip):
    before = hip.counters()[2]
    counted = run(hip)
    assert hip.counters()[2] - before == counted["instructions"]["total"]
