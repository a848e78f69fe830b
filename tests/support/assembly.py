"""One kernel in assembler text, for tests that want exact instructions.

At entry s[0:1] hold the address of the arguments, s2, s3, s4 the workgroup's number in x, y, z, and v0 the work-item's number in x (of
a block with one dimension)."""
from __future__ import annotations

from .compile import assemble

_TEXT = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx1151"
.text
.p2align 8
.type {name},@function
{name}:
{body}
    s_endpgm
.size {name}, .-{name}
.globl {name}
.rodata
.p2align 6
.amdhsa_kernel {name}
    .amdhsa_next_free_vgpr {vgprs}
    .amdhsa_next_free_sgpr 32
    .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .amdhsa_system_sgpr_workgroup_id_x 1
    .amdhsa_system_sgpr_workgroup_id_y 1
    .amdhsa_system_sgpr_workgroup_id_z 1
    .amdhsa_wavefront_size32 1
    .amdhsa_float_denorm_mode_32 3
    .amdhsa_group_segment_fixed_size {lds}
    .amdhsa_private_segment_fixed_size {scratch}
    .amdhsa_kernarg_size {arguments}
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx1151
amdhsa.kernels:
  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: {arguments}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: {scratch}
    .wavefront_size: 32
    .sgpr_count: 32
    .vgpr_count: {vgprs}
    .max_flat_workgroup_size: 1024
    .args:
{fields}
...
.end_amdgpu_metadata
"""


def kernel_image(body: str, *, pointers: int = 2, vgprs: int = 32, lds: int = 0, scratch: int = 0, name: str = "probe") -> bytes:
    """The code object of a kernel with this body (without s_endpgm) and so many pointer arguments."""
    fields = "\n".join(f"      - {{.offset: {8 * n}, .size: 8, .value_kind: global_buffer, .address_space: global}}" for n in range(pointers))
    return assemble(_TEXT.format(name=name, body=body, vgprs=vgprs, lds=lds, scratch=scratch, arguments=8 * pointers, fields=fields))
