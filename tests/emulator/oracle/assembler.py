"""Kernels that load a wave's registers, execute the code of a case, and store every register again.

A kernel holds the code of many cases. A block in memory holds one wave: `registers` VGPRs of 32 dwords, then s0..s23, VCC, EXEC,
M0, SCC and the number of the case, then (if asked for) 1 KiB of LDS. The kernel takes two pointers, to the input and output
blocks; the workgroup's number chooses the block.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from .wave import SGPRS

LDS_BYTES = 1024
SCALAR_BYTES = 128
TARGET = "gfx1151"

# v60 = 4 * lane, v61 and v62 scratch; s94:95 address of the case's code, s96:97 input block, s98:99 output block,
# s100..s103 VCC, EXEC, M0, SCC. Every case's code starts at a multiple of CASE_BYTES.
MACROS = f"""
.amdgcn_target "amdgcn-amd-amdhsa--{TARGET}"
.amdhsa_code_object_version 5
.text
.macro enter registers, lds, start, size
    s_load_b128 s[96:99], s[0:1], 0x0
    v_lshlrev_b32_e32 v60, 2, v0
    s_waitcnt lgkmcnt(0)
    s_mul_i32 s100, s2, \\registers * 128 + {SCALAR_BYTES} + \\lds
    s_add_u32 s96, s96, s100
    s_addc_u32 s97, s97, 0
    s_add_u32 s98, s98, s100
    s_addc_u32 s99, s99, 0
    s_load_b512 s[0:15], s[96:97], \\registers * 128
    s_load_b256 s[16:23], s[96:97], \\registers * 128 + 64
    s_load_b128 s[100:103], s[96:97], \\registers * 128 + 96
    s_load_b32 s93, s[96:97], \\registers * 128 + 112
    s_getpc_b64 s[94:95]
here_\\@:
    s_waitcnt lgkmcnt(0)
    s_mul_i32 s93, s93, \\size
    s_add_u32 s93, s93, \\start-here_\\@
    s_add_u32 s94, s94, s93
    s_addc_u32 s95, s95, 0
    .set i, 0
    .rept \\registers
    global_load_b32 v[i], v60, s[96:97] offset:i*128
    .set i, i + 1
    .endr
    s_waitcnt vmcnt(0) lgkmcnt(0)
    .if \\lds
    s_add_u32 s96, s96, \\registers * 128 + {SCALAR_BYTES}
    s_addc_u32 s97, s97, 0
    .set i, 0
    .rept \\lds / 128
    global_load_b32 v61, v60, s[96:97] offset:i*128
    s_waitcnt vmcnt(0)
    ds_store_b32 v60, v61 offset:i*128
    .set i, i + 1
    .endr
    s_waitcnt lgkmcnt(0)
    .endif
    s_mov_b32 vcc_lo, s100
    s_mov_b32 m0, s102
    s_cmp_lg_u32 s103, 0
    s_mov_b32 exec_lo, s101
    s_setpc_b64 s[94:95]
.endm
.macro leave registers, lds
    s_mov_b32 s101, exec_lo
    s_mov_b32 exec_lo, -1
    s_cselect_b32 s103, 1, 0
    s_mov_b32 s100, vcc_lo
    s_mov_b32 s102, m0
    s_waitcnt vmcnt(0) lgkmcnt(0)
    s_waitcnt_vscnt null, 0x0
    .set i, 0
    .rept \\registers
    global_store_b32 v60, v[i], s[98:99] offset:i*128
    .set i, i + 1
    .endr
    s_add_u32 s98, s98, \\registers * 128
    s_addc_u32 s99, s99, 0
    .set i, 0
    .rept \\lds / 128
    ds_load_b32 v61, v60 offset:i*128
    s_waitcnt lgkmcnt(0)
    global_store_b32 v60, v61, s[98:99] offset:{SCALAR_BYTES}+i*128
    .set i, i + 1
    .endr
    s_mov_b32 exec_lo, 1
    v_mov_b32_e32 v61, 0
    .set i, 0
    .rept {SGPRS}
    v_mov_b32_e32 v62, s[i]
    global_store_b32 v61, v62, s[98:99] offset:i*4
    .set i, i + 1
    .endr
    .set i, 0
    .rept 4
    v_mov_b32_e32 v62, s[100+i]
    global_store_b32 v61, v62, s[98:99] offset:{4 * SGPRS}+i*4
    .set i, i + 1
    .endr
    s_endpgm
.endm
"""

KERNEL = """
.globl {name}
.p2align 8
.type {name},@function
{name}:
    enter {registers}, {lds}, start_{name}, {case_bytes}
.p2align 8
start_{name}:
{body}
leave_{name}:
    leave {registers}, {lds}
.size {name}, .-{name}
.section .rodata
.p2align 6
.amdhsa_kernel {name}
    .amdhsa_user_sgpr_count 2
    .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .amdhsa_system_sgpr_workgroup_id_x 1
    .amdhsa_system_vgpr_workitem_id 0
    .amdhsa_wavefront_size32 1
    .amdhsa_next_free_vgpr 64
    .amdhsa_next_free_sgpr 104
    .amdhsa_reserve_vcc 1
    .amdhsa_kernarg_size 16
    .amdhsa_group_segment_fixed_size {lds}
    .amdhsa_private_segment_fixed_size {scratch}
    .amdhsa_float_denorm_mode_32 3
    .amdhsa_float_denorm_mode_16_64 3
    .amdhsa_ieee_mode 1
    .amdhsa_dx10_clamp 1
.end_amdhsa_kernel
.text
"""

METADATA = """    - .name: {name}
      .symbol: {name}.kd
      .kernarg_segment_size: 16
      .kernarg_segment_align: 8
      .group_segment_fixed_size: {lds}
      .private_segment_fixed_size: {scratch}
      .wavefront_size: 32
      .sgpr_count: 106
      .vgpr_count: 64
      .max_flat_workgroup_size: 32
      .args:
        - {{ .offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global }}
        - {{ .offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global }}
"""


def tool(name: str) -> str:
    """A tool of LLVM 19 or newer: beside STRATA_CLANG, or by its Debian name."""
    clang = os.environ.get("STRATA_CLANG")
    if clang and Path(clang).with_name(name).exists():
        return str(Path(clang).with_name(name))
    for candidate in [f"{name}-{version}" for version in (19, 20, 21, 22)] + [name]:
        path = shutil.which(candidate)
        if path:
            return path
    raise FileNotFoundError(f"{name} of LLVM 19 is needed to test the emulator: apt-get install clang-19 lld-19 llvm-19")


def kernel_source(groups) -> str:
    """Assembly of one code object with a kernel for every group (name, cases, registers, lds, scratch)."""
    parts = [MACROS]
    metadata = [".amdgpu_metadata\n  amdhsa.version: [1, 2]\n  amdhsa.target: amdgcn-amd-amdhsa--gfx1151\n  amdhsa.kernels:\n"]
    for group in groups:
        # no instruction is longer than 16 bytes; the branch takes 4
        longest = max(16 * len(case.code) + 4 for case in group.cases)
        case_bytes = 1 << (longest - 1).bit_length()
        body = []
        for case in group.cases:
            body += (
                [f".p2align {case_bytes.bit_length() - 1}"] + [f"    {line}" for line in case.code] + [f"    s_branch leave_{group.name}"]
            )
        fields = {
            "name": group.name,
            "registers": group.registers,
            "lds": LDS_BYTES if group.lds else 0,
            "scratch": group.scratch,
            "case_bytes": case_bytes,
            "body": "\n".join(body),
        }
        parts.append(KERNEL.format(**fields))
        metadata.append(METADATA.format(**fields))
    return "".join(parts + metadata + [".end_amdgpu_metadata\n"])


def encodable(lines: list[str]) -> list[bool]:
    """Which of the instructions the assembler accepts for the target."""
    command = [tool("llvm-mc"), "-triple=amdgcn-amd-amdhsa", f"-mcpu={TARGET}", "-filetype=null"]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
    bad = {int(line.split(":")[1]) for line in done.stderr.splitlines() if line.startswith("<stdin>:") and ": error:" in line}
    return [n + 1 not in bad for n in range(len(lines))]
