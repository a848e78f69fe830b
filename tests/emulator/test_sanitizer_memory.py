"""STRATA_SANITIZE=memory: seeded faults and their clean twins."""
import re
import subprocess

import numpy as np
import pytest

from support.compile import compile_hip
from support.hip import HipError
from support.instruments import Instrumented, sanitizing
from support.kernels import basic_kernels, store_args

LOAD_ARGUMENTS = "s_load_b128 s[8:11], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\n"


started, hip = sanitizing("memory")


def store_at(hip, index: int, items: int = 32) -> list[str]:
    """Stores 32 numbers from data[index] on, where data has 40."""
    data = hip.malloc(160)
    hip.launch(hip.kernel(basic_kernels(), "store"), 1, items, store_args(data, index))
    try:
        hip.synchronize()
    except HipError:
        pass
    return hip.reports()


def test_stores_within(hip):
    assert store_at(hip, 8) == []
    assert store_at(hip, 39, items=1) == []


def test_stores_past_the_end_and_before_the_start(hip):
    (text,) = store_at(hip, 9)
    assert "memory: invalid store of 4 bytes, lane 31" in text and "0 bytes past the end of allocation" in text
    assert "`global_store_b32" in text and "of kernel store" in text and "workgroup (0, 0, 0), wave 0" in text
    assert "allocated by hipMalloc called by" in text
    hip.reset()
    (text,) = store_at(hip, -3)
    assert "lanes 0-2" in text and "12 bytes before allocation" in text


def test_freed_memory_says_who_freed_it(hip):
    data = hip.malloc(256)
    hip.free(data)
    hip.launch(hip.kernel(basic_kernels(), "store"), 1, 32, store_args(data))
    with pytest.raises(HipError):
        hip.synchronize()
    (text,) = hip.reports()
    assert "lanes 0-31" in text and "which was freed" in text and "freed by hipFree called by" in text


@pytest.mark.parametrize("offset, faulty", [(252, False), (253, True), (256, True)])
def test_lds_past_the_allocation(hip, offset, faulty):
    reports = hip.run(f"v_lshlrev_b32 v1, 2, v0\nv_cmp_eq_u32 vcc_lo, 0, v0\ns_and_saveexec_b32 s5, vcc_lo\n"
                      f"ds_store_b32 v1, v0 offset:{offset}\ns_waitcnt lgkmcnt(0)", lds=256)
    assert bool(reports) == faulty, reports
    if faulty:
        assert "store of 4 bytes outside of LDS, lane 0" in reports[0] and "the workgroup has 256 bytes" in reports[0]


@pytest.mark.parametrize("offset, faulty", [(12, False), (13, True), (16, True)])
def test_scratch_past_the_frame(hip, offset, faulty):
    reports = hip.run(f"scratch_store_b32 off, v0, off offset:{offset}", scratch=16)
    assert bool(reports) == faulty, reports
    if faulty:
        assert "outside of scratch, lanes 0-31" in reports[0] and "a lane has 16 bytes" in reports[0]


@pytest.mark.parametrize("shift", [0, 2])
def test_misaligned_atomic_and_scalar_load(hip, shift):
    data = hip.upload(np.zeros(64, np.uint32))
    body = LOAD_ARGUMENTS + f"v_mov_b32 v1, 0\nv_mov_b32 v2, 1\nv_mov_b32 v3, {shift}\n" \
        "v_cmp_eq_u32 vcc_lo, 0, v0\ns_and_saveexec_b32 s5, vcc_lo\nglobal_atomic_add_u32 v3, v2, s[8:9]"
    reports = hip.run(body, data, data)
    assert bool(reports) == bool(shift)
    assert all("misaligned atomic of 4 bytes, lane 0" in each for each in reports)
    hip.reset()
    data = hip.upload(np.zeros(64, np.uint32))
    reports = hip.run(LOAD_ARGUMENTS + f"s_add_u32 s8, s8, {shift}\ns_load_b32 s12, s[8:9], 0x0", data, data)
    assert bool(reports) == bool(shift)
    assert all("misaligned load of 4 bytes" in each and "ignores the low bits" in each for each in reports)


def test_read_only_memory(hip):
    image = compile_hip("""
#include "strata/device.h"
using namespace strata;
__attribute__((device)) static const uint32_t table[4] = {1, 2, 3, 4};
STRATA_KERNEL(32) void spoil(uint32_t * out) { *(volatile uint32_t *) &table[out[0]] = 7; }
""")
    data = hip.upload(np.ones(1, np.uint32))
    hip.launch(hip.kernel(image, "spoil"), 1, 32, int(data).to_bytes(8, "little"))
    with pytest.raises(HipError):
        hip.synchronize()
    (text,) = hip.reports()
    assert "invalid store" in text and "read-only" in text


@pytest.mark.parametrize("packing", [[], ["--compress-debug-sections=zlib"], ["--compress-debug-sections=zstd"]],
                         ids=["plain", "zlib", "zstd"])
def test_source_lines_where_there_is_debug_information(hip, packing, tmp_path):
    source = '#include "strata/device.h"\nusing namespace strata;\nSTRATA_KERNEL(32) void far_away(uint32_t * out) {\n' \
             "    out[1 << 20] = 1;\n}\n"
    image = tmp_path / "far_away.co"
    image.write_bytes(compile_hip(source, flags=("-gline-tables-only",)))
    subprocess.run(["llvm-objcopy-19", *packing, image], check=True)
    data = hip.malloc(64)
    hip.launch(hip.kernel(image.read_bytes(), "far_away"), 1, 1, int(data).to_bytes(8, "little"))
    with pytest.raises(HipError):
        hip.synchronize()
    (text,) = hip.reports()
    assert re.search(r"of kernel far_away \(kernel\.hip:4\)", text), text


@pytest.mark.parametrize("shift, faulty", [(0, False), (2, True)])
def test_alignment_on_demand(tmp_path, shift, faulty):
    hip = Instrumented(tmp_path, STRATA_SANITIZE="align")
    data = hip.upload(np.zeros(64, np.uint32))
    reports = hip.run(LOAD_ARGUMENTS + f"v_lshlrev_b32 v1, 2, v0\nv_add_nc_u32 v1, {shift}, v1\nglobal_load_b32 v2, v1, s[8:9]", data, data)
    assert bool(reports) == faulty
    assert all("align: misaligned load of 4 bytes, lanes 0-31" in each for each in reports)
