"""llama-bench's output formats: markdown, CSV, JSON, JSON lines and SQL, field for field; behind its fields, what a number must carry."""
import dataclasses
import json
from typing import TYPE_CHECKING, Any, Dict, List, TextIO

if TYPE_CHECKING:
    from .provenance import Provenance

FIELDS = (
    "build_commit", "build_number", "cpu_info", "gpu_info", "backends", "model_filename", "model_type", "model_size",
    "model_n_params", "n_batch", "n_ubatch", "n_threads", "cpu_mask", "cpu_strict", "poll", "type_k", "type_v", "n_gpu_layers",
    "n_cpu_moe", "split_mode", "main_gpu", "no_kv_offload", "flash_attn", "devices", "tensor_split", "tensor_buft_overrides",
    "load_mode", "lazy_mode", "embeddings", "no_op_offload", "no_host", "repack", "fit_target", "fit_min_ctx", "n_prompt",
    "n_gen", "n_depth", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts")
INTEGERS = {
    "build_number", "n_batch", "n_ubatch", "n_threads", "poll", "model_size", "model_n_params", "n_gpu_layers", "main_gpu",
    "n_prompt", "n_gen", "n_depth", "avg_ns", "stddev_ns", "no_op_offload", "n_cpu_moe", "fit_target", "fit_min_ctx",
    "flash_attn"}
BOOLEANS = {"no_kv_offload", "cpu_strict", "embeddings", "no_host", "repack"}
REALS = {"avg_ts", "stddev_ts"}
# Ours, behind llama-bench's. flash_attn_used: what became of flash_attn = -1.
PROVENANCE = ("device", "runtime", "arch", "driver_version", "code_objects", "switches", "flash_attn_used", "emulated")
OUR_BOOLEANS = {"flash_attn_used", "emulated"}
ALL_FIELDS = FIELDS + PROVENANCE

# Markdown: columns that show only when their values are not the default, in llama-bench's order.
OPTIONAL = ("n_cpu_moe", "n_threads", "cpu_mask", "cpu_strict", "poll", "n_batch", "n_ubatch", "type_k", "type_v", "main_gpu", "split_mode",
            "no_kv_offload", "flash_attn", "devices", "tensor_split", "tensor_buft_overrides", "load_mode", "lazy_mode", "embeddings",
            "no_op_offload", "no_host", "repack")
# A negative width is aligned to the left. Others: as wide as the name, at least 10, texts to the left.
WIDTHS = {"model": -30, "t/s": 20, "size": 10, "params": 10, "n_gpu_layers": 3, "n_threads": 7, "n_batch": 7, "n_ubatch": 8, "type_k": 6,
          "type_v": 6, "split_mode": 6, "load_mode": 10, "flash_attn": 3, "devices": -12, "test": 15, "no_op_offload": 4, "no_host": 4,
          "repack": 3}
TITLES = {"n_gpu_layers": "ngl", "split_mode": "sm", "n_threads": "threads", "no_kv_offload": "nkvo", "flash_attn": "fa", "load_mode": "lm",
          "embeddings": "embd", "no_op_offload": "nopo", "no_host": "noh", "repack": "rpk", "devices": "dev", "tensor_split": "ts",
          "tensor_buft_overrides": "ot"}


@dataclasses.dataclass
class Row:
    """One measured case: every field of ALL_FIELDS, and each run's time [ns] and rate [token/s]."""
    values: Dict[str, Any]
    samples_ns: List[int]
    samples_ts: List[float]

    def text(self, field: str) -> str:
        value = self.values[field]
        return f"{value:.6f}" if field in REALS else str(int(value)) if field in OUR_BOOLEANS else str(value)


def test_name(n_prompt: int, n_gen: int, n_depth: int) -> str:
    """pp512, tg128, pp512+tg128, with @ d4096 after a context of 4096 tokens."""
    name = "+".join([f"pp{n_prompt}"] * (n_prompt > 0) + [f"tg{n_gen}"] * (n_gen > 0))
    return f"{name} @ d{n_depth}" if n_depth else name


def model_size(size: int) -> str:
    return f"{size / 2**20:.2f} MiB" if size < 2**30 else f"{size / 2**30:.2f} GiB"


def parameter_count(count: int) -> str:
    return f"{count / 1e6:.2f} M" if count < 10**9 else f"{count / 1e9:.2f} B"


class Printer:
    """Base: prints nothing but rows."""

    def __init__(self, out: TextIO, options: Any, backend: str, origin: "Provenance"):
        """options: bench_options.Options; backend: the column of that name."""
        self.out, self.options, self.backend, self.origin = out, options, backend, origin

    def header(self) -> None:
        pass

    def row(self, row: Row) -> None:
        raise NotImplementedError

    def footer(self) -> None:
        pass

    def print(self, text: str, end: str = "\n") -> None:
        print(text, end=end, file=self.out)


class Csv(Printer):
    def header(self) -> None:
        self.print(",".join(ALL_FIELDS))

    def row(self, row: Row) -> None:
        self.print(",".join('"' + row.text(field).replace('"', '""') + '"' for field in ALL_FIELDS))


def json_fields(row: Row) -> List[str]:
    """The fields as "name": value, and the samples behind llama-bench's."""
    def value(field: str) -> str:
        if field in BOOLEANS | OUR_BOOLEANS:
            return "true" if row.values[field] else "false"
        return row.text(field) if field in INTEGERS | REALS else json.dumps(row.text(field))

    samples = [f'"samples_ns": [ {", ".join(map(str, row.samples_ns))} ]',
               f'"samples_ts": [ {", ".join(f"{rate:g}" for rate in row.samples_ts)} ]']
    return [f'"{field}": {value(field)}' for field in FIELDS] + samples + [f'"{field}": {value(field)}' for field in PROVENANCE]


class Json(Printer):
    first = True

    def header(self) -> None:
        self.print("[")

    def row(self, row: Row) -> None:
        self.print("" if self.first else ",\n", end="")
        self.first = False
        self.print("  {\n" + ",\n".join("    " + part for part in json_fields(row)) + "\n  }", end="")

    def footer(self) -> None:
        self.print("\n]")


class JsonLines(Printer):
    def row(self, row: Row) -> None:
        self.print("{" + ", ".join(json_fields(row)) + "}")


class Sql(Printer):
    def header(self) -> None:
        def kind(field: str) -> str:
            return "INTEGER" if field in INTEGERS | BOOLEANS | OUR_BOOLEANS else "REAL" if field in REALS else "TEXT"
        self.print("CREATE TABLE IF NOT EXISTS llama_bench (\n"
                   + ",\n".join(f"  {field} {kind(field)}" for field in ALL_FIELDS) + "\n);\n")

    def row(self, row: Row) -> None:
        values = ", ".join("'" + row.text(field).replace("'", "''") + "'" for field in ALL_FIELDS)
        self.print(f"INSERT INTO llama_bench ({', '.join(ALL_FIELDS)}) VALUES ({values});")


class Markdown(Printer):
    def __init__(self, out: TextIO, options: Any, backend: str, origin: "Provenance"):
        super().__init__(out, options, backend, origin)
        on_cpu = "CPU" in backend
        self.columns = ["model", "size", "params", "backend"] + ([] if on_cpu else ["n_gpu_layers"])
        self.columns += [field for field in OPTIONAL if options.differs(field) or (field == "n_threads" and on_cpu)]
        self.columns += ["test", "t/s"]
        self.widths = {column: self.width(column) for column in self.columns}
        self.rows: List[Row] = []

    def width(self, column: str) -> int:
        """Printed width, negative for text aligned to the left."""
        if column == "backend":
            return -max(10, len(self.backend))
        if column in WIDTHS:
            return WIDTHS[column]
        width = max(len(column), 10)
        return width if column in INTEGERS | BOOLEANS else -width

    def line(self, texts: List[str]) -> str:
        cells = []
        for column, text in zip(self.columns, texts):
            width = self.widths[column]
            cells.append(f" {text:<{-width}} " if width < 0 else f" {text:>{width}} ")
        return "|" + "|".join(cells) + "|"

    def header(self) -> None:
        self.print(self.line([TITLES.get(column, column) for column in self.columns]))
        self.print("|" + "|".join(f" {'-' * (abs(width) - 1)}{':' if width > 0 else '-'} " for width in self.widths.values()) + "|")

    def row(self, row: Row) -> None:
        v = row.values
        self.rows.append(row)
        special = {
            "model": v["model_type"], "size": model_size(v["model_size"]), "params": parameter_count(v["model_n_params"]),
            "backend": v["backends"], "test": test_name(v["n_prompt"], v["n_gen"], v["n_depth"]),
            "t/s": f"{v['avg_ts']:.2f} ± {v['stddev_ts']:.2f}"}
        self.print(self.line([special[column] if column in special else row.text(column) for column in self.columns]))

    def footer(self) -> None:
        v = self.rows[0].values
        self.print(f"\nbuild: {v['build_commit']} ({v['build_number']})")
        for line in self.origin.describe():
            self.print(line)
        hidden = [f"{field} {v[field]}" for field in ("n_ubatch", "type_k", "type_v") if field not in self.columns]
        if "flash_attn" not in self.columns:
            used = sorted({"on" if row.values["flash_attn_used"] else "off" for row in self.rows})
            hidden.append(f"flash_attn auto ({', '.join(used)})")
        if hidden:
            self.print(f"all rows: {', '.join(hidden)}")
        if self.origin.emulated:
            self.print("Emulated: these rates are the emulator's on this CPU and say nothing of the chip's speed.")


PRINTERS = {"md": Markdown, "csv": Csv, "json": Json, "jsonl": JsonLines, "sql": Sql}


def printer(form: str, out: TextIO, options: Any, backend: str, origin: "Provenance") -> Printer:
    """The printer of a format in PRINTERS."""
    return PRINTERS[form](out, options, backend, origin)
