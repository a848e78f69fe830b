"""How fast the emulator executes the project's own kernels: wave instructions a second of CPU time of one core.

    python tests/bench/bench_emulator.py [--seconds S] [--markdown]

Each row is one ggml operation on the emulated device, as a model would run it (a quantized product quantizes its activations first). CPU time
is that of all the process's threads, so the figure does not depend on how many cores there are.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ["STRATA_RUNTIME"] = "emulator"

from support.ggml import lib  # noqa: E402
from support.hip import emulator  # noqa: E402
from support.ops import Graph, Quantized  # noqa: E402


def product(weights: str, rows: int, k: int, columns: int):
    """MUL_MAT of weights [rows][k] of a type by f32 activations [columns][k]."""
    def build(graph: Graph, rng):
        w = Quantized(rng.standard_normal((rows, k), np.float32), weights) if weights != "f16" \
            else rng.standard_normal((rows, k), np.float32).astype(np.float16)
        return graph.mul_mat(graph.input(w), graph.input(rng.standard_normal((columns, k), np.float32)))
    return build


def attention(head: int, heads: int, key_heads: int, queries: int, keys: int):
    """FLASH_ATTN_EXT with f16 keys and values."""
    def build(graph: Graph, rng):
        q = graph.input(rng.standard_normal((1, heads, queries, head), np.float32))
        k, v = (graph.input(rng.standard_normal((1, key_heads, keys, head), np.float32).astype(np.float16)) for _ in range(2))
        mask = graph.input(np.zeros((1, 1, queries, keys), np.float16))
        return graph.flash_attn_ext(q, k, v, mask, head ** -0.5, 0.0, 0.0)
    return build


CASES = {
    **{f"mat-vec dot4 {w}, 1024x2048": product(w, 1024, 2048, 1) for w in ("q4_0", "q4_1", "q8_0", "q4_K", "q6_K")},
    **{f"mat-vec dot4 {w}, 1024x2048x4": product(w, 1024, 2048, 4) for w in ("q8_0", "q4_K")},
    **{f"WMMA iu8 {w}, 512x1024x128": product(w, 512, 1024, 128) for w in ("q4_1", "q8_0", "q4_K", "q6_K")},
    **{f"WMMA {w}, 512x1024x64": product(w, 512, 1024, 64) for w in ("f16", "bf16")},
    "WMMA f16 attention, D 64, 128x512": attention(64, 8, 2, 128, 512),
    "WMMA f16 attention, D 256, 128x512": attention(256, 4, 1, 128, 512),
}


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(build, seconds: float) -> tuple[int, float, float]:
    """Wave instructions a run, CPU seconds a run, wall seconds a run; the first run, which plans and decodes, is not counted."""
    hip = emulator()
    with Graph() as graph:
        output = build(graph, np.random.default_rng(1))
        graph.run(output)
        nodes = graph.graph(output)

        def run():
            assert lib.ggml_backend_graph_compute(graph.backend, nodes) == lib.GGML_STATUS_SUCCESS
            hip.synchronize()

        run()
        before, cpu, wall, count = hip.counters()[2], cpu_seconds(), time.perf_counter(), 0
        while cpu_seconds() - cpu < seconds:
            run()
            count += 1
        return (hip.counters()[2] - before) // count, (cpu_seconds() - cpu) / count, (time.perf_counter() - wall) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="CPU seconds a row (default 1)")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    options = parser.parse_args()
    heads = ("operation", "wave instructions", "ns/instruction", "M instructions/s/core", "ms")
    form = "| {:34} | {:>17} | {:>14} | {:>21} | {:>6} |" if options.markdown else "{:34} {:>17} {:>14} {:>21} {:>6}"
    print(form.format(*heads))
    if options.markdown:
        print("|---|--:|--:|--:|--:|")
    for name, build in CASES.items():
        instructions, cpu, wall = measure(build, options.seconds)
        print(form.format(name, f"{instructions:,}", f"{cpu / instructions * 1e9:.1f}", f"{instructions / cpu / 1e6:.1f}",
                          f"{wall * 1e3:.1f}"), flush=True)


if __name__ == "__main__":
    main()
