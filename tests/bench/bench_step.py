#!/usr/bin/env python3
"""What a step of a real model takes, by kind of layer: stock ggml-hip's and ours, counted and modelled on the emulator.

    python tests/bench/bench_step.py [--model NAME] [-p N] [--stock FILE] [-o md|json] [--plot FILE]

A model of the real widths and random weights is made three times, with these layers:

    short   linear, attention, last              last: linear, and of its rows only those that are sampled from
    more    linear, linear, attention, last
    most    linear, attention, linear, attention, last

A step is a prompt of N tokens (default 512), or one token after it. A linear layer takes what "more" takes more than "short", one of full
attention what "most" takes beside that; the last layer and the output take what is left of "short". A whole model is their sum, with the
layers that the real one has. Time is modelled (docs/model.md), with a gap of 2 us between launches, which stock's graphs make shorter on
hardware. Products that stock gives to hipBLAS are computed by the CPU: of them nothing is counted, and the table says how many there are.
"""
import argparse
import ctypes
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, TextIO

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "models")]

import real_shapes  # noqa: E402
from strata_hip import bench_ops, log, pictures  # noqa: E402
from strata_hip.calibrate import GAP_US  # noqa: E402
from strata_hip.errors import StrataError  # noqa: E402

# The shape, and how many layers of either kind the real model has.
MODELS = {"qwen3.6-35b-a3b": (real_shapes.QWEN36_35B_A3B, 30, 10), "qwen3.5-27b": (real_shapes.QWEN35_27B, 48, 16)}
VARIANTS = {"short": {"n_layer": 3, "interval": 2}, "more": {"n_layer": 4, "interval": 3}, "most": {"n_layer": 5, "interval": 2}}
PHASES = ("prompt", "token")


@dataclasses.dataclass
class Cost:
    """What a part of a step takes, or a difference of such."""
    launches: float = 0
    blas: float = 0           # products given to hipBLAS
    instructions: float = 0
    line_bytes: float = 0     # distinct 128-byte lines of each launch
    kernel_us: float = 0      # modelled

    @property
    def us(self) -> float:
        """Modelled, gaps included."""
        return self.kernel_us + GAP_US * self.launches

    def __sub__(self, other: "Cost") -> "Cost":
        return self + other * -1

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(a + b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(other))))

    def __mul__(self, times: float) -> "Cost":
        return Cost(*(times * value for value in dataclasses.astuple(self)))


def child(stock: str, device: str, model: str, n_prompt: int) -> None:
    """Runs a prompt and a token on one device. Prints how many products were given to hipBLAS in each."""
    process = bench_ops.Process(pathlib.Path(stock))
    from strata_hip import bench
    phase = process.emulator.strata_emulator_count_phase
    phase.argtypes, phase.restype = [ctypes.c_char_p], None
    context = bench.Context("strata-hip", "emulator")
    case = bench.Case(model, n_prompt, 1, n_batch=n_prompt, n_ubatch=n_prompt, flash_attn=1, devices=device)
    with log.captured(quiet=True):
        context.prepare(case)
        blas = [process.position()["blas"]]
        for name, step in zip(PHASES, (lambda: context.prompt(n_prompt, n_prompt), lambda: context.generate(1))):
            phase(name.encode())
            step()
            phase(b"")
            blas.append(process.position()["blas"])
        context.free()
    print("@blas " + json.dumps(dict(zip(PHASES, (b - a for a, b in zip(blas, blas[1:]))))))


def run(stock: pathlib.Path, device: str, model: pathlib.Path, n_prompt: int) -> Dict[str, Cost]:
    """The two steps' costs on one device. Raises StrataError."""
    with tempfile.TemporaryDirectory() as folder:
        counts = pathlib.Path(folder) / "counts.json"
        environment = dict(os.environ, STRATA_COUNT=str(counts), STRATA_MODEL="1", GGML_CUDA_DISABLE_GRAPHS="1")
        process = subprocess.run([sys.executable, __file__, "--child", str(stock), device, str(model), str(n_prompt)], env=environment,
                                 stdout=subprocess.PIPE, text=True)
        if process.returncode != 0:
            raise StrataError(f"{model.stem} on {device} ended with exit code {process.returncode}")
        blas = json.loads(process.stdout.rpartition("@blas ")[2])
        launches = json.loads(counts.read_text())["launches"]
    costs = {}
    for name in PHASES:
        found = bench_ops.measure([each for each in launches if each["phase"] == name], blas[name])
        costs[name] = Cost(found.launches, found.blas, found.instructions, found.line_bytes, found.modelled_us or 0.0)
    return costs


def parts(measured: Dict[str, Cost], linear: int, attention: int) -> Dict[str, Cost]:
    """The costs of each kind of layer, of what is left, and of the whole model, from those of the variants."""
    one = measured["more"] - measured["short"]
    found = {"linear layer": one, "attention layer": measured["most"] - measured["short"] - one}
    found["last layer and output"] = measured["short"] - one - found["attention layer"]
    found["model"] = found["linear layer"] * (linear - 1) + found["attention layer"] * attention + found["last layer and output"]
    return found


def measure(name: str, stock: pathlib.Path, n_prompt: int) -> Dict[str, Dict[str, Dict[str, Cost]]]:
    """{phase: {part: {"stock": cost, "ours": cost}}}. Raises StrataError."""
    shape, linear, attention = MODELS[name]
    measured: Dict[str, Dict[str, Dict[str, Cost]]] = {side: {phase: {} for phase in PHASES} for side in bench_ops.BACKENDS}
    with tempfile.TemporaryDirectory(prefix="strata-step-") as folder:
        for variant, changes in VARIANTS.items():
            model = pathlib.Path(folder) / f"{name}-{variant}.gguf"
            real_shapes.write_random(model, dataclasses.replace(shape, **changes))
            for side, device in bench_ops.BACKENDS.items():
                print(f"{variant} on {device} ...", file=sys.stderr)
                for phase, cost in run(stock, device, model, n_prompt).items():
                    measured[side][phase][variant] = cost
            model.unlink()
    result: Dict[str, Dict[str, Dict[str, Cost]]] = {phase: {} for phase in PHASES}
    for side in bench_ops.BACKENDS:
        for phase in PHASES:
            for part, cost in parts(measured[side][phase], linear, attention).items():
                result[phase].setdefault(part, {})[side] = cost
    return result


def markdown(name: str, n_prompt: int, result: Dict[str, Dict[str, Dict[str, Cost]]], out: TextIO) -> None:
    """The table."""
    titles = {"prompt": f"a prompt of {n_prompt} tokens", "token": f"a token after {n_prompt}"}
    _, linear, attention = MODELS[name]
    for phase, rows in result.items():
        print(f"\n{name} ({linear} linear and {attention} attention layers), {titles[phase]}\n", file=out)
        print("| | launches stock | ours | M instructions stock | ours | MB stock | ours | modelled us stock | ours | stock / ours |", file=out)
        print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|", file=out)
        for part, sides in rows.items():
            stock, ours = sides["stock"], sides["ours"]
            more = f" + {stock.blas:g} hipBLAS" if stock.blas else ""
            print(f"| {part} | {stock.launches:g}{more} | {ours.launches:g} | {stock.instructions / 1e6:.2f}{more and ' + ?'} | "
                  f"{ours.instructions / 1e6:.2f} | {stock.line_bytes / 1e6:.2f}{more and ' + ?'} | {ours.line_bytes / 1e6:.2f} | "
                  f"{stock.us:.0f}{more and ' + ?'} | {ours.us:.0f} | {stock.us / ours.us:.2f} |", file=out)


def plot(name: str, n_prompt: int, result: Dict[str, Dict[str, Dict[str, Cost]]], path: str) -> None:
    """Draws the whole steps' modelled time by part, kernels and gaps. Raises StrataError."""
    pyplot = pictures.pyplot()
    _, linear, attention = MODELS[name]
    times = {"linear layer": linear - 1, "attention layer": attention, "last layer and output": 1}
    figure, axes = pyplot.subplots(1, len(PHASES), figsize=(11, 4))
    for axis, phase in zip(axes, PHASES):
        sides: List[str] = list(bench_ops.BACKENDS)
        bottom = [0.0] * len(sides)
        for part, count in times.items():
            heights = [count * result[phase][part][side].kernel_us / 1e3 for side in sides]
            axis.bar(sides, heights, bottom=bottom, label=f"{count} x {part}" if count > 1 else part)
            bottom = [a + b for a, b in zip(bottom, heights)]
        gaps = [GAP_US * result[phase]["model"][side].launches / 1e3 for side in sides]
        axis.bar(sides, gaps, bottom=bottom, label="gaps between launches", color="lightgrey")
        axis.set_title(f"a prompt of {n_prompt} tokens" if phase == "prompt" else f"a token after {n_prompt}")
        axis.set_ylabel("modelled ms")
    axes[1].legend(fontsize=8)
    figure.suptitle(f"{name}, Q4_K: modelled, not measured on hardware")
    figure.tight_layout()
    pictures.save(figure, path)


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        _, _, stock, device, model, n_prompt = sys.argv
        child(stock, device, model, int(n_prompt))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=list(MODELS), default="qwen3.6-35b-a3b")
    parser.add_argument("-p", "--n-prompt", type=int, default=512, metavar="N")
    parser.add_argument("--stock", metavar="FILE", help="libggml-hip.so, built by tests/bench/peer/build_stock_hip.py")
    parser.add_argument("-o", "--output", choices=["md", "json"], default="md")
    parser.add_argument("--plot", metavar="FILE")
    options = parser.parse_args()
    if options.plot:
        pictures.check(options.plot)
    result = measure(options.model, bench_ops.stock_library(options.stock), options.n_prompt)
    if options.output == "json":
        described: Any = {phase: {part: {side: dataclasses.asdict(cost) | {"us": cost.us} for side, cost in sides.items()}
                                  for part, sides in rows.items()} for phase, rows in result.items()}
        print(json.dumps(described, indent=1))
    else:
        markdown(options.model, options.n_prompt, result, sys.stdout)
    if options.plot:
        plot(options.model, options.n_prompt, result, options.plot)


if __name__ == "__main__":
    try:
        main()
    except StrataError as error:
        sys.exit(f"strata-hip: {error}")
