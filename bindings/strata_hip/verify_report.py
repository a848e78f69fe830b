"""What `strata-hip verify` found, as a table for people and as JSON."""
import dataclasses
import json
import math
import os
from typing import Any, Dict, List, TextIO

import numpy as np

from .provenance import Provenance
from .scores import Divergence


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a text is read."""
    n_tokens: int
    n_ubatch: int = 512
    flash_attn: bool = True
    type_k: str = "f16"
    type_v: str = "f16"
    n_seq: int = 1
    n_gpu_layers: int = -1  # -1: all and the output


@dataclasses.dataclass
class Accuracy:
    """A setting against the CPU backend."""
    setting: Setting
    perplexity: float
    cpu_perplexity: float
    difference: float        # of the perplexities, relative
    noise: float             # standard error of the mean difference of the losses [nats]
    divergence: Divergence   # of our distributions from the CPU's [nats]
    agreement: float         # share of positions with the CPU's likeliest token
    loss: np.ndarray
    digest: str
    failures: List[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Sameness:
    """Runs that must give the same bytes."""
    name: str
    runs: int
    failures: List[str]


@dataclasses.dataclass
class Report:
    """All of it."""
    model: str
    text: str
    n_tokens: int
    full: bool
    origin: Provenance
    bounds: Dict[str, float]
    own: Accuracy            # the CPU without flash attention against the CPU with it
    accuracy: List[Accuracy]
    sameness: List[Sameness]
    left_out: List[str]      # what llama.cpp itself cannot do with this model

    @property
    def failures(self) -> List[str]:
        """One line each."""
        return [f"{describe(each.setting)}: {failure}" for each in self.accuracy for failure in each.failures] + \
               [f"{each.name}: {failure}" for each in self.sameness for failure in each.failures]

    @property
    def passed(self) -> bool:
        """Whether everything is inside the bounds."""
        return not self.failures


def describe(setting: Setting) -> str:
    """A setting in words."""
    return f"ubatch {setting.n_ubatch}, fa {'on' if setting.flash_attn else 'off'}, KV {cache(setting)}, {setting.n_seq} seq, " \
           f"{layers(setting)} layers"


def cache(setting: Setting) -> str:
    """Types of the KV cache."""
    return setting.type_k if setting.type_k == setting.type_v else f"{setting.type_k}/{setting.type_v}"


def layers(setting: Setting) -> str:
    """On the device."""
    return "all" if setting.n_gpu_layers < 0 else str(setting.n_gpu_layers)


COLUMNS = ("ubatch", "fa", "KV", "seq", "layers", "tokens", "ppl", "CPU ppl", "difference", "KLD mean", "KLD 99 %", "KLD max", "same top",
           "")


def cells(each: Accuracy, verdict: str) -> List[str]:
    """A row of the table."""
    setting, kld = each.setting, each.divergence
    return [str(setting.n_ubatch), "on" if setting.flash_attn else "off", cache(setting), str(setting.n_seq), layers(setting),
            str(setting.n_tokens), f"{each.perplexity:.4f}", f"{each.cpu_perplexity:.4f}", f"{each.difference:+.2%}", f"{kld.mean:.5f}",
            f"{kld.percentile_99:.4f}", f"{kld.largest:.4f}", f"{each.agreement:.2%}", verdict]


def markdown(report: Report, out: TextIO) -> None:
    """Tables, what failed, and a verdict."""
    def show(*lines: str) -> None:
        print(*lines, sep="\n", file=out)

    def verdict(failures: List[str]) -> str:
        return "WRONG" if failures else "ok"

    rows = [list(COLUMNS), *(cells(each, verdict(each.failures)) for each in report.accuracy)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    show(f"# {os.path.basename(report.model)}: {report.n_tokens} tokens of {report.text}", *report.origin.describe(), "")
    for number, row in enumerate(rows):
        show("| " + " | ".join(f"{cell:>{width}}" for cell, width in zip(row, widths)) + " |")
        if number == 0:
            show("|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|")
    kld = report.own.divergence
    show(f"\nThe CPU without flash attention against itself with it: difference {report.own.difference:+.2%}, KLD {kld.mean:.5f}, "
         f"{kld.percentile_99:.4f}, {kld.largest:.4f}; same top {report.own.agreement:.2%}.\n")
    width = max(len(each.name) for each in report.sameness)
    show(f"| {'same bytes':{width}} | runs |       |", f"|{'-' * (width + 2)}|-----:|-------|")
    for each in report.sameness:
        show(f"| {each.name:{width}} | {each.runs:>4} | {verdict(each.failures):5} |")
    show("", *(f"left out: {each}" for each in report.left_out), *(f"WRONG {failure}" for failure in report.failures))
    checks = len(report.accuracy) + len(report.sameness)
    if report.passed:
        show(f"The output is right: {checks} checks inside the bounds.")
    else:
        bad = sum(bool(each.failures) for each in report.accuracy) + sum(bool(each.failures) for each in report.sameness)
        show(f"The output is WRONG: {bad} of {checks} checks are outside the bounds.")


def as_json(report: Report, out: TextIO) -> None:
    """One object."""
    def accuracy(each: Accuracy) -> Dict[str, Any]:
        described = {key: value for key, value in dataclasses.asdict(each).items() if key != "loss"}
        return {**described.pop("setting"), **described}

    json.dump(_without_nan({
        "model": report.model, "text": report.text, "n_tokens": report.n_tokens, "full": report.full, **dataclasses.asdict(report.origin),
        "bounds": report.bounds, "cpu_fa_off_against_on": accuracy(report.own), "accuracy": [accuracy(each) for each in report.accuracy],
        "sameness": [dataclasses.asdict(each) for each in report.sameness], "left_out": report.left_out, "failures": report.failures,
        "verdict": "right" if report.passed else "wrong"}), out, indent=1)
    out.write("\n")


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: null."""
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_nan(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


PRINTERS = {"md": markdown, "json": as_json}
