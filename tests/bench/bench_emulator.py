"""How fast the emulator executes the project's own kernels: wave instructions a second of CPU time of one core.

    python tests/bench/bench_emulator.py [--seconds S] [--markdown]

CPU time is that of all the process's threads, so the figure does not depend on how many cores there are.
"""

from __future__ import annotations

import argparse
import resource
import struct
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.compile import ROOT, compile_hip  # noqa: E402
from support.hip import Hip, emulator  # noqa: E402

BLOCKS = {"q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34), "q4_K": (256, 144), "q5_K": (256, 176),
          "q6_K": (256, 210)}
ONE = (1, 1 << 31, 0)  # fast_divisor of 1


def batches() -> bytes:
    return struct.pack("<QQ9I4x", 0, 0, *ONE, *ONE, *ONE)


def random_bytes(rng, count: int) -> np.ndarray:
    """Bytes that make finite scales and values in every weight format: as f16 and bf16 below 2."""
    return rng.integers(0, 0x3C, count, np.uint8)


def family(path: str) -> bytes:
    """The code object of a kernel file."""
    source = ROOT / "ggml_hip_ext" / path
    return compile_hip(f'#include "{source.name}"\n', flags=("-I", str(source.parent)))


def quantized(hip: Hip, rng, path: str, weights: str, kernel: str, rows: int, columns: int, k: int, grid, block: int):
    """A launch of a quantized product, weights [rows][k] by activations [columns][k]."""
    values, size = BLOCKS[weights]
    stride = k // values * size
    arguments = struct.pack("<QQQQQ", hip.upload(random_bytes(rng, rows * stride)),
                            hip.upload(rng.integers(-127, 128, columns * k, np.int8)),
                            hip.upload(rng.standard_normal(columns * k // 32 * 2, np.float32)), hip.malloc(4 * rows * columns), stride)
    arguments += batches() + struct.pack("<III4x", rows, columns, k)
    function = hip.kernel(family(path), kernel)
    return lambda: hip.launch(function, grid, block, arguments)


def floats(hip: Hip, rng, kernel: str, path: str, rows: int, columns: int, k: int, grid, block: int):
    """A launch of a product of 16-bit weights and f32 activations."""
    arguments = struct.pack("<QQQQQQQ", hip.upload(random_bytes(rng, rows * k * 2)),
                            hip.upload(rng.standard_normal(columns * k, np.float32)), hip.malloc(4 * rows * columns), 2 * k, 4 * k, 0, 0)
    arguments += batches() + struct.pack("<III4x", rows, columns, k)
    function = hip.kernel(family(path), kernel)
    return lambda: hip.launch(function, grid, block, arguments)


def cases(hip: Hip, rng):
    """Name and launch of each row of the table."""
    for weights in ("q4_1", "q8_0", "q4_K", "q6_K"):
        rows, k = 1024, 2048
        yield (f"mat-vec dot4 {weights}, {rows}x{k}",
               quantized(hip, rng, f"matvec/mul_mat_vec_{weights}.hip", weights, f"mul_mat_vec_{weights}_c1_r1", rows, 1, k, rows // 4,
                         128))
    for weights in ("q8_0", "q4_K", "q6_K"):
        rows, k = 512, 1024
        yield (f"WMMA iu8 {weights}, {rows}x{k}x128",
               quantized(hip, rng, f"matmul/mul_mat_{weights}.hip", weights, f"mul_mat_{weights}_j128", rows, 128, k, rows // 128, 256))
    for weights in ("f16", "bf16"):
        rows, k = 512, 1024
        yield (f"WMMA {weights}, {rows}x{k}x64",
               floats(hip, rng, f"mul_mat_{weights}_f32_j64", f"matmul/mul_mat_{weights}.hip", rows, 64, k, rows // 128, 128))


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(hip: Hip, launch, seconds: float) -> tuple[int, float, float]:
    """Wave instructions a launch, CPU seconds a launch, wall seconds a launch; the first launch, which decodes, is not counted."""
    launch()
    hip.synchronize()
    before, cpu, wall, count = hip.counters()[2], cpu_seconds(), time.perf_counter(), 0
    while cpu_seconds() - cpu < seconds:
        launch()
        hip.synchronize()
        count += 1
    return (hip.counters()[2] - before) // count, (cpu_seconds() - cpu) / count, (time.perf_counter() - wall) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU seconds a kernel (default 1)")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    options = parser.parse_args()
    hip, rng = emulator(), np.random.default_rng(1)
    heads = ("kernel", "wave instructions", "ns/instruction", "M instructions/s/core", "ms/launch")
    form = "| {:36} | {:>17} | {:>14} | {:>21} | {:>9} |" if options.markdown else "{:36} {:>17} {:>14} {:>21} {:>9}"
    print(form.format(*heads))
    if options.markdown:
        print("|---|--:|--:|--:|--:|")
    for name, launch in cases(hip, rng):
        instructions, cpu, wall = measure(hip, launch, options.seconds)
        print(form.format(name, f"{instructions:,}", f"{cpu / instructions * 1e9:.1f}", f"{instructions / cpu / 1e6:.1f}",
                          f"{wall * 1e3:.1f}"), flush=True)


if __name__ == "__main__":
    main()
