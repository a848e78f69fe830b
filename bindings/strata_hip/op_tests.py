"""`strata-hip ops`: ggml's own operator tests (test-backend-ops of the pinned llama.cpp) on the device."""
import argparse
import collections
import contextlib
import dataclasses
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Dict, Generator, Iterable, Iterator, List, Optional, Sequence, Tuple

from . import plugin
from .errors import StrataError
from .tools import PRELOAD, tools

PROGRAM = "test-backend-ops"
CASES_A_RUN = 200  # given by name on a command line
REASONS_SHOWN, FAILURES_SHOWN, LINES_SHOWN = 10, 4, 3  # a summary fits on a screen
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(r"(?:^|.*[ \]])(?P<op>[A-Z][A-Z0-9_]*)\((?P<parameters>.*)\): (?P<verdict>OK|FAIL|not supported \[.*\])\s*$")


@dataclasses.dataclass(frozen=True)
class Case:
    """One of test-backend-ops' cases."""
    op: str
    parameters: str
    refusal: Optional[str]  # why the device does not compute it; None if it does
    reference: bool         # whether the CPU backend, which is what results are compared with, computes it

    @property
    def name(self) -> str:
        return f"{self.op}({self.parameters})"

    @property
    def runs(self) -> bool:
        return self.refusal is None and self.reference


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of a case that was run."""
    case: Case
    passed: bool
    message: str     # of a failure
    seconds: float


class Tests:
    """test-backend-ops with the plugin on one device."""

    def __init__(self, runtime: Optional[str] = None, device: str = "STRATA0", file: Optional[pathlib.Path] = None):
        """file: operators that test-export-graph-ops wrote, instead of the program's own cases. Raises DeviceError if there is no
        device, StrataError if the programs are not there."""
        self.device = device
        self._arguments = ["--test-file", str(file)] if file else []
        self.position: Dict[str, int] = {}  # name of a case -> where test-backend-ops has it; after cases()
        found = plugin.load(runtime).runtime  # first: tools() may compile for minutes
        self.program, self.preload = tools(PROGRAM, PRELOAD)
        self.environment = dict(os.environ, STRATA_RUNTIME=found, GGML_BACKEND_PATH=str(plugin.library_folder() / plugin.PLUGIN))
        if file:  # their surroundings are not initialised: scripts/tools/preload.cpp
            self.environment.update(LD_PRELOAD=str(self.preload), STRATA_CLEAR_BUFFERS="1")

    @property
    def emulated(self) -> bool:
        return self.environment["STRATA_RUNTIME"] == "emulator"

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        """The program, its stderr in its stdout."""
        return subprocess.Popen([str(self.program), *arguments, "-b", self.device, *self._arguments], env=dict(self.environment, **environment),
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")

    def cases(self) -> List[Case]:
        """All cases, those of fused operators included, and whether the device takes them. Runs none."""
        process = self.start("test", LD_PRELOAD=str(self.preload), STRATA_REFUSALS="all")
        assert process.stdout
        found: List[Case] = []
        refusal: Optional[str] = None
        tail: List[str] = []
        with progress(None, "listing the cases") as bar:
            for line in process.stdout:
                tail = tail[-20:] + [line]
                if line.startswith("@refused\t"):
                    _, op, _, reason = line.rstrip("\n").split("\t")
                    refusal = refusal or (reason if reason != "no kernel for this op" else f"{reason} ({op})")
                elif match := _LINE.match(_COLOUR.sub("", line)):
                    found.append(Case(match["op"], match["parameters"], refusal, "CPU" not in match["verdict"]))
                    refusal = None
                    bar.update()
        if process.wait() != 0 or not found:
            raise StrataError(f"{PROGRAM} did not list its cases (exit code {process.returncode}):\n{''.join(tail)}")
        self.position = {case.name: i for i, case in reversed([*enumerate(found)])}
        return found

    def run(self, cases: Sequence[Case], jobs: Optional[int] = None) -> Generator[Result, None, None]:
        """Runs some of cases(), `jobs` programs at a time, and yields each result as it comes. jobs=None: on the emulator as many as
        there are cores, on a GPU one. A case that ends the program counts as failed; the rest go on without it."""
        jobs = jobs or (len(os.sched_getaffinity(0)) if self.emulated else 1)
        runs = _Runs(self, [*_portions(cases, jobs)], jobs)
        try:
            yield from runs.results()
        finally:  # nobody wants the rest
            runs.end()

    def command(self, case: Case) -> str:
        """What repeats a case in a shell."""
        names = ["STRATA_RUNTIME", "GGML_BACKEND_PATH"] + (["LD_PRELOAD", "STRATA_CLEAR_BUFFERS"] if self._arguments else [])
        variables = " ".join(f"{name}={self.environment[name]}" for name in names)
        return " ".join([variables, str(self.program), "test", "-b", self.device, *self._arguments, "-o", f"'{case.name}'"])


Portion = Dict[str, List[Case]]  # cases of one run of the program, by their names; a few names are listed twice


def _portions(cases: Iterable[Case], jobs: int) -> Iterator[Portion]:
    """All cases of a name come into one portion: the program runs them together."""
    by_name: Portion = collections.defaultdict(list)
    for case in cases:
        by_name[case.name].append(case)
    names = [*by_name]
    size = max(1, min(CASES_A_RUN, -(-len(names) // jobs)))
    for first in range(0, len(names), size):
        yield {name: by_name[name] for name in names[first:first + size]}


class _Runs:
    """Several runs of test-backend-ops at a time, which share the cores among them."""

    def __init__(self, tests: Tests, portions: List[Portion], jobs: int):
        cores = max(1, len(os.sched_getaffinity(0)) // jobs)
        # The CPU backend, which computes what is compared with, takes four threads for itself; OpenMP's own limit holds it back.
        limits = {"STRATA_EMULATOR_THREADS": str(cores), "OMP_THREAD_LIMIT": str(cores)} if jobs > 1 and tests.emulated else {}
        self._tests, self._limits = tests, {name: value for name, value in limits.items() if name not in tests.environment}
        self._todo = collections.deque(portions)
        self._told: "queue.SimpleQueue[Result | BaseException | None]" = queue.SimpleQueue()  # None: a thread has ended
        self._processes: Dict[int, "subprocess.Popen[str]"] = {}  # of each thread
        self._lock = threading.Lock()  # of the processes
        self._ended = False
        self._threads = [threading.Thread(target=self._work, args=(i,), daemon=True) for i in range(jobs)]
        for thread in self._threads:
            thread.start()

    def results(self) -> Iterator[Result]:
        left = len(self._threads)
        while left:
            told = self._told.get()
            if told is None:
                left -= 1
            elif isinstance(told, BaseException):
                raise told
            else:
                yield told

    def end(self) -> None:
        """Ends what still runs."""
        with self._lock:
            self._ended = True
            for process in self._processes.values():
                process.kill()
        for thread in self._threads:
            thread.join()

    def _work(self, thread: int) -> None:
        try:
            while True:
                try:
                    portion = self._todo.popleft()
                except IndexError:
                    break
                with self._lock:
                    if self._ended:
                        break
                    process = self._processes[thread] = self._tests.start("test", "-o", ",".join(portion), **self._limits)
                self._read(process, portion)
        except BaseException as error:  # results() raises it
            self._told.put(error)
        finally:
            self._told.put(None)

    def _read(self, process: "subprocess.Popen[str]", waiting: Portion) -> None:
        """Tells the results of one run, and leaves what a case that ended it kept from running to another."""
        assert process.stdout
        told: List[str] = []
        started = time.monotonic()
        for line in process.stdout:
            line = _COLOUR.sub("", line).rstrip()
            match = _LINE.match(line)
            name = f"{match['op']}({match['parameters']})" if match else ""
            if match is None or name not in waiting:
                told = telling(told, 9) + [line]
                continue
            case = waiting[name].pop()
            if not waiting[name]:
                del waiting[name]
            now = time.monotonic()
            passed = match["verdict"] == "OK"
            self._told.put(Result(case, passed, "" if passed else "\n".join([*told, line]), now - started))
            started, told = now, []
        code = process.wait()
        if waiting and not self._ended:
            culprit = min(waiting, key=self._tests.position.__getitem__)  # the first that was not reported
            ended = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
            for case in waiting.pop(culprit):
                self._told.put(Result(case, False, "\n".join([*told, f"{PROGRAM} {ended} here"]), time.monotonic() - started))
            if waiting:
                self._todo.appendleft(waiting)


def chosen(cases: Iterable[Case], ops: Optional[str], pattern: Optional[str]) -> List[Case]:
    """The cases whose op is in the comma separated list `ops` (names, or regexes that match a whole name) and whose parameters
    `pattern` is found in. A full case name in `ops` is taken too. Raises StrataError for a wrong regex or if nothing is left."""
    kinds, expression = filters(ops, pattern)

    def wanted(case: Case) -> bool:
        return any(case.name == kind if isinstance(kind, str) else kind.fullmatch(case.op) for kind in kinds)

    found = [case for case in cases if wanted(case) and expression.search(case.parameters)]
    if not found:
        raise nothing_fits(ops, pattern)
    return found


def filters(ops: Optional[str], pattern: Optional[str]) -> "Tuple[List[str | re.Pattern[str]], re.Pattern[str]]":
    """What -o and -p ask for: (whole names of cases and regexes of ops, regex of parameters). Raises StrataError for a wrong regex."""
    try:
        names = [ops] if ops and "(" in ops else (ops or ".*").split(",")
        return [name if "(" in name and name.endswith(")") else re.compile(name) for name in names], re.compile(pattern or "")
    except re.error as error:
        raise StrataError(f"not a regular expression: {error}") from None


def nothing_fits(ops: Optional[str], pattern: Optional[str]) -> StrataError:
    return StrataError(f"no case of {PROGRAM} fits -o {ops or '.*'} -p {pattern or '.*'}; `strata-hip ops list` lists them, and perf has "
                       "cases of its own")


# The command's parts. Each returns the exit code.

def run(options: argparse.Namespace) -> int:
    filters(options.op, options.pattern)  # first: what comes then takes a while
    tests = Tests(options.runtime)
    if options.action == "perf":
        return perf(tests, options)
    cases = chosen(tests.cases(), options.op, options.pattern)
    if options.action == "test":
        return test(tests, cases, options.jobs)
    return {"list": list_cases, "support": support}[options.action](tests, cases)


def list_cases(tests: Tests, cases: List[Case]) -> int:
    """Every case, a tab, and the verdict."""
    for case in cases:
        print(f"{case.name}\t{case.refusal and 'refused: ' + case.refusal or ('accepted' if case.reference else 'accepted, no reference')}")
    return 0


def support(tests: Tests, cases: List[Case]) -> int:
    """A table of ops."""
    by_op = collections.defaultdict(list)
    for case in cases:
        by_op[case.op].append(case)
    width = max(map(len, by_op))
    print(f"{'op':{width}} accepted    of")
    for op, some in sorted(by_op.items()):
        print(f"{op:{width}} {sum(case.refusal is None for case in some):8} {len(some):5}")
    print(f"\n{sum(case.refusal is None for case in cases)} of {len(cases)} cases are accepted.")
    print_refusals(cases)
    return 0


def test(tests: Tests, cases: List[Case], jobs: Optional[int]) -> int:
    """Runs what the device accepts; a summary."""
    todo = [case for case in cases if case.runs]
    results: List[Result] = []
    started = time.monotonic()
    interrupted = False
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # what was run so far is told
    with progress(len(todo)) as bar, contextlib.closing(tests.run(todo, jobs)) as run_one:
        try:
            for result in run_one:
                results.append(result)
                bar.update()
                failures = sum(not each.passed for each in results)
                bar.set_postfix_str(f"{failures} failed, {result.case.op}" if failures else result.case.op)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            signal.signal(signal.SIGINT, before)
    summary(tests, cases, results, time.monotonic() - started)
    if interrupted:
        print(f"\nInterrupted: {len(todo) - len(results)} cases were not run.")
        return 128 + signal.SIGINT
    return 0 if all(result.passed for result in results) else 1


def summary(tests: Tests, cases: List[Case], results: List[Result], seconds: float) -> None:
    failed = sorted((result for result in results if not result.passed), key=lambda result: tests.position[result.case.name])
    print(f"{len(cases)} cases: {len(results)} run in {seconds:.0f} s, {len(results) - len(failed)} passed, {len(failed)} failed; "
          f"{sum(case.refusal is not None for case in cases)} refused by the device; "
          f"{sum(case.refusal is None and not case.reference for case in cases)} not computed by the reference")
    print_refusals(cases)
    cost: Dict[str, float] = collections.defaultdict(float)
    for result in results:
        cost[result.case.op] += result.seconds
    most = sorted(cost.items(), key=lambda item: -item[1])[:6]
    print("Most time: " + ", ".join(f"{op} {spent:.0f} s" for op, spent in most))
    for result in failed[:FAILURES_SHOWN]:
        told = "\n".join(telling(result.message.splitlines(), LINES_SHOWN))
        print(f"\nFAILED {result.case.name}\n{told}\n  {tests.command(result.case)}")
    if rest := collections.Counter(result.case.op for result in failed[FAILURES_SHOWN:]):
        print(f"\n... and {rest.total()} more: " + ", ".join(f"{count} of {op}" for op, count in rest.most_common())
              + "; -o and -p choose which to run again")


def telling(lines: List[str], count: int) -> List[str]:
    """The last lines, and before them an assertion that failed: a backtrace may lie between."""
    return [line for line in lines[:-count] if "GGML_ASSERT(" in line] + lines[-count:]


def print_refusals(cases: Iterable[Case]) -> None:
    """How many cases are refused for which reason, by op."""
    reasons: Dict[Tuple[str, str], int] = collections.Counter((case.op, case.refusal) for case in cases if case.refusal)
    if reasons:
        print("Refused:")
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    for (op, reason), count in ranked[:REASONS_SHOWN]:
        print(f"  {count:5} {op}: {reason}")
    if len(ranked) > REASONS_SHOWN:
        print(f"  {sum(count for _, count in ranked[REASONS_SHOWN:]):5} for {len(ranked) - REASONS_SHOWN} other reasons: `strata-hip ops list`")


def perf(tests: Tests, options: argparse.Namespace) -> int:
    """test-backend-ops' own timing, line by line. Raises StrataError if nothing fits."""
    if tests.emulated:
        print("Emulated: these times are the emulator's on this CPU, seconds to minutes a case, and say nothing of the chip's speed.",
              flush=True)
    arguments = [each for flag, value in (("-o", options.op), ("-p", options.pattern)) if value for each in (flag, value)]
    process = tests.start("perf", *arguments)
    assert process.stdout
    timed = refused = 0
    tail: List[str] = []
    with progress(None, "timing") as bar:
        for line in process.stdout:
            line = _COLOUR.sub("", line).rstrip()
            tail = tail[-9:] + [line]
            if "us/run" in line:
                timed += 1
                bar.clear()
                print(line + (" (emulated)" if tests.emulated else ""), flush=True)
            refused += "not supported" in line
            bar.update("us/run" in line or "not supported" in line)
    if process.wait() != 0:
        print("\n".join([*tail, f"{PROGRAM} ended with exit code {process.returncode} here"]))
    elif timed + refused == 0:
        raise nothing_fits(options.op, options.pattern)
    print(f"{timed} cases timed, {refused} refused")
    return 1 if process.returncode else 0


def progress(total: Optional[int], title: Optional[str] = None) -> Any:
    """A tqdm bar that shows only on a terminal."""
    import tqdm
    return tqdm.tqdm(total=total, desc=title, unit="case", leave=False, file=sys.stderr, disable=not sys.stderr.isatty())
