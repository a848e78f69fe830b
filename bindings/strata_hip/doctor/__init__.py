"""`strata-hip doctor`: is this machine set up right? Each module beside this one has a check a function."""
import argparse
import dataclasses
import json
import pathlib
import textwrap
from typing import List

from ..errors import StrataError
from . import gpu, memory, software
from .finding import Finding, Level
from .system import System

WIDTH = 110


def examine(system: System) -> List[Finding]:
    """Every check, in the order in which its remedies are best applied."""
    return [gpu.graphics(system), *gpu.permissions(system), gpu.kernel(system), gpu.firmware(system), software.hip_library(system),
            memory.limits(system), memory.iommu(system), gpu.power(system), *software.llama_cpp(), *software.plugin(system),
            software.environment(), software.clang()]


def run(options: argparse.Namespace) -> int:
    """Prints the findings. The exit code is 1 if anything is bad. Raises StrataError if options.root is no folder."""
    root = pathlib.Path(options.root)
    if not root.is_dir():
        raise StrataError(f"--root {root}: not a folder")
    findings = examine(System(root))
    print(as_json(findings) if options.output == "json" else as_text(findings))
    return 1 if any(finding.level is Level.BAD for finding in findings) else 0


def as_json(findings: List[Finding]) -> str:
    """A list of objects with check, level, found, meaning and remedy."""
    return json.dumps([{**dataclasses.asdict(finding), "level": finding.level.value} for finding in findings], indent=2)


def as_text(findings: List[Finding]) -> str:
    """A line a finding, with what it means and what to do below, and a verdict at the end."""
    width = max(len(finding.check) for finding in findings)
    lines = []
    for finding in findings:
        start = f"{finding.level.value:5}{finding.check:{width}}  "
        lines += textwrap.wrap(finding.found, WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False)
        for word, text in (("means:", finding.meaning), ("do:", finding.remedy)):
            if text:
                indent = " " * (len(start) + 2)
                lines += textwrap.wrap(text, WIDTH, initial_indent=f"{indent}{word} ", subsequent_indent=indent + " " * (len(word) + 1),
                                       break_long_words=False, break_on_hyphens=False)
    count = {level: sum(finding.level is level for finding in findings) for level in Level}
    verdict = "not ready to compute on a GPU" if count[Level.BAD] else "ready"
    lines += ["", f"{count[Level.OK]} ok, {count[Level.WARN]} to look at, {count[Level.BAD]} bad: {verdict}"]
    return "\n".join(lines)
