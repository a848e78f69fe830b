"""A long-lived program of llama.cpp that this process stands for: its device, its signals, its exit code, and when it is ready."""
import contextlib
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set

import psutil

from . import plugin
from .errors import DeviceError, StrataError

DEVICE = "STRATA0"
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
KEPT_BYTES = 1 << 16
_FIRST_ERROR = re.compile(r"^(?:[\d.]+ E +|(?=error\b|.*GGML_ASSERT\())(.+)", re.MULTILINE)  # "0.00.015.911 E ..."
_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>


def value_of(flags: Sequence[str], variable: Optional[str], arguments: Sequence[str]) -> Optional[str]:
    """The value that a program is given for a flag on its command line, where the last one counts, or else by an environment variable;
    None if by neither."""
    given = [value for flag, value in zip(arguments, [*arguments[1:], ""]) if flag.replace("_", "-") in flags]
    return given[-1] if given else os.environ.get(variable) if variable else None


def environment(devices: Optional[str], runtime: Optional[str]) -> Dict[str, str]:
    """The environment in which a program finds this backend's device.

    devices: the comma separated names of the devices that it is to use; None: its own choice. If ours is not among them the environment
    is as it is. runtime: as for plugin.load(). Raises DeviceError if there is no such device."""
    if devices is not None and DEVICE not in devices.split(","):
        return dict(os.environ)
    return dict(os.environ, STRATA_RUNTIME=_runtime(runtime), GGML_BACKEND_PATH=str(plugin.library_folder() / plugin.PLUGIN))


def _runtime(wanted: Optional[str]) -> str:
    """"hip" or "emulator". The device is looked for in another process: this one would hold it for as long as the program runs."""
    command = [sys.executable, "-m", "strata_hip.cli", "devices", "-o", "json", *(["--runtime", wanted] if wanted else [])]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise DeviceError(result.stderr.strip().removeprefix("strata-hip: "))
    return str(json.loads(result.stdout)["runtime"])


def listening(process: int) -> List[str]:
    """What a process listens on: "127.0.0.1:8080", "[::]:8080", or the path of a socket."""
    found = []
    with contextlib.suppress(psutil.Error):
        of = psutil.Process(process)
        for each in of.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN:
                host = f"[{each.laddr.ip}]" if ":" in each.laddr.ip else each.laddr.ip
                found.append(f"{host}:{each.laddr.port}")
        found += [each.laddr for each in of.net_connections("unix") if each.laddr]
    return found


def run(command: List[str], environment: Dict[str, str], ready: Callable[[int], Optional[str]]) -> int:
    """Runs a program until it ends. Signals that this process gets are passed on; if this one is killed the program is too.

    ready: is called with the program's process id every now and then until it returns what is to be told; None: not yet.
    Returns the exit code, 128 + N after signal N; if it fails before it is ready that is told on stderr, with the first error among what it
    wrote there. Raises StrataError if it cannot be started."""
    name = os.path.basename(command[0])
    prctl = ctypes.CDLL(None).prctl
    try:
        # Of a session of its own: Ctrl-C on a terminal would reach it twice, which it takes for a demand to end at once.
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, start_new_session=True,
                                   preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))
    except OSError as error:
        raise StrataError(f"{command[0]} cannot be started: {error.strerror}") from None
    said = bytearray()
    with _passing_signals_on(process) as passed_on:
        reader = threading.Thread(target=_pass_on, args=(process, said), daemon=True)
        reader.start()
        told = None
        while process.poll() is None:
            told = told or _tell(name, ready(process.pid))
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(None if told else 0.1)
        reader.join(5)  # a process that it has started may hold the other end for longer
    code = process.returncode
    if code != 0 and not told and -code not in passed_on:
        how = f"with exit code {code}" if code > 0 else f"by {signal.Signals(-code).name}"
        first = _FIRST_ERROR.search(said.decode("utf-8", "replace"))
        print(f"strata-hip: {name} ended {how} before it was ready{'; its first error: ' + first[1] if first else ''}", file=sys.stderr)
    return code if code >= 0 else 128 - code


def _tell(name: str, what: Optional[str]) -> Optional[str]:
    if what:
        print(f"strata-hip: {name} is ready: {what}", file=sys.stderr, flush=True)
    return what


def _pass_on(process: "subprocess.Popen[bytes]", said: bytearray) -> None:
    """The program's stderr goes to ours as it comes, also what is no line yet; its end is kept in `said`."""
    assert process.stderr
    while some := os.read(process.stderr.fileno(), 1 << 16):
        said += some
        del said[:-KEPT_BYTES]
        with contextlib.suppress(OSError):  # nobody reads ours any more; the program goes on
            sys.stderr.buffer.write(some)
            sys.stderr.buffer.flush()


@contextlib.contextmanager
def _passing_signals_on(process: "subprocess.Popen[bytes]") -> Iterator[Set[int]]:
    """Yields those that were passed on."""
    passed_on: Set[int] = set()

    def pass_on(number: int, _: Any) -> None:
        passed_on.add(number)
        process.send_signal(number)

    before = {each: signal.signal(each, pass_on) for each in SIGNALS}
    try:
        yield passed_on
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
