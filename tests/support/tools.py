"""Programs of the pinned llama.cpp (scripts/build_tools.py), run with the plugin on STRATA0."""
import collections
import functools
import os
import pathlib
import re
import subprocess
import sys
from typing import Counter, List, NamedTuple

from .libraries import library_dir
from .paths import ROOT

PRELOAD = "strata-preload"


@functools.cache
def tool(name: str) -> pathlib.Path:
    """The path of a program or of the preloaded library, built if need be."""
    command = [sys.executable, str(ROOT / "scripts" / "build_tools.py"), name]
    return pathlib.Path(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())


def environment(**more: str) -> dict:
    """What makes a program of llama.cpp load the plugin before its main(); the emulator unless the environment says otherwise."""
    env = dict(os.environ, GGML_BACKEND_PATH=str(library_dir() / "libggml-strata-hip.so"), LD_PRELOAD=str(tool(PRELOAD)), **more)
    env.setdefault("STRATA_RUNTIME", "emulator")
    return env


def run_tool(name: str, *arguments: object, timeout: float, cwd: "str | pathlib.Path | None" = None, **more: str) -> subprocess.CompletedProcess:
    """Runs a program; `more` are environment variables. Its stdout holds stderr too, without colours."""
    result = subprocess.run([str(tool(name)), *map(str, arguments)], env=environment(**more), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout, cwd=cwd)
    result.stdout = re.sub(r"\x1b\[[0-9;]*m|\d+\.\d\d\.\d{3}\.\d{3} [A-Z] ", "", result.stdout)
    return result


class Graph(NamedTuple):
    """A graph as the scheduler split it."""
    splits: List[str]          # the backend of each split
    on_cpu: Counter[str]       # ops that the CPU computes: "GET_ROWS(inp_embd)" -> how often


def graphs(log: str) -> List[Graph]:
    """The graphs in a log that was written with GGML_SCHED_DEBUG=2."""
    found: List[Graph] = []
    for line in log.splitlines():
        if split := re.search(r"## SPLIT #(\d+): (\S+) #", line):
            if split[1] == "0":
                found.append(Graph([], collections.Counter()))
            found[-1].splits.append(split[2])
        elif node := re.search(r"node #\s*\d+ \(\s*(\S+)\):\s+(\S.*?)? \(.{5}\) \[\s*(\S+)\s", line):
            if node[3] == "CPU" and found:
                found[-1].on_cpu[f"{node[1]}({re.sub('[-_ ]?[0-9]+.*$', '', node[2] or '')})"] += 1
    return found
