"""The unmodified stock ggml-hip backend as a guest of the emulator: ggml's own operator tests pass on it, and its kernels execute
as many instructions of each kind as they do in another emulator.

The backend is built by tests/bench/peer/build_stock_hip.py, which takes a while; without it these tests are skipped. What of them
needs no stock backend (the mnemonics of its kernels) is in test_instruction_coverage.py.
"""

import csv
import hashlib
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from oracle import coverage, suite

from strata_hip import bench_ops, op_tests
from support import peer
from support.libraries import emulator_library
from support.paths import ROOT

LIBRARY = peer.library()
pytestmark = [pytest.mark.full,
              pytest.mark.skipif(LIBRARY is None, reason="stock ggml-hip is not built: run tests/bench/peer/build_stock_hip.py")]

# op -> cases tried: the first by hash among those that are not too large. 0: all of them; test-backend-ops lists no cases of graphs
# that backends fuse.
SAMPLE = {"MUL_MAT": 120, "MUL_MAT_ID": 40, "FLASH_ATTN_EXT": 60, "GATED_DELTA_NET": 36, "SSM_CONV": 40, "SSM_SCAN": 8, "NORM": 20,
          "RMS_NORM": 20, "L2_NORM": 10, "GROUP_NORM": 4, "TOP_K": 20, "TOPK_MOE": 0, "ARGSORT": 20, "SOFT_MAX": 30, "ROPE": 30,
          "GET_ROWS": 20, "SET_ROWS": 30, "CPY": 40, "SOLVE_TRI": 8, "OUT_PROD": 16, "CONV_2D": 8, "SWIGLU": 10, "GEGLU": 6, "CUMSUM": 8}
LARGEST = {"MUL_MAT": 2**22, "MUL_MAT_ID": 2**22, "FLASH_ATTN_EXT": 2**22}
SECONDS = 1500


def run(*arguments: str, **environment: str) -> str:
    """The output of test-backend-ops on the stock backend."""
    program, = op_tests.tools(op_tests.PROGRAM)
    result = subprocess.run([str(program), *arguments, "-b", "ROCm0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            timeout=SECONDS, errors="replace",
                            env=os.environ | {"LD_PRELOAD": str(emulator_library()), "GGML_BACKEND_PATH": str(LIBRARY)} | environment)
    return re.sub(r"\x1b\[[0-9;]*m", "", result.stdout)


def size(parameters: str) -> int:
    """Roughly the multiplications of a case, or its elements."""
    values = {name: math.prod(max(1, abs(int(n))) for n in re.findall(r"-?\d+", value))
              for name, value in re.findall(r"(\w+)=(\[[-\d,]*\]|-?\d+)(?=,|$)", parameters)}

    def product(*names: str) -> int:
        return math.prod(values.get(name, 1) for name in names)

    if {"m", "n", "k"} <= values.keys():
        return product("m", "n", "k", "bs", "nr", "n_used", "n_mats")
    if {"hsk", "kv", "nb"} <= values.keys():
        return product("hsk", "nh", "nr23", "kv", "nb")
    return max(values.values(), default=1)


def cases(op: str) -> list[str]:
    """Names of cases of an op that the stock backend takes."""
    table = csv.DictReader(line for line in run("support", "-o", op, "--output", "csv").splitlines() if line.startswith('"'))
    names = [f"{row['op_name']}({row['op_params']})" for row in table
             if row["supported"] == "1" and size(row["op_params"]) <= LARGEST.get(op, 2**20)]
    return sorted(set(names), key=lambda name: hashlib.sha256(name.encode()).hexdigest())


@pytest.mark.parametrize("op", SAMPLE)
def test_eval_cases(op):
    chosen = cases(op)[:SAMPLE[op]] if SAMPLE[op] else [op]
    assert chosen, f"the stock backend takes no case of {op}"
    output = run("test", "-o", ",".join(chosen), STRATA_EMULATOR_MEMORY="8G")
    passed = re.search(r"(\d+)/(\d+) tests passed", output)
    failed = [line.strip() for line in output.splitlines() if "FAIL" in line or "strata-emulator:" in line]
    assert passed and not failed, "\n".join(failed) or output[-3000:]
    assert int(passed[1]) == int(passed[2]) >= max(1, len(chosen) // 2)


GRAPH = """
import ctypes, sys
import numpy as np
from support.ggml import TYPES, ffi, lib

assert lib.ggml_backend_load(sys.argv[1].encode())
backend = lib.ggml_backend_dev_init(lib.ggml_backend_dev_by_name(b"ROCm0"), ffi.NULL)
ctx = lib.ggml_init(ffi.new("struct ggml_init_params *", {"mem_size": 1 << 20, "no_alloc": True})[0])
b, d = lib.ggml_new_tensor_2d(ctx, 0, 256, 1), lib.ggml_new_tensor_2d(ctx, 0, 64, 1)
a = lib.ggml_new_tensor_2d(ctx, TYPES["f32"], 256, 64)
result = lib.ggml_rms_norm(ctx, lib.ggml_add(ctx, lib.ggml_mul_mat(ctx, a, b), d), 1e-6)
graph = lib.ggml_new_graph(ctx)
lib.ggml_build_forward_expand(graph, result)
buffer = lib.ggml_backend_alloc_ctx_tensors(ctx, backend)
rng = np.random.default_rng(1)

def fill(tensor, *shape):
    values = rng.standard_normal(shape, np.float32)
    lib.ggml_backend_tensor_set(tensor, ffi.cast("void *", values.ctypes.data), 0, values.nbytes)
    return values.astype(np.float64)

weights = fill(a, 64, 256)
for step in range(6):
    wanted = (fill(b, 1, 256) @ weights.T + fill(d, 1, 64))[0]
    wanted /= np.sqrt(np.mean(wanted**2) + 1e-6)
    assert lib.ggml_backend_graph_compute(backend, graph) == 0
    got = np.zeros(64, np.float32)
    lib.ggml_backend_tensor_get(result, ffi.cast("void *", got.ctypes.data), 0, got.nbytes)
    assert np.abs(got - wanted).max() < 1e-4, step
"""

MODEL = """
import sys
import numpy as np
import llama_cpp
from strata_hip import models, plugin

if sys.argv[1] != "cpu":
    assert plugin.ggml().ggml_backend_load(sys.argv[1].encode())
llm = llama_cpp.Llama(str(models.smollm2()), n_gpu_layers=0 if sys.argv[1] == "cpu" else -1, n_ctx=128, logits_all=True, verbose=False)
tokens = llm.tokenize(b"The history of computing began long before the modern computer: people have counted with their fingers, with")
llm.eval(tokens)
for token in llm.tokenize(b" pebbles and with beads.", add_bos=False):
    llm.eval([token])
np.save(sys.argv[2], llm.scores[:llm.n_tokens])
"""


def run_script(script: str, *arguments: str, guest: bool = True) -> str:
    """Python in a process of its own, in which the emulator is the HIP of whoever asks for it."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]))
    if guest:
        environment["LD_PRELOAD"] = str(emulator_library())
    result = subprocess.run([sys.executable, "-c", script, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, timeout=SECONDS)
    assert result.returncode == 0, result.stdout[-3000:]
    return result.stdout


def test_captured_graphs():
    """The stock backend captures a graph when it sees it again, and launches that from then on."""
    assert "warmup complete" in run_script(GRAPH, str(LIBRARY))


def test_a_model(tmp_path):
    """Prompt and decode of a Q4_1 model on the stock backend, against llama.cpp's CPU backend. Stock sums the activations of a block
    before they are rounded to 8 bits, the CPU after: hence the distance. What it may change: the likeliest token where the two best
    logits are closer than four deviations of their difference, and distributions by a divergence of about half the logits' variance."""
    run_script(MODEL, str(LIBRARY), str(tmp_path / "stock.npy"))
    run_script(MODEL, "cpu", str(tmp_path / "cpu.npy"), guest=False)
    stock, cpu = (np.load(tmp_path / f"{name}.npy").astype(np.float64) for name in ("stock", "cpu"))
    assert np.sum((stock - cpu)**2) / np.sum(cpu**2) < 2e-2
    difference = stock - cpu
    difference -= difference.mean(1, keepdims=True)  # of all logits alike: no difference
    variance = np.mean(difference**2)
    second, best = np.sort(cpu, 1)[:, -2:].T
    clear = best - second > 4 * np.sqrt(2 * variance)
    assert clear.sum() >= 4 and (stock.argmax(1) == cpu.argmax(1))[clear].all()
    logs = [logits - np.logaddexp.reduce(logits, 1, keepdims=True) for logits in (cpu, stock)]
    assert np.mean(np.sum(np.exp(logs[0]) * (logs[0] - logs[1]), 1)) < variance


# (case of bench-ops, part of the kernel's name): waves, then instructions. Counted in an emulator that shares nothing with this one, with
# the same compiler; the wait class holds s_waitcnt, s_delay_alu and their like, without s_clause.
CLASSES = ("waves", "total", "valu", "vopd", "dot", "trans", "wmma", "salu", "smem", "vmem", "lds", "branch", "wait")
COUNTED = {
    ("MUL_MAT(q8_0 64x2048, 1 col)", "quantize_q8_1"): (64, 12544, 4800, 448, 0, 128, 0, 2752, 448, 192, 640, 256, 2496),
    ("MUL_MAT(q8_0 64x2048, 1 col)", "mul_mat_vec_q"): (64, 27008, 9792, 320, 1024, 0, 0, 3776, 576, 2624, 320, 896, 5888),
    ("MUL_MAT(q4_K 64x2048, 1 col)", "mul_mat_vec_q"): (64, 37184, 18304, 320, 2048, 0, 0, 3264, 576, 3136, 320, 640, 7680),
    ("MUL_MAT(q6_K 64x2048, 1 col)", "mul_mat_vec_q"): (64, 45440, 19712, 256, 1024, 0, 0, 3392, 576, 4672, 320, 896, 12160),
    ("GATED_DELTA_NET(H=4 S=128 T=1)", "gated_delta_net"): (512, 153600, 46592, 1536, 0, 512, 0, 54272, 4096, 10240, 5120, 2560, 24064),
    ("GATED_DELTA_NET(H=4 S=128 T=17)", "gated_delta_net"):
        (512, 1218560, 431616, 17920, 0, 8704, 0, 218112, 4096, 108544, 87040, 27136, 294400),
    ("MUL_MAT(q8_0 256x512, 128 col)", "mul_mat_q"): (16, 67344, 24984, 18160, 0, 0, 4096, 2160, 128, 3328, 8008, 496, 5216),
}


@pytest.fixture(scope="module")
def counted():
    """Case -> what the stock backend's kernels executed."""
    names = {case for case, _ in COUNTED}
    rows = bench_ops.compare([case for case in bench_ops.cases() if case.name in names], LIBRARY)
    return {f"{row.op}({row.shape})": row.stock.kernels for row in rows}


@pytest.mark.parametrize("case,kernel", COUNTED)
def test_instruction_counts(counted, case, kernel):
    found = [counts for name, counts in counted[case].items() if kernel in name and "quantize_mmq" not in name]
    assert len(found) == 1, list(counted[case])
    assert {name: found[0].get(name, 0) for name in CLASSES} == dict(zip(CLASSES, COUNTED[case, kernel]))


def mnemonics_of(library: Path, folder: Path) -> set[str]:
    """The mnemonics of all its kernels, the halves of VOPD pairs apart."""
    found: set[str] = set()
    for number, image in enumerate(peer.code_objects(library)):
        file = folder / f"{number}.co"
        file.write_bytes(image)
        found |= set(coverage.mnemonics(file))
        file.unlink()
    return found


def test_the_list_of_mnemonics_is_the_stock_backends(tmp_path):
    assert mnemonics_of(LIBRARY, tmp_path) == suite.stock_mnemonics()


if __name__ == "__main__":  # rewrites the list
    names = mnemonics_of(LIBRARY, Path(tempfile.mkdtemp()))
    suite.STOCK_MNEMONICS.write_text(suite.STOCK_HEADER + "\n".join(sorted(names)) + "\n")
