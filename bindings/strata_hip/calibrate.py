"""`strata-hip emulator calibrate`: the time model against published times of stock kernels on gfx1151.

Stock ggml-hip runs on the emulator at the shapes whose times on a real chip have been published, and the table says what the model makes
of them. One set of parameters stands for all kernels (backend/emulator/instruments/model/parameters.h); docs/model.md tells what the
outliers teach.
"""
import argparse
import csv
import dataclasses
import json
import pathlib
import sys
from typing import Callable, List, Sequence, TextIO

from . import bench_ops

GAP_US = 2.0  # between two launches that depend on each other


@dataclasses.dataclass(frozen=True)
class Published:
    """What was published for a case: microseconds, or a rate that is computed from them."""
    case: str                          # a name of bench_ops.cases()
    value: float
    unit: str = "us"
    amount: float = 0.0                # what the rate counts, in its unit times 1e-6 seconds
    note: str = ""

    def of(self, us: float) -> float:
        """A time in the published unit."""
        return us if self.unit == "us" else self.amount / us


def _experts(type: str, first: float, second: float) -> List[Published]:
    note = "published for tiles of 128 columns; stock of this version takes 16, as many as an expert has rows"
    return [Published(f"MUL_MAT_ID({type} 512x2048, 256 experts, top-8, 512 tok)", first, note=note),
            Published(f"MUL_MAT_ID({type} 2048x512, 256 experts, top-8, 512 tok)", second, note=note)]


PUBLISHED: Sequence[Published] = (
    Published("GATED_DELTA_NET(H=32 S=128 T=1)", 13.3),
    Published("GATED_DELTA_NET(H=32 S=128 T=64)", 158),
    Published("GATED_DELTA_NET(H=32 S=128 T=2048)", 5029),
    Published("GATED_DELTA_NET(H=64 S=128 T=2048)", 9289),
    Published("MUL_MAT(f32 256x2048, 1 col)", 16.0),
    Published("MUL_MAT(f32 32x2048, 1 col)", 3.2),
    Published("MUL_MAT_ID(bf16 2048x512, 256 experts, top-8, 1 tok)", 93),
    *_experts("q8_0", 2347, 2490), *_experts("q6_K", 3918, 3931), *_experts("q5_K", 2606, 2607), *_experts("q4_K", 2561, 2538),
    Published("FLASH_ATTN_EXT(f16 D=256, 16/2 heads, 512 tok, 4096 keys)", 8, "TFLOPS", 4 * 256 * 16 * 512 * 4096 / 1e6,
              "published for the tile kernel; stock of this version takes its matrix kernel"),
    Published("MUL_MAT(q4_K 4096x14336, 1 col)", 185, "GB/s", 4096 * 14336 / 256 * 144 / 1e3, "published for a whole 27B model's products"),
)


@dataclasses.dataclass
class Line:
    published: Published
    us: float
    launches: int
    simulated: float  # the smallest share of a launch's instructions that was simulated; the rest is scaled from it

    @property
    def ratio(self) -> float:
        """Modelled over published time: 1 is a hit, 1.25 is 25 % too slow."""
        return self.us / self.published.value if self.published.unit == "us" else self.published.value / self.published.of(self.us)


def measure(stock: pathlib.Path, wanted: Sequence[Published], model: str = "1") -> List[Line]:
    """Runs the cases on stock ggml-hip. Raises StrataError."""
    by_name = {case.name: case for case in bench_ops.cases()}
    lines = []
    for each in wanted:  # a process each: what one leaves in the caches is not the next one's
        stock_side = bench_ops.compare([by_name[each.case]], stock, ("stock",), model)[0].stock
        assert stock_side and stock_side.modelled_us is not None
        lines.append(Line(each, stock_side.modelled_us + GAP_US * (stock_side.launches - 1), stock_side.launches,
                          stock_side.simulated or 0.0))
    return lines


def _markdown(lines: Sequence[Line], out: TextIO) -> None:
    print("| case | launches | published | modelled | modelled / published time | simulated |", file=out)
    print("|---|--:|--:|--:|--:|--:|", file=out)
    for line in lines:
        p = line.published
        print(f"| {p.case} | {line.launches} | {p.value:g} {p.unit} | {p.of(line.us):.4g} {p.unit} | {line.ratio:.2f} | "
              f"{line.simulated:.1%} |", file=out)
    within = sum(0.75 <= line.ratio <= 1.25 for line in lines)
    print(f"\n{within} of {len(lines)} within 25 %. Modelled on the emulator, one set of parameters; a launch of several kernels has "
          f"{GAP_US:g} us between them. Simulated: the share of the instructions of its least sampled kernel; the time is scaled from it.",
          file=out)
    for note in dict.fromkeys(line.published.note for line in lines if line.published.note):
        print(f"{', '.join(line.published.case for line in lines if line.published.note == note)}: {note}.", file=out)


def _csv(lines: Sequence[Line], out: TextIO) -> None:
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["case", "launches", "unit", "published", "modelled", "ratio", "simulated"])
    for line in lines:
        p = line.published
        writer.writerow([p.case, line.launches, p.unit, p.value, round(p.of(line.us), 4), round(line.ratio, 4), line.simulated])


def _json(lines: Sequence[Line], out: TextIO) -> None:
    print(json.dumps([{"case": line.published.case, "launches": line.launches, "unit": line.published.unit,
                       "published": line.published.value, "modelled": line.published.of(line.us), "ratio": line.ratio,
                       "simulated": line.simulated, "note": line.published.note} for line in lines], indent=2), file=out)


PRINTERS: "dict[str, Callable[[Sequence[Line], TextIO], None]]" = {"md": _markdown, "csv": _csv, "json": _json}


def run(options: argparse.Namespace) -> None:
    """The command. Raises StrataError."""
    wanted = [each for each in PUBLISHED if options.pattern in each.case]
    PRINTERS[options.output](measure(bench_ops.stock_library(options.stock), wanted, options.model), sys.stdout)
