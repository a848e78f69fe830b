"""STRATA_SANITIZE=init: values that nothing wrote, where they reach a store, a branch or an address; and where they do not."""
import ctypes
import struct

import numpy as np
import pytest

from support.compile import compile_hip
from support.hip import DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE
from support.instruments import sanitizing

ARGUMENTS = "s_load_b128 s[8:11], s[0:1], 0x0\nv_lshlrev_b32 v1, 2, v0\ns_waitcnt lgkmcnt(0)\n"
STORE = "\nglobal_store_b32 v1, v2, s[8:9]"

# s[8:9]: results, s[10:11]: memory that nothing wrote to, v1: 4 * lane, v2: what is stored
FAULTS = {
    "register": ("is stored", ARGUMENTS + "v_add_nc_u32 v2, v9, v0" + STORE, "from v9"),
    "scalar register": ("is stored", ARGUMENTS + "v_mov_b32 v2, s20" + STORE, "from s20"),
    "device memory": ("is stored", ARGUMENTS + "global_load_b32 v2, v1, s[10:11]\ns_waitcnt vmcnt(0)" + STORE, "global_load_b32"),
    "device memory, scalar load": ("is stored", ARGUMENTS + "s_load_b32 s12, s[10:11], 0x10\ns_waitcnt lgkmcnt(0)\nv_mov_b32 v2, s12" +
                                   STORE, "s_load_b32"),
    "lds": ("is stored", ARGUMENTS + "ds_load_b32 v2, v1\ns_waitcnt lgkmcnt(0)" + STORE, "from LDS address 0x0"),
    "lds, half written": ("is stored", ARGUMENTS + "ds_store_b16 v1, v0\nds_load_b32 v2, v1\ns_waitcnt lgkmcnt(0)" + STORE, "LDS"),
    "scratch": ("is stored", ARGUMENTS + "scratch_load_b32 v2, off, off offset:4\ns_waitcnt vmcnt(0)" + STORE, "scratch address 0x4"),
    "through LDS": ("is stored", ARGUMENTS + "ds_store_b32 v1, v9\nds_load_b32 v2, v1\ns_waitcnt lgkmcnt(0)" + STORE, "LDS"),
    "through a select": ("is stored", ARGUMENTS + "v_cmp_gt_u32 vcc_lo, 16, v0\nv_cndmask_b32 v2, v0, v9, vcc_lo" + STORE, "lanes 0-15"),
    "through DPP": ("is stored", ARGUMENTS + "v_mov_b32_dpp v2, v9 row_xmask:1 row_mask:0xf bank_mask:0xf" + STORE, "from v9"),
    "through a sum of floats": ("is stored", ARGUMENTS + "v_mov_b32 v3, 0\nv_fma_f32 v2, v3, v9, v3" + STORE, "from v9"),
    "through a pair": ("is stored", ARGUMENTS + "v_dual_mov_b32 v2, v9 :: v_dual_mov_b32 v3, v0" + STORE, "from v9"),
    "vector branch": ("decides which lanes go on", ARGUMENTS + "v_cmpx_eq_u32 v0, v9\nv_mov_b32 v2, 0" + STORE, "from v9"),
    "saved mask": ("decides which lanes go on", ARGUMENTS + "v_cmp_eq_u32 vcc_lo, v0, v9\ns_and_saveexec_b32 s5, vcc_lo", "from v9"),
    "scalar branch": ("decides a branch", ARGUMENTS + "s_cmp_eq_u32 s20, 0\ns_cbranch_scc1 there\nthere:", "from s20"),
    "branch by VCC": ("decides a branch", ARGUMENTS + "v_cmp_eq_u32 vcc_lo, v9, v0\ns_cbranch_vccz there\nthere:", "from v9"),
    "address": ("is part of an address", ARGUMENTS + "v_and_b32 v9, 4, v9\nv_mov_b32 v2, 0\nglobal_store_b32 v9, v2, s[8:9]", "from v9"),
    "address in LDS": ("is part of an address", ARGUMENTS + "v_and_b32 v9, 4, v9\nds_load_b32 v2, v9", "from v9"),
    "scalar address": ("is part of an address", ARGUMENTS + "s_and_b32 s20, s20, 4\ns_load_b32 s12, s[8:9], s20", "from s20"),
}

CLEAN = {
    "written": ARGUMENTS + "v_mov_b32 v2, v0" + STORE,
    "not stored": ARGUMENTS + "v_mov_b32 v2, v0\nv_add_nc_u32 v3, v9, v9\nglobal_load_b32 v4, v1, s[10:11]\ns_waitcnt vmcnt(0)" + STORE,
    "lds": ARGUMENTS + "ds_store_b32 v1, v0\nds_load_b32 v2, v1\ns_waitcnt lgkmcnt(0)" + STORE,
    "lds, two halves": ARGUMENTS + "ds_store_b16 v1, v0\nds_store_b16 v1, v0 offset:2\nds_load_b32 v2, v1\ns_waitcnt lgkmcnt(0)" + STORE,
    "scratch": ARGUMENTS + "scratch_store_b32 off, v0, off offset:4\nscratch_load_b32 v2, off, off offset:4\ns_waitcnt vmcnt(0)" + STORE,
    "masked bits": ARGUMENTS + "v_and_b32 v2, 0, v9" + STORE,
    "masked by a register": ARGUMENTS + "v_mov_b32 v3, 0\nv_and_b32 v2, v3, v9" + STORE,
    "shifted out": ARGUMENTS + "ds_store_b16 v1, v0 offset:2\nds_load_b32 v2, v1\ns_waitcnt lgkmcnt(0)\nv_lshrrev_b32 v2, 16, v2" + STORE,
    "the low half is stored": ARGUMENTS + "ds_store_b16 v1, v0\nds_load_b32 v2, v1\ns_waitcnt lgkmcnt(0)\nglobal_store_b16 v1, v2, s[8:9]",
    "byte permute": ARGUMENTS + "v_perm_b32 v2, v0, v9, 0x07060504" + STORE,
    "bit fields": ARGUMENTS + "v_bfi_b32 v2, 0, v9, v0" + STORE,
    "select": ARGUMENTS + "v_cmp_gt_u32 vcc_lo, 32, v0\nv_cndmask_b32 v2, v9, v0, vcc_lo" + STORE,
    "lanes that are off": ARGUMENTS + "v_cmp_gt_u32 vcc_lo, 8, v0\ns_and_saveexec_b32 s5, vcc_lo\nv_mov_b32 v2, 1" + STORE,
    "decided by others": ARGUMENTS + "v_cmp_eq_u32 s12, v9, v0\ns_and_b32 s12, s12, 0\ns_and_saveexec_b32 s5, s12",
    "narrow half": ARGUMENTS + "v_cvt_f16_f32 v2, v0\nv_cvt_f32_f16 v2, v2" + STORE,
    "packed": ARGUMENTS + "v_cvt_f16_f32 v2, v0\nv_pack_b32_f16 v2, v2, v2" + STORE,
    "low bits of a sum": ARGUMENTS + "v_lshlrev_b32 v3, 16, v9\nv_add_nc_u32 v2, v3, v0\nglobal_store_b16 v1, v2, s[8:9]",
    "64-bit shift": ARGUMENTS + "v_mov_b32 v4, v0\nv_lshlrev_b64 v[6:7], 2, v[4:5]\nv_mov_b32 v2, v6" + STORE,
    "one lane of a register": ARGUMENTS + "v_writelane_b32 v9, s8, 3\nv_readlane_b32 s12, v9, 3\nv_mov_b32 v2, s12" + STORE,
    "swizzle": ARGUMENTS + "v_mov_b32 v3, v0\nds_swizzle_b32 v2, v3 offset:swizzle(SWAP,1)\ns_waitcnt lgkmcnt(0)" + STORE,
    "overwritten by a pair": ARGUMENTS + "v_dual_mov_b32 v2, v0 :: v_dual_mov_b32 v3, v1" + STORE,
}


started, hip = sanitizing("init")


def run(hip, body: str, **kernel) -> list[str]:
    out, unwritten = hip.upload(np.zeros(64, np.uint32)), hip.malloc(256)
    return hip.run(body, out, unwritten, lds=256, scratch=16, **kernel)


@pytest.mark.parametrize("name", FAULTS)
def test_undefined(hip, name):
    where, body, cause = FAULTS[name]
    reports = run(hip, body)
    assert len(reports) == 1, reports
    assert f"an undefined value {where}" in reports[0] and cause in reports[0]


@pytest.mark.parametrize("name", CLEAN)
def test_defined_where_it_matters(hip, name):
    assert run(hip, CLEAN[name]) == []


def test_matrix_rows_and_columns(hip):
    """A column of B that is undefined makes its column of D undefined, no other."""
    fill = "".join(f"v_mov_b32 v{n}, 0\n" for n in range(8, 32))
    spoil = "v_cmp_eq_u32 vcc_lo, 5, v0\nv_cndmask_b32 v16, v16, v40, vcc_lo\n"
    product = "v_wmma_f32_16x16x16_f16 v[24:31], v[8:15], v[16:23], v[24:31]\nv_mov_b32 v2, v24"
    (text,) = run(hip, ARGUMENTS + fill + spoil + product + STORE, vgprs=48)
    assert "is stored, lane 5\n" in text
    hip.reset()
    spoil = "v_cmp_eq_u32 vcc_lo, 1, v0\nv_cndmask_b32 v8, v8, v40, vcc_lo\n"  # row 1 of A: lanes 16-31 of the first register of D
    (text,) = run(hip, ARGUMENTS + fill + spoil + product + STORE, vgprs=48)
    assert "is stored, lanes 16-31" in text


def test_written_by_host_device_and_atomics(hip):
    copy = ARGUMENTS + "global_load_b32 v2, v1, s[10:11]\ns_waitcnt vmcnt(0)" + STORE
    out, data = hip.malloc(256), hip.malloc(256)
    hip.call("hipMemset", data, 1, 128)
    assert hip.run(copy, out, data) == []
    again = hip.malloc(256)
    assert hip.run(copy, again, out) == []  # what a kernel wrote
    hip.call("hipMemcpy", out, again, 256, 3)
    assert hip.run(copy, data, out) == []
    fresh = hip.malloc(256)
    (text,) = hip.run(copy, out, fresh)
    assert "which nothing was written to: inside allocation" in text and hex(fresh) in text


def test_pinned_memory_counts_as_written(hip):
    """Also where undefined values were copied into it: the host may have written others since."""
    copy = ARGUMENTS + "global_load_b32 v2, v1, s[10:11]\ns_waitcnt vmcnt(0)" + STORE
    out, data, fresh, pinned = hip.malloc(256), hip.malloc(256), hip.malloc(256), hip.host_malloc(256)
    hip.call("hipMemcpy", pinned, fresh, 256, DEVICE_TO_HOST)
    ctypes.memset(pinned, 0, 256)
    hip.call("hipMemcpy", data, pinned, 256, HOST_TO_DEVICE)
    assert hip.run(copy, out, data) == []
    hip.call("hipMemcpy", data, fresh, 256, DEVICE_TO_DEVICE)
    (text,) = hip.run(copy, out, data)
    assert "which nothing was written to: inside allocation" in text


def test_compiled_code_with_partial_tiles(hip):
    image = compile_hip("""
#include "strata/device.h"
using namespace strata;
struct args { float * out; const float * in; };
STRATA_KERNEL(64) void rows(args a) {
    __attribute__((shared)) static float tile[64];
    const uint32_t i = thread_x();
    if (i < 40) { tile[i] = a.in[i]; }
    barrier();
    float sum = 0.0f;
    for (uint32_t n = 0; n < 64; ++n) { sum += n < 40 ? tile[n] : 0.0f; }
    if (i < 40) { a.out[i] = sum; }
}
""")
    out, data = hip.malloc(160), hip.upload(np.ones(40, np.float32))
    hip.launch(hip.kernel(image, "rows"), 1, 64, struct.pack("<QQ", out, data))
    hip.synchronize()
    assert hip.reports() == []
