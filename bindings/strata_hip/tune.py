"""`strata-hip tune`: which tile width J suits products with experts (and dense ones), by type of weights and rows an expert.

Every J gives the same bits, so it is chosen by time alone: on the emulator the modelled one, on a GPU what a run of the operator takes. The
command writes the table that the plugin is compiled with, backend/ops/tile_columns.inc.
"""
import csv
import ctypes
import dataclasses
import io
import json
import math
import os
import pathlib
import re
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, TextIO, Tuple

import numpy as np

from . import environment, plugin
from .bench_ops import measure
from .errors import ArgumentError, StrataError
from .ggml import TYPES, ffi, lib, plugin_functions
from .graph import Graph
from .profile import sampled
from .quantized import quantize

OPS = ("MUL_MAT_ID", "MUL_MAT")
DEFAULT_TYPES = ("q8_0", "q4_K", "q5_K", "q6_K", "iq2_s", "iq3_xxs", "iq4_xs", "mxfp4")
DEFAULT_ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
EVICTED_BYTES = 128 << 20  # read on a GPU before each run: more than its caches hold


def kernels(type: str) -> Tuple[int, ...]:
    """The J that a type has kernels for; none for a type without a choice."""
    if type in ("f16", "bf16"):
        return (16, 64)
    return (16, 32, 48, 64, 128) if type in TYPES and lib.ggml_is_quantized(TYPES[type]) else ()


# The table

@dataclasses.dataclass(frozen=True)
class Range:
    rows: float   # an expert, up to which it holds; math.inf: any
    columns: int  # J


@dataclasses.dataclass(frozen=True)
class Entry:
    """A line of the table."""
    type: str
    ranges: Tuple[Range, ...]
    origin: str  # what the times were of


HEADER = """\
// Columns J of a tile of MUL_MAT_ID by the rows (pairs of token and slot) that an expert has on average: the first range that allows them.
// Written by `strata-hip tune --write FILE`, which keeps the lines of types that it is not asked for. Not to be edited by hand.
"""
_ENTRY = re.compile(r"TILE_COLUMNS\((\w+), (\{.*\})\) // (.*)")
_RANGE = re.compile(r"\{(\d+(?:\.\d+)?|any), (\d+)\}")


def _enumerator(type: str) -> str:
    """As in GGML_TYPE_Q4_K."""
    return type.upper()


def write_table(entries: Iterable[Entry]) -> str:
    """The text of the table, a line a type in ggml's order."""
    lines = []
    for entry in sorted(entries, key=lambda entry: TYPES[entry.type]):
        ranges = ", ".join(f"{{{'any' if math.isinf(each.rows) else f'{each.rows:g}'}, {each.columns}}}" for each in entry.ranges)
        lines.append(f"TILE_COLUMNS({_enumerator(entry.type)}, {ranges}) // {entry.origin}\n")
    return HEADER + "".join(lines)


def read_table(text: str) -> List[Entry]:
    """The lines of a table. Raises StrataError for anything that write_table() does not write."""
    names = {_enumerator(name): name for name in TYPES}
    entries: List[Entry] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("//"):
            continue
        match = _ENTRY.fullmatch(line)
        found = _RANGE.findall(match[2]) if match else []
        if not match or match[1] not in names or match[2] != ", ".join(f"{{{rows}, {columns}}}" for rows, columns in found):
            raise StrataError(f"line {number} is no line of a table of tile columns: {line}")
        ranges = tuple(Range(math.inf if rows == "any" else float(rows), int(columns)) for rows, columns in found)
        limits = [each.rows for each in ranges]
        type = names[match[1]]
        if sorted(set(limits)) != limits or not math.isinf(limits[-1]) or any(each.columns not in kernels(type) for each in ranges):
            raise StrataError(f"line {number}: ranges ascend, the last one is for any, and J is one that the type has: {line}")
        if any(entry.type == type for entry in entries):
            raise StrataError(f"line {number}: {match[1]} a second time")
        entries.append(Entry(type, ranges, match[3]))
    return entries


# The choice

@dataclasses.dataclass
class Point:
    """What each J took for some rows an expert; for MUL_MAT, columns."""
    type: str
    rows: int
    table: int              # J of the plugin's table now
    us: Dict[int, float]    # J -> time
    simulated: float = 1.0  # on the emulator: the smallest share of a launch's instructions that the time model followed

    @property
    def best(self) -> int:
        return min(self.us, key=self.us.__getitem__)

    @property
    def lost(self) -> Optional[float]:
        """Time of the table's J over that of the best, minus 1; None if it was not run."""
        return self.us[self.table] / self.us[self.best] - 1 if self.table in self.us else None


def choose_ranges(points: Sequence[Point], margin: float) -> Tuple[Range, ...]:
    """Ranges of rows for the points of one type, whose rows ascend. Of all ways to divide them, the one that loses least against the best J of
    each point, when each range beyond the first must save more than `margin` (0.02: a fiftieth of a point's time). A range ends halfway
    between two points."""
    # J of the last point -> (what is lost so far, J of each point)
    paths: Dict[int, Tuple[float, List[int]]] = {}
    for n, point in enumerate(points):
        cheapest = min(paths.values(), key=lambda path: path[0]) if n else (0.0, [])
        following = {}
        for columns, us in point.us.items():
            lost = us / point.us[point.best] - 1
            other = (cheapest[0] + (margin if n else 0.0), cheapest[1])
            same = paths.get(columns, other)
            before = same if same[0] <= other[0] else other
            following[columns] = (before[0] + lost, [*before[1], columns])
        paths = following
    chosen = min(paths.values(), key=lambda path: path[0])[1]
    ranges = [Range((points[n].rows + points[n + 1].rows) / 2, chosen[n]) for n in range(len(chosen) - 1) if chosen[n] != chosen[n + 1]]
    return (*ranges, Range(math.inf, chosen[-1]))


# The runs

@dataclasses.dataclass
class Options:
    op: str = "MUL_MAT_ID"
    types: Sequence[str] = DEFAULT_TYPES
    rows: Sequence[int] = DEFAULT_ROWS
    shape: Tuple[int, int] = (512, 2048)  # rows and length of the weights
    experts: int = 32
    used: int = 8
    tiles: Optional[Sequence[int]] = None  # the J to run (default: all that a type has)
    margin: float = 0.02
    events: int = 3_000_000  # on the emulator: instructions of a launch that the time model follows at most
    repetitions: int = 5     # on a GPU, of which the quickest counts
    output: str = "md"
    write: Optional[str] = None
    runtime: Optional[str] = None

    def kernels(self, type: str) -> Tuple[int, ...]:
        """The J of a type that are run."""
        return tuple(columns for columns in kernels(type) if self.tiles is None or columns in self.tiles)

    def check(self) -> None:
        """Raises ArgumentError for what cannot be run."""
        k = self.shape[1]
        for type in self.types:
            if not kernels(type):
                raise ArgumentError(f"--type: {type!r} is no type of weights with tiles of several widths")
            if self.tiles is not None and not set(self.tiles) <= set(kernels(type)):
                raise ArgumentError(f"--tiles: {type} has kernels of {', '.join(map(str, kernels(type)))} columns")
            if k % lib.ggml_blck_size(TYPES[type]):
                raise ArgumentError(f"--shape: rows of {type} have blocks of {lib.ggml_blck_size(TYPES[type])}, {k} is no multiple")
        if self.write and self.op != "MUL_MAT_ID":
            raise ArgumentError("--write: dense products take J by a rule (dense_tile_columns in backend/ops/tile_columns.cpp), not from a table")
        if self.op == "MUL_MAT":
            if min(self.rows) <= 8:
                raise ArgumentError("--rows: up to 8 columns are no tiles")
            return
        if self.used > self.experts:
            raise ArgumentError(f"--used: {self.used} of {self.experts} experts")
        for rows in self.rows:
            if rows * self.experts % self.used:
                raise ArgumentError(f"--rows: no number of tokens with {self.used} experts each gives {self.experts} experts {rows} rows")
            if rows * self.experts <= max(8, self.experts // 2):
                raise ArgumentError(f"--rows: {rows} of {self.experts} experts are no tiles; take more experts")


class _Clock:
    """Times runs of graphs: by the emulator's model, which tells when all is over, or by the wall."""

    def __init__(self, options: Options):
        self._options = options
        self.modelled = plugin.load(options.runtime).runtime == "emulator"
        self._launches: List[Tuple[int, int]] = []
        self._times: List[float] = []
        if self.modelled:
            self._emulator = ctypes.CDLL(plugin.load(options.runtime).info["library"])
            for name in ("strata_emulator_counters", "strata_emulator_model_cold", "strata_emulator_model_events", "strata_emulator_count_write"):
                getattr(self._emulator, name).restype = None
            self._emulator.strata_emulator_model_events(ctypes.c_uint64(options.events))

    def _launched(self) -> int:
        counters = (ctypes.c_uint64 * 3)()
        self._emulator.strata_emulator_counters(counters)
        return int(counters[0])

    def run(self, compute: Callable[[], None], evict: Callable[[], None]) -> None:
        """Computes with no weights in the caches."""
        if self.modelled:
            self._emulator.strata_emulator_model_cold()
            before = self._launched()
            compute()
            self._launches.append((before, self._launched()))
            return
        compute()  # loads the code
        times = []
        for _ in range(self._options.repetitions):
            evict()
            started = time.perf_counter()
            compute()
            times.append((time.perf_counter() - started) * 1e6)
        self._times.append(min(times))

    def read(self, counts: pathlib.Path) -> List[Tuple[float, float, str]]:
        """(microseconds, share that was simulated, kernel of the tiles) of each run in order."""
        if not self.modelled:
            return [(us, 1.0, "") for us in self._times]
        self._emulator.strata_emulator_model_events(ctypes.c_uint64(0))
        self._emulator.strata_emulator_count_write()
        if not counts.exists():
            raise StrataError("the emulator wrote no counts: it had been started before in this process")
        launches = json.loads(counts.read_text())["launches"]
        found = []
        for first, last in self._launches:
            taken = measure(launches[first:last], 0)
            if taken.modelled_us is None:
                raise StrataError("the emulator modelled no time: it had been started before in this process")
            found.append((taken.modelled_us, taken.simulated or 1.0, launches[last - 1]["kernel"]))
        return found


def _weights(rng: np.random.Generator, type: str, shape: Sequence[int]) -> np.ndarray:
    """Bytes of weights: some rows, repeated, because quantizing all would take longer than multiplying with them."""
    values = rng.standard_normal((64, shape[-1]), np.float32)
    some = values.astype(np.float16) if type == "f16" else quantize(values, type)
    return np.resize(some, (*shape[:-1], some.shape[-1]))


class _Sweep:
    """The products of one type."""

    def __init__(self, options: Options, type: str, modelled: bool):
        self.options, self.type = options, type
        rng = np.random.default_rng(11)
        m, k = options.shape
        self.graph = g = Graph(options.runtime)
        dense = options.op == "MUL_MAT"
        shape = [m, k] if dense else [options.experts, m, k]
        w = g.tensor(shape[::-1], type)
        self.products = []
        for rows in options.rows:
            if dense:
                self.products.append(g.mul_mat(w, g.input(rng.standard_normal((rows, k), np.float32))))
                continue
            tokens = rows * options.experts // options.used
            ids = np.stack([rng.permutation(options.experts)[:options.used] for _ in range(tokens)]).astype(np.int32)
            # all slots of a token read the same activation, as gate and up projections do
            self.products.append(g.mul_mat_id(w, g.input(rng.standard_normal((tokens, 1, k), np.float32)), g.input(ids)))
        large = None if modelled else g.sum(g.input(np.ones((EVICTED_BYTES >> 12, 1024), np.float32)))
        g.allocate()
        g.set(w, _weights(rng, type, shape))
        self._ctx = lib.ggml_init({"mem_size": lib.ggml_graph_overhead_custom(8, False) * (len(self.products) + 1), "mem_buffer": ffi.NULL,
                                   "no_alloc": True})
        self._graphs = [self._graph(product) for product in self.products]
        self._sweep = None if large is None else self._graph(large)

    def close(self) -> None:
        lib.ggml_free(self._ctx)
        self.graph.close()

    def _graph(self, output: Any) -> Any:
        made = lib.ggml_new_graph_custom(self._ctx, 8, False)
        lib.ggml_build_forward_expand(made, output)
        return made

    def _compute(self, made: Any) -> None:
        if lib.ggml_backend_graph_compute(self.graph.backend, made) != lib.GGML_STATUS_SUCCESS:
            raise StrataError(f"{self.type}: the device failed")
        lib.ggml_backend_synchronize(self.graph.backend)

    def evict(self) -> None:
        """Reads so much that no weights are left in a GPU's caches."""
        self._compute(self._sweep)

    def table(self, rows: int) -> int:
        functions = plugin_functions()
        if self.options.op == "MUL_MAT":
            return int(functions.strata_hip_dense_tile_columns(TYPES[self.type], self.options.shape[0], rows))
        return int(functions.strata_hip_tile_columns(TYPES[self.type], float(rows)))

    def run(self, clock: _Clock, told: Callable[[str], None]) -> None:
        """All J at all points, in order. Raises StrataError if their bits differ."""
        for rows, product, made in zip(self.options.rows, self.products, self._graphs):
            first: Optional[np.ndarray] = None
            for columns in self.options.kernels(self.type):
                told(f"{self.type}, {rows} rows, J{columns}")
                plugin_functions().strata_hip_force_tile_columns(columns)
                try:
                    clock.run(lambda: self._compute(made), self.evict)
                finally:
                    plugin_functions().strata_hip_force_tile_columns(0)
                result = self.graph.raw(product)
                first = result if first is None else first
                if not np.array_equal(first, result):
                    raise StrataError(f"{self.type}, {rows} rows: J{columns} gives other bits than J{self.options.kernels(self.type)[0]}")


def _told(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr)


def tune(options: Options) -> Tuple[List[Point], bool]:
    """The points of all types in order, and whether their times are modelled. `options` has been checked. On the emulator, which counts from its start, only in a process that
    has not started it. Raises StrataError."""
    with tempfile.TemporaryDirectory(prefix="strata-tune-") as folder:
        counts = pathlib.Path(folder) / "counts.json"
        with environment.changed(STRATA_COUNT=str(counts), STRATA_MODEL=os.environ.get("STRATA_MODEL") or "1"):
            clock = _Clock(options)
            points = []
            for type in options.types:
                sweep = _Sweep(options, type, clock.modelled)
                points += [Point(type, rows, sweep.table(rows), {}) for rows in options.rows]
                sweep.run(clock, _told)
                sweep.close()
            times = iter(clock.read(counts))
    _told("")
    for point in points:
        for columns in options.kernels(point.type):
            point.us[columns], share, kernel = next(times)
            point.simulated = min(point.simulated, share)
            if kernel and not kernel.endswith(f"_j{columns}"):
                raise StrataError(f"{point.type}, {point.rows} rows: {kernel} ran in the place of J{columns}")
    return points, clock.modelled


def origin(options: Options, modelled: bool) -> str:
    """What the times of a line of the table were of."""
    m, k = options.shape
    device = f"gfx1151, modelled, {options.events / 1e6:g} M instructions a launch" if modelled else ", ".join(sorted(each["description"] for each in plugin.load().info["devices"]))
    return f"{m}x{k}, top-{options.used} of {options.experts}, {options.rows[0]} to {options.rows[-1]} rows, {options.margin:.0%}: {device}"


def entries_of(points: Sequence[Point], options: Options, modelled: bool) -> List[Entry]:
    return [Entry(type, choose_ranges([point for point in points if point.type == type], options.margin), origin(options, modelled))
            for type in options.types]


# Output

def _ranges_text(ranges: Sequence[Range]) -> str:
    parts = [f"≤ {each.rows:g} J{each.columns}" for each in ranges[:-1]]
    return ", ".join([*parts, f"{'else ' if parts else 'always '}J{ranges[-1].columns}"])


def _markdown(points: Sequence[Point], entries: Sequence[Entry], options: Options, modelled: bool, out: TextIO) -> None:
    widths = sorted({columns for point in points for columns in point.us})
    what = "rows an expert" if options.op == "MUL_MAT_ID" else "columns"
    print(f"| type | {what} | {' | '.join(f'J{columns} us' for columns in widths)} | best | table | table takes |", file=out)
    print(f"|---|--:|{'--:|' * len(widths)}--:|--:|--:|", file=out)
    for point in points:
        times = " | ".join(f"{point.us[columns]:.1f}" if columns in point.us else "-" for columns in widths)
        print(f"| {point.type} | {point.rows} | {times} | J{point.best} | J{point.table} | {'-' if point.lost is None else f'{point.lost:+.1%}'} |", file=out)
    m, k = options.shape
    shape = f"{m}x{k}, top-{options.used} of {options.experts} experts" if options.op == "MUL_MAT_ID" else f"{m}x{k}"
    how = (f"Modelled time on the emulator of all launches of the op, without gaps, caches empty before; {sampled(min(point.simulated for point in points))}"
           if modelled else f"Time of the op on the device by the wall, the quickest of {options.repetitions}, caches swept before")
    print(f"\n{options.op} {shape}. {how}. All J gave the same bits.\n", file=out)
    for entry in entries if options.op == "MUL_MAT_ID" else ():
        print(f"{entry.type}: {_ranges_text(entry.ranges)}", file=out)


def _csv(points: Sequence[Point], entries: Sequence[Entry], options: Options, modelled: bool, out: TextIO) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["op", "type", "rows", "columns", "us", "modelled", "best", "table"])
    for point in points:
        for columns, us in point.us.items():
            writer.writerow([options.op, point.type, point.rows, columns, us, int(modelled), int(columns == point.best), int(columns == point.table)])
    out.write(text.getvalue())


def _json(points: Sequence[Point], entries: Sequence[Entry], options: Options, modelled: bool, out: TextIO) -> None:
    ranges = {entry.type: [[None if math.isinf(each.rows) else each.rows, each.columns] for each in entry.ranges] for entry in entries}
    print(json.dumps({"op": options.op, "shape": options.shape, "experts": options.experts, "used": options.used, "modelled": modelled,
                      "points": [dataclasses.asdict(point) | {"best": point.best} for point in points], "ranges": ranges}, indent=1), file=out)


PRINTERS = {"md": _markdown, "csv": _csv, "json": _json}


def run(options: Options, out: TextIO) -> None:
    """The command. Raises StrataError."""
    options.check()
    file = pathlib.Path(options.write) if options.write else None
    kept: List[Entry] = []
    if file and not file.parent.is_dir():
        raise ArgumentError(f"--write: {file.parent} is no folder")
    if file and file.exists():
        try:
            kept = read_table(file.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise ArgumentError(f"--write: {file} is no table: {error}") from None
    points, modelled = tune(options)
    entries = entries_of(points, options, modelled)
    PRINTERS[options.output](points, entries, options, modelled, out)
    if file:
        file.write_text(write_table([*(each for each in kept if each.type not in options.types), *entries]))
