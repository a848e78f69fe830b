"""STRATA_SANITIZE=wait: registers that are used before their load is waited for."""
import numpy as np
import pytest

from support.instruments import sanitizing
from support.kernels import basic_kernels, copy_args

SETUP = "s_load_b128 s[8:11], s[0:1], 0x0\nv_lshlrev_b32 v1, 2, v0\ns_waitcnt lgkmcnt(0)\n"
STORE = "\nglobal_store_b32 v1, v2, s[8:9]"

FAULTS = {
    "vector load": SETUP + "global_load_b32 v2, v1, s[10:11]" + STORE,
    "vector load, value in between": SETUP + "global_load_b32 v2, v1, s[10:11]\nv_add_nc_u32 v2, v2, v2\ns_waitcnt vmcnt(0)" + STORE,
    "wait for too few": SETUP + "global_load_b32 v2, v1, s[10:11]\nglobal_load_b32 v3, v1, s[10:11]\ns_waitcnt vmcnt(2)" + STORE,
    "second of two": SETUP + "global_load_b32 v3, v1, s[10:11]\nglobal_load_b32 v2, v1, s[10:11]\ns_waitcnt vmcnt(1)" + STORE,
    "wrong counter": SETUP + "global_load_b32 v2, v1, s[10:11]\ns_waitcnt lgkmcnt(0)" + STORE,
    "scalar load": "s_load_b128 s[8:11], s[0:1], 0x0\nv_lshlrev_b32 v1, 2, v0\nv_mov_b32 v2, 1" + STORE,
    "scalar load, half waited": "s_load_b64 s[12:13], s[0:1], 0x0\ns_load_b128 s[8:11], s[0:1], 0x0\nv_lshlrev_b32 v1, 2, v0\n"
                                "s_waitcnt lgkmcnt(1)\nv_mov_b32 v2, s12",
    "lds load": SETUP + "ds_store_b32 v1, v0\nds_load_b32 v2, v1" + STORE,
    "lds, wrong counter": SETUP + "ds_store_b32 v1, v0\nds_load_b32 v2, v1\ns_waitcnt vmcnt(0)" + STORE,
    "lds, second of two": SETUP + "ds_load_b32 v3, v1\nds_load_b32 v2, v1\ns_waitcnt lgkmcnt(1)" + STORE,
    "bpermute": SETUP + "ds_bpermute_b32 v2, v1, v0" + STORE,
    "overwritten": SETUP + "global_load_b32 v2, v1, s[10:11]\nv_mov_b32 v2, 0\ns_waitcnt vmcnt(0)" + STORE,
    "an address": SETUP + "global_load_b32 v2, v1, s[10:11]\nglobal_load_b32 v3, v2, s[10:11]\ns_waitcnt vmcnt(0)",
    "atomic with result": SETUP + "v_mov_b32 v3, 1\nglobal_atomic_add_u32 v2, v1, v3, s[10:11] glc" + STORE,
}

CLEAN = {
    "vector load": SETUP + "global_load_b32 v2, v1, s[10:11]\ns_waitcnt vmcnt(0)" + STORE,
    "first of two": SETUP + "global_load_b32 v2, v1, s[10:11]\nglobal_load_b32 v3, v1, s[10:11]\ns_waitcnt vmcnt(1)" + STORE,
    "stores do not count in vmcnt": SETUP + "global_load_b32 v2, v1, s[10:11]\ns_waitcnt vmcnt(0)" + STORE + STORE,
    "lds load": SETUP + "ds_store_b32 v1, v0\nds_load_b32 v2, v1\ns_waitcnt lgkmcnt(0)" + STORE,
    "lds, first of two": SETUP + "ds_load_b32 v2, v1\nds_load_b32 v3, v1\ns_waitcnt lgkmcnt(1)" + STORE,
    "bpermute": SETUP + "ds_bpermute_b32 v2, v1, v0\ns_waitcnt lgkmcnt(0)" + STORE,
    "another register": SETUP + "global_load_b32 v2, v1, s[10:11]\nv_mov_b32 v3, 0\ns_waitcnt vmcnt(0)" + STORE,
    "loaded twice, in order": SETUP + "global_load_b32 v2, v1, s[10:11]\nglobal_load_b32 v2, v1, s[10:11]\ns_waitcnt vmcnt(0)" + STORE,
    "atomic without result": SETUP + "v_mov_b32 v2, 1\nglobal_atomic_add_u32 v1, v2, s[10:11]" + STORE,
}


started, hip = sanitizing("wait")


def run(hip, body: str, **launch) -> list[str]:
    out, source = hip.upload(np.zeros(1024, np.uint32)), hip.upload(np.zeros(1024, np.uint32))
    return hip.run(body, out, source, lds=1024, **launch)


@pytest.mark.parametrize("name", FAULTS)
def test_missing_wait(hip, name):
    reports = run(hip, FAULTS[name])
    assert len(reports) >= 1
    assert "while a load into it is outstanding" in reports[0] and "loaded by `" in reports[0]


@pytest.mark.parametrize("name", CLEAN)
def test_waited_for(hip, name):
    assert run(hip, CLEAN[name]) == []


def test_report_names_both_instructions(hip):
    (text,) = run(hip, FAULTS["vector load"])
    assert "v2 is used" in text and "no s_waitcnt vmcnt covers it" in text
    assert "used in `global_store_b32 v1, v2, s[8:9]`" in text and "loaded by `global_load_b32 v2, v1, s[10:11]`" in text


@pytest.mark.parametrize("wait", ["", "s_waitcnt lgkmcnt(0)\n"])
def test_store_to_lds_before_a_barrier(hip, wait):
    reports = run(hip, f"v_lshlrev_b32 v1, 2, v0\nds_store_b32 v1, v0\n{wait}s_barrier", block=64)
    assert bool(reports) == (not wait)
    assert all("barrier while its store to LDS is outstanding" in each and "stored by `ds_store_b32" in each for each in reports)


def test_compiled_code_is_silent(hip):
    out, source = hip.malloc(128), hip.upload(np.arange(32, dtype=np.uint32))
    hip.launch(hip.kernel(basic_kernels(), "copy"), 1, 32, copy_args(out, source))
    hip.synchronize()
    assert hip.reports() == []
