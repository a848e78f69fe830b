"""Kernels compile for cards without matrix instructions (gfx1030), for other RDNA 3 (gfx1100) and with waves of 64 lanes (gfx906); what
takes the place of matrix instructions there fits their registers too."""
import re
import subprocess

import pytest

from support.compile import HIP_FLAGS, find_clang
from support.paths import ROOT, llama_cpp_source

KERNELS = ROOT / "ggml_hip_ext"
# What MUL_MAT and FLASH_ATTN_EXT are without matrix instructions.
WITHOUT_WMMA = ["attention/flash_attn_any", "attention/flash_attn_vector", "matvec/mul_mat_vec_f", "matvec/mul_mat_vec_q4_0", "matvec/quantize_q8_1"]
ALL = sorted(str(path.relative_to(KERNELS).with_suffix("")) for path in KERNELS.rglob("*.hip"))


def compile_for(target: str, source: str, tmp_path, *flags: str) -> str:
    """The metadata of a kernel source compiled for a target."""
    made = tmp_path / "kernel.co"
    done = subprocess.run([find_clang(), *HIP_FLAGS, "-isystem", str(llama_cpp_source() / "ggml" / "src"), "-Wall", "-Wextra", "-Werror", *flags,
                           f"--offload-arch={target}", "-o", str(made), str(KERNELS / f"{source}.hip")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    readelf = subprocess.run([find_clang(), "--print-prog-name=llvm-readelf"], capture_output=True, text=True, check=True).stdout.strip()
    return subprocess.run([readelf, "--notes", str(made)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("target", ["gfx1030", "gfx906"])
def test_attention_without_matrix_instructions(target, tmp_path):
    """The same kernel with waves of 32 and of 64 lanes; nothing goes to memory for lack of registers."""
    notes = compile_for(target, "attention/flash_attn_any", tmp_path)
    assert set(re.findall(r"\.wavefront_size:\s+(\d+)", notes)) == {"64" if target == "gfx906" else "32"}
    assert set(re.findall(r"\.(?:vgpr_spill_count|private_segment_fixed_size):\s+(\d+)", notes)) == {"0"}


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("source", WITHOUT_WMMA)
def test_without_matrix_instructions(source, tmp_path):
    compile_for("gfx1030", source, tmp_path)
    compile_for("gfx906", source, tmp_path)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("source", ALL)
def test_all(source, tmp_path):
    """Quickly: without optimization for speed."""
    for target in ("gfx1030", "gfx1100", "gfx906"):
        compile_for(target, source, tmp_path, "-O1")
