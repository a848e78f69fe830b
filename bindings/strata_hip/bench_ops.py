"""`strata-hip bench-ops`: the same operators on stock ggml-hip and on this backend, both on the emulator, in one process.

What is compared is counted, not timed: wave instructions, launches, bytes that the kernels ask of memory, and where the
emulator models it, time. Stock ggml-hip is built by tests/bench/peer/build_stock_hip.py. Products that it gives to hipBLAS are not
its kernels: the emulator computes them on the CPU, nothing is counted, and the row says so.
"""
import argparse
import csv
import ctypes
import dataclasses
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, List, Optional, Sequence, TextIO

import numpy as np

from . import models, pictures, plugin
from .errors import StrataError
from .ggml import TYPES, ffi, lib
from .profile import sampled
from .quantized import quantize

BACKENDS = {"stock": "ROCm0", "ours": "STRATA0"}
LINE = 128  # bytes of a line of the device's caches


class Builder:
    """Makes the tensors of a case, and remembers how those that are inputs are filled."""

    def __init__(self, ctx: Any):
        self.ctx = ctx
        self.inputs: List[Any] = []

    def tensor(self, type: str, *ne: int, fill: Optional[Callable[[np.random.Generator], np.ndarray]] = None) -> Any:
        """An input; float values unless `fill` gives others."""
        full = [*ne, 1, 1, 1][:4]
        made = lib.ggml_new_tensor_4d(self.ctx, TYPES[type], *full)
        self.inputs.append((made, type, full, fill))
        return made

    def __getattr__(self, name: str) -> Any:
        """g.mul_mat(a, b) is ggml_mul_mat(ctx, a, b)."""
        function = getattr(lib, f"ggml_{name}")
        return lambda *arguments: function(self.ctx, *arguments)


@dataclasses.dataclass(frozen=True)
class Case:
    op: str
    shape: str
    build: Callable[[Builder], Any]
    cost: float  # million instructions, about; decides what belongs to the quick set

    @property
    def name(self) -> str:
        return f"{self.op}({self.shape})"


def _mul_mat(type: str, m: int, n: int, k: int) -> Case:
    return Case("MUL_MAT", f"{type} {m}x{k}, {n} col", lambda g: g.mul_mat(g.tensor(type, k, m), g.tensor("f32", k, n)),
                m * k * (n / 3e6 if n <= 8 else n / 2e8))


def _mul_mat_id(type: str, experts: int, used: int, m: int, n: int, k: int) -> Case:
    def ids(rng: np.random.Generator) -> np.ndarray:
        return np.stack([rng.permutation(experts)[:used] for _ in range(n)]).astype(np.int32)

    def build(g: Builder) -> Any:
        # every slot of a token reads the same activation, as gate and up projections do
        return g.mul_mat_id(g.tensor(type, k, m, experts), g.tensor("f32", k, 1, n), g.tensor("i32", used, n, fill=ids))
    return Case("MUL_MAT_ID", f"{type} {m}x{k}, {experts} experts, top-{used}, {n} tok", build, m * k * used * n / (3e6 if n <= 8 else 1e8))


def _attention(d: int, heads: int, kv_heads: int, tokens: int, depth: int, type: str = "f16", tile: bool = False) -> Case:
    """tile: stock takes its tile kernel where it would take its matrix kernel."""
    def mask(rng: np.random.Generator) -> np.ndarray:
        rows = (tokens + 63) // 64 * 64  # ggml asks for it
        seen = np.arange(depth)[None, :] <= np.arange(rows)[:, None] + (depth - tokens)
        return np.where(seen, 0.0, -np.inf).astype(np.float16)

    def build(g: Builder) -> Any:
        q = g.tensor("f32", d, tokens, heads)
        if tile:  # Stock asks for strides of multiples of 16 bytes, even of a dimension of one, where nobody uses the stride.
            q = g.view_4d(q, d, tokens, heads, 1, q.nb[1], q.nb[2], q.nb[3] + 4, 0)
        k, v = g.tensor(type, d, depth, kv_heads), g.tensor(type, d, depth, kv_heads)
        return g.flash_attn_ext(q, k, v, g.tensor("f16", depth, (tokens + 63) // 64 * 64, fill=mask), d**-0.5, 0.0, 0.0)
    return Case("FLASH_ATTN_EXT", f"{type} D={d}, {heads}/{kv_heads} heads, {tokens} tok, {depth} keys" + (", stock's tiles" if tile else ""), build,
                d * heads * max(tokens, 8) * depth / 1e7)


def _gated_delta_net(heads: int, tokens: int, size: int = 128) -> Case:
    def unit(rng: np.random.Generator) -> np.ndarray:
        """About as long as models have them: longer keys make the states grow without end."""
        return (rng.standard_normal((tokens, heads, size)) * size**-0.5).astype(np.float32)

    def build(g: Builder) -> Any:
        q, k = (g.tensor("f32", size, heads, tokens, fill=unit) for _ in range(2))
        v = g.tensor("f32", size, heads, tokens)
        gate = g.tensor("f32", 1, heads, tokens, fill=lambda rng: -rng.uniform(0, 1, (tokens, heads)).astype(np.float32))
        beta = g.tensor("f32", 1, heads, tokens, fill=lambda rng: rng.uniform(0, 1, (tokens, heads)).astype(np.float32))
        return g.gated_delta_net(q, k, v, gate, beta, g.tensor("f32", size, size, heads), 1)
    return Case("GATED_DELTA_NET", f"H={heads} S={size} T={tokens}", build, heads * (tokens + 1) * size**2 / 1e6)


def _ssm_conv(channels: int, tokens: int) -> Case:
    return Case("SSM_CONV", f"{channels} channels, {tokens} tok",
                lambda g: g.ssm_conv(g.tensor("f32", 3 + tokens, channels, 1), g.tensor("f32", 4, channels)), channels * tokens / 1e5)


def _rows(op: str, make: Callable[..., Any], width: int, rows: int, inputs: int = 1) -> Case:
    return Case(op, f"{width} x {rows}", lambda g: make(g, *(g.tensor("f32", width, rows) for _ in range(inputs))), width * rows / 1e5)


def _rope(size: int, heads: int, tokens: int) -> Case:
    def build(g: Builder) -> Any:
        positions = g.tensor("i32", tokens, fill=lambda rng: np.arange(tokens, dtype=np.int32))
        return g.rope_ext(g.tensor("f32", size, heads, tokens), positions, ffi.NULL, size, 2, 0, 10000.0, 1.0, 0.0, 1.0, 32.0, 1.0)
    return Case("ROPE", f"neox D={size}, {heads} heads, {tokens} tok", build, size * heads * tokens / 1e5)


def _get_rows(type: str, width: int, table: int, rows: int) -> Case:
    def ids(rng: np.random.Generator) -> np.ndarray:
        return rng.integers(0, table, rows).astype(np.int32)
    return Case("GET_ROWS", f"{type} {rows} of {table} x {width}",
                lambda g: g.get_rows(g.tensor(type, width, table), g.tensor("i32", rows, fill=ids)), width * rows / 1e5)


def cases() -> List[Case]:
    """Everything that can be compared: small shapes, those of test-backend-ops perf, and those with published times."""
    found = []
    weights = ("q4_0", "q8_0", "q4_K", "q5_K", "q6_K", "iq2_s", "iq3_xxs", "iq4_xs", "mxfp4")
    for type in (*weights, "f16", "bf16", "f32"):
        found += [_mul_mat(type, 512, n, 2048) for n in (1, 2, 4, 8, 16, 32, 64, 128)]
    for type in (*weights, "f16", "bf16", "f32"):
        found += [*(_mul_mat(type, 4096, n, 14336) for n in (1, 4, 8, 512)), _mul_mat(type, 4096, 512, 2048)]
    found += [_mul_mat("f32", 256, 1, 2048), _mul_mat("f32", 32, 1, 2048)]
    # What another emulator has counted: tests/emulator/test_stock.py
    found += [*(_mul_mat(type, 64, 1, 2048) for type in ("q8_0", "q4_K", "q6_K")), _mul_mat("q8_0", 256, 128, 512)]
    for type in (*weights, "bf16"):
        found += [_mul_mat_id(type, 32, 8, 512, n, 2048) for n in (1, 32)]
    found.append(_mul_mat_id("bf16", 256, 8, 2048, 1, 512))
    for type in ("q8_0", "q6_K", "q5_K", "q4_K"):
        found += [_mul_mat_id(type, 256, 8, 512, 512, 2048), _mul_mat_id(type, 256, 8, 2048, 512, 512)]
    # As many rows an expert as 128, 512 and 2048 tokens give 256 experts, in a quarter of the time; together still too long for the quick set
    for type in weights:
        found += [dataclasses.replace(_mul_mat_id(type, 64, 8, *shape), cost=50)
                  for shape in ((512, 32, 2048), (512, 128, 2048), (512, 512, 2048), (2048, 128, 512))]
    # gpt-oss-20b's experts
    found += [_mul_mat("mxfp4", 2880, n, 2880) for n in (1, 4, 8, 16, 32, 64, 512)]
    found += [_mul_mat_id("mxfp4", 32, 4, 2880, n, 2880) for n in (1, 4, 32, 512)]
    for d, heads, kv_heads in ((64, 16, 4), (128, 32, 8), (256, 16, 2)):
        found += [_attention(d, heads, kv_heads, tokens, depth) for tokens, depth in ((1, 512), (1, 4096), (64, 512), (512, 4096))]
    found += [_attention(128, 32, 8, tokens, 512, "q8_0") for tokens in (1, 64)]
    # Decode at depth, and a prompt's batch behind 0, 8k and 32k tokens
    for depth in (4096, 16384, 65536):
        found += [_attention(d, heads, kv_heads, 1, depth, type) for d, heads, kv_heads in ((128, 32, 8), (256, 16, 2))
                  for type in ("f16", "q8_0") if (type, depth) != ("f16", 4096)]
    for depth in (512, 512 + 8192, 512 + 32768):
        found += [_attention(256, 16, 2, 512, depth, tile=tile) for tile in (False, True)]
    found += [_attention(256, 16, 2, 512, 4096, tile=True)]
    found += [_gated_delta_net(heads, tokens) for heads, tokens in ((4, 1), (4, 17), (32, 1), (32, 64), (32, 512), (32, 2048),
                                                                    (64, 1), (64, 64), (64, 512), (64, 2048))]
    found += [_ssm_conv(8192, tokens) for tokens in (1, 64, 512)]
    for rows in (1, 64, 512):
        found += [
            _rows("RMS_NORM", lambda g, a: g.rms_norm(a, 1e-6), 2048, rows),
            _rows("L2_NORM", lambda g, a: g.l2_norm(a, 1e-6), 128, 32 * rows),
            _rows("NORM", lambda g, a: g.norm(a, 1e-6), 2048, rows),
            _rows("ADD", lambda g, a, b: g.add(a, b), 2048, rows, 2),
            _rows("MUL", lambda g, a, b: g.mul(a, b), 2048, rows, 2),
            _rows("SWIGLU", lambda g, a, b: g.swiglu_split(a, b), 2048, rows, 2),
            _rows("SOFT_MAX", lambda g, a: g.soft_max_ext(a, ffi.NULL, 1.0, 0.0), 256, rows),
            _rows("ARGSORT", lambda g, a: g.argsort(a, 1), 256, rows),
            _rope(128, 16, rows),
            _get_rows("q6_K", 2048, 4096, rows),
        ]
    return found


def chosen(op: Optional[str], pattern: Optional[str], large: bool) -> List[Case]:
    """The cases of a comma separated list of ops whose shape the regex is found in; without `large` only the smaller ones.
    Raises StrataError if nothing is left."""
    try:
        expression = re.compile(pattern or "")
        names = [re.compile(name) for name in (op or ".*").split(",")]
    except re.error as error:
        raise StrataError(f"not a regular expression: {error}") from None
    found = [case for case in cases() if any(name.fullmatch(case.op) for name in names) and expression.search(case.shape)]
    if not found:
        raise StrataError(f"no case matches --op {op} -p {pattern}; -l lists them")
    kept = [case for case in found if large or case.cost <= 20]
    if not kept:
        raise StrataError("only large cases match: add --large")
    return kept


# The child: computes the cases, and says which launches were whose

class Process:
    """Both backends on one emulator; without a library of stock's, ours alone."""

    def __init__(self, stock: Optional[pathlib.Path]):
        emulator = plugin.library_folder() / "libstrata-emulator.so"
        os.environ["STRATA_EMULATOR_LIBRARY"] = str(emulator)  # the same file is the same device for both
        self.emulator = ctypes.CDLL(str(emulator), mode=ctypes.RTLD_GLOBAL)  # stock's open symbols are found in it
        self.emulator.strata_emulator_blas_calls.restype = ctypes.c_uint64
        self.emulator.strata_emulator_model_cold.restype = None
        plugin.load("emulator")
        if stock and not plugin.ggml().ggml_backend_load(os.fsencode(stock)):
            raise StrataError(f"ggml does not load {stock}")
        devices = {plugin.ggml_base().ggml_backend_dev_name(device).decode(): device for device in plugin.all_devices()}
        self.backends = {}
        for name, device in BACKENDS.items():
            if name == "stock" and not stock:
                continue
            if device not in devices:
                raise StrataError(f"no device {device}, but {', '.join(devices)}")
            self.backends[name] = lib.ggml_backend_dev_init(ffi.cast("ggml_backend_dev_t", devices[device]), ffi.NULL)

    def position(self) -> Dict[str, int]:
        counters = (ctypes.c_uint64 * 3)()
        self.emulator.strata_emulator_counters(counters)
        return {"launches": int(counters[0]), "blas": int(self.emulator.strata_emulator_blas_calls())}

    def fill(self, tensor: Any, type: str, ne: Sequence[int], fill: Any, rng: np.random.Generator) -> None:
        rows = int(np.prod(ne[1:]))
        if fill is not None:
            data = np.ascontiguousarray(fill(rng))
        elif type in ("f32", "f16"):
            data = rng.standard_normal((rows, ne[0]), np.float32).astype(np.float32 if type == "f32" else np.float16)
        else:
            # Some rows, repeated: quantizing all of a large matrix takes longer than multiplying with it.
            some = min(rows, 64)
            block = quantize(rng.standard_normal((some, ne[0]), np.float32), type)
            data = np.resize(block, (rows, block.shape[1]))
        size = lib.ggml_nbytes(tensor)
        if data.nbytes != size:
            raise StrataError(f"{data.nbytes} bytes for a tensor of {size}")
        lib.ggml_backend_tensor_set(tensor, ffi.cast("void *", data.ctypes.data), 0, size)

    def compute(self, builder: Builder, graph: Any, backend: Any, what: str) -> Dict[str, int]:
        """Fills the inputs and computes the graph, whose tensors have memory: the places of its first launch and of that behind the last
        one, and how many products were given to hipBLAS. Raises StrataError, which names `what`."""
        rng = np.random.default_rng(7)
        for tensor, type, ne, fill in builder.inputs:
            self.fill(tensor, type, ne, fill, rng)
        lib.ggml_backend_synchronize(backend)
        self.emulator.strata_emulator_model_cold()  # else what ran before has left lines in the caches, and some to be written
        before = self.position()
        if lib.ggml_backend_graph_compute(backend, graph) != lib.GGML_STATUS_SUCCESS:
            raise StrataError(f"{what} failed")
        lib.ggml_backend_synchronize(backend)
        after = self.position()
        return {"first": before["launches"], "last": after["launches"], "blas": after["blas"] - before["blas"]}

    def run(self, case: Case, backend: Any) -> Optional[Dict[str, Any]]:
        """Which launches the case took, and its result; None if the backend does not compute it."""
        ctx = lib.ggml_init({"mem_size": 1 << 20, "mem_buffer": ffi.NULL, "no_alloc": True})
        builder = Builder(ctx)
        result = case.build(builder)
        if not lib.ggml_backend_supports_op(backend, result):
            lib.ggml_free(ctx)
            return None
        graph = lib.ggml_new_graph(ctx)
        lib.ggml_build_forward_expand(graph, result)
        buffer = lib.ggml_backend_alloc_ctx_tensors(ctx, backend)
        taken = self.compute(builder, graph, backend, case.name)
        output = np.empty(lib.ggml_nbytes(result) // 4, np.float32)
        lib.ggml_backend_tensor_get(result, ffi.cast("void *", output.ctypes.data), 0, output.nbytes)
        lib.ggml_backend_buffer_free(buffer)
        lib.ggml_free(ctx)
        return {**taken, "output": output}


def _child(stock: str, sides: Sequence[str], indices: Sequence[int]) -> None:
    """Prints a line of JSON a case."""
    process = Process(pathlib.Path(stock))
    every = cases()
    for index in indices:
        print(f"@case {index}", flush=True)
        ran = {name: process.run(every[index], backend) for name, backend in process.backends.items() if name in sides}
        outputs = [each.pop("output") for each in ran.values() if each]
        row: Dict[str, Any] = {"index": index, **ran}
        if len(outputs) == 2 and every[index].op != "ARGSORT":
            power = float(np.sum(np.square(outputs[0], dtype=np.float64)))
            row["nmse"] = float(np.sum(np.square(outputs[1].astype(np.float64) - outputs[0]))) / power if power else 0.0
        print("@row " + json.dumps(row), flush=True)


# The parent: joins that with what the emulator has counted

@dataclasses.dataclass
class Measure:
    """What one backend took for a case."""
    launches: int = 0
    blas: int = 0            # products given to hipBLAS, of which nothing is counted
    waves: int = 0
    instructions: int = 0
    requested_bytes: int = 0  # loads and stores of global memory, every lane's
    line_bytes: int = 0       # distinct 128-byte lines of each launch
    modelled_us: Optional[float] = None
    simulated: Optional[float] = None  # of large launches the time model follows a sample: the smallest share of a launch's instructions
    kernels: Dict[str, Dict[str, int]] = dataclasses.field(default_factory=dict)  # waves and instructions of each class


def measure(launches: Sequence[Dict[str, Any]], blas: int) -> Measure:
    found = Measure(launches=len(launches), blas=blas)
    for launch in launches:
        found.waves += launch["waves"]
        found.instructions += launch["instructions"]["total"]
        kernel = found.kernels.setdefault(launch["kernel"], {})
        for name, count in {"waves": launch["waves"], **launch["instructions"]}.items():
            kernel[name] = kernel.get(name, 0) + count
        memory = launch["global"]
        found.requested_bytes += memory["load_bytes"] + memory["store_bytes"]
        found.line_bytes += LINE * memory["lines"]["launch"]
        if "modelled" in launch:
            found.modelled_us = (found.modelled_us or 0.0) + launch["modelled"]["us"]
            found.simulated = min(found.simulated or 1.0, launch["modelled"]["share"])
    return found


@dataclasses.dataclass
class Row:
    op: str
    shape: str
    stock: Optional[Measure]
    ours: Optional[Measure]
    nmse: Optional[float]

    def ratio(self, field: str) -> Optional[float]:
        """Stock over ours: above 1 ours takes less. None where one of them is not to be compared."""
        if not self.stock or not self.ours or self.stock.blas or self.ours.blas:
            return None
        mine, theirs = getattr(self.ours, field), getattr(self.stock, field)
        return theirs / mine if mine and theirs is not None else None


def compare(wanted: Sequence[Case], stock: pathlib.Path, sides: Sequence[str] = tuple(BACKENDS), model: str = "") -> List[Row]:
    """Runs the cases in a process of its own, on both backends or one of them. model: what $STRATA_MODEL is to be; "1" adds modelled
    times. Raises StrataError if that fails."""
    every = [case.name for case in cases()]
    rows: List[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        counts = pathlib.Path(folder) / "counts.json"
        command = [sys.executable, "-m", "strata_hip.bench_ops", str(stock), ",".join(sides),
                   *(str(every.index(case.name)) for case in wanted)]
        environment = dict(os.environ, STRATA_COUNT=str(counts), STRATA_MODEL=model, GGML_CUDA_DISABLE_GRAPHS="1")
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        ran = []
        at = "its start"
        for line in process.stdout:
            if line.startswith("@case "):
                at = every[int(line[6:])]
            elif line.startswith("@row "):
                ran.append(json.loads(line[5:]))
                print(f"\r\033[K{len(ran)}/{len(wanted)} {every[ran[-1]['index']]}" if sys.stderr.isatty() else "", end="", file=sys.stderr)
        if process.wait() != 0:
            raise StrataError(f"the comparison stopped at {at} (exit code {process.returncode})")
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        if not counts.exists():
            raise StrataError("the emulator wrote no counts")
        launches = json.loads(counts.read_text())["launches"]
    by_index = {each["index"]: each for each in ran}
    for case in wanted:
        entry = by_index[every.index(case.name)]
        measured = {name: measure(launches[entry[name]["first"]:entry[name]["last"]], entry[name]["blas"]) if entry.get(name) else None
                    for name in BACKENDS}
        rows.append(Row(case.op, case.shape, measured["stock"], measured["ours"], entry.get("nmse")))
    return rows


# Output

FIELDS = ("launches", "waves", "instructions", "requested_bytes", "line_bytes", "modelled_us")


def _count(value: Optional[float]) -> str:
    if value is None:
        return "-"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= limit:
            return f"{value / limit * (10 if unit == 'k' else 1):.{1 if unit == 'k' else 2}f} {unit}"
    return f"{value:g}"


def _markdown(rows: Sequence[Row], out: TextIO) -> None:
    shares = [side.simulated for row in rows for side in (row.stock, row.ours) if side and side.simulated is not None]
    modelled = bool(shares)
    columns = ["op", "shape", "launches", "instructions stock", "ours", "ratio", "bytes stock", "ours", "ratio"]
    columns += ["modelled us stock", "ours", "ratio"] if modelled else []
    table = []
    for row in rows:
        def pair(field: str) -> List[str]:
            ratio = row.ratio(field)
            values = [_count(getattr(side, field)) if side else "-" for side in (row.stock, row.ours)]
            if row.stock and row.stock.blas:
                values[0] += " + hipBLAS"
            return [*values, f"{ratio:.2f}" if ratio is not None else "-"]
        launches = " / ".join(str(side.launches) if side else "-" for side in (row.stock, row.ours))
        table.append([row.op, row.shape, launches, *pair("instructions"), *pair("requested_bytes"), *(pair("modelled_us") if modelled else [])])
    widths = [max(len(line[i]) for line in [columns, *table]) for i in range(len(columns))]
    for n, line in enumerate([columns, *table]):
        cells = [f" {text:<{width}} " if i < 2 else f" {text:>{width}} " for i, (text, width) in enumerate(zip(line, widths))]
        print("|" + "|".join(cells) + "|", file=out)
        if n == 0:
            print("|" + "|".join(f" {'-' * (width - 1)}{'-' if i < 2 else ':'} " for i, width in enumerate(widths)) + "|", file=out)
    print("\nCounted on the emulator: wave instructions, and bytes that lanes load from and store to global memory. Ratio is stock's over "
          "ours." + (f" Times are modelled; {sampled(min(shares))}." if shares else ""), file=out)


def _csv(rows: Sequence[Row], out: TextIO) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["op", "shape", *(f"{name}_{field}" for name in BACKENDS for field in (*FIELDS, "blas")), "ratio_instructions",
                     "ratio_requested_bytes", "nmse"])
    for row in rows:
        values = [getattr(side, field) if side else None for side in (row.stock, row.ours) for field in (*FIELDS, "blas")]
        writer.writerow([row.op, row.shape, *values, row.ratio("instructions"), row.ratio("requested_bytes"), row.nmse])
    out.write(text.getvalue())


def _json(rows: Sequence[Row], out: TextIO) -> None:
    described = [dataclasses.asdict(row) | {"ratio": {field: row.ratio(field) for field in FIELDS}} for row in rows]
    print(json.dumps(described, indent=2), file=out)


PRINTERS = {"md": _markdown, "csv": _csv, "json": _json}


def plot(rows: Sequence[Row], path: str) -> None:
    """Bars of the ratios. Raises StrataError without matplotlib."""
    pyplot = pictures.pyplot()
    shown = [row for row in rows if row.ratio("instructions") is not None]
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.26 * len(shown)))
    at = np.arange(len(shown))
    fields = [("instructions", "instructions"), ("requested_bytes", "bytes"), ("modelled_us", "modelled time")]
    fields = [(field, label) for field, label in fields if any(row.ratio(field) for row in shown)]
    for n, (field, label) in enumerate(fields):
        ratios = np.array([row.ratio(field) or 1 for row in shown])
        height = 0.8 / len(fields)
        axes.barh(at + (n + 0.5) * height - 0.4, ratios - 1, left=1, height=height, label=label)  # from 1, to either side
    axes.set_yticks(at, [f"{row.op} {row.shape}" for row in shown], fontsize=7)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("stock over ours (above 1: ours takes less)")
    axes.legend()
    figure.tight_layout()
    pictures.save(figure, path)


def stock_library(given: Optional[str]) -> pathlib.Path:
    """libggml-hip.so: the one given, $STRATA_PEER_LIBRARY, or the cache's. Raises StrataError."""
    path = pathlib.Path(given or os.environ.get("STRATA_PEER_LIBRARY") or models.cache_folder() / "peer" / "libggml-hip.so")
    if not path.exists():
        raise StrataError(f"{path} does not exist: tests/bench/peer/build_stock_hip.py builds stock ggml-hip (9 minutes on 2 cores)")
    return path


def run(options: argparse.Namespace) -> None:
    """The command. Raises StrataError."""
    wanted = chosen(options.op, options.pattern, options.large)
    if options.list:
        for case in wanted:
            print(case.name)
        return
    if options.plot:
        pictures.check(options.plot)
    rows = compare(wanted, stock_library(options.stock), model="1" if options.time else "")
    PRINTERS[options.output](rows, sys.stdout)
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    try:
        _child(sys.argv[1], sys.argv[2].split(","), [int(text) for text in sys.argv[3:]])
    except StrataError as error:
        sys.exit(f"strata-hip: {error}")
