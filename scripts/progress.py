"""Runs a long command, keeps its whole output in a log file, and shows one condensed line of progress."""
import pathlib
import queue
import re
import subprocess
import sys
import threading
import time
from typing import Mapping, Optional, Sequence

STEP = re.compile(r"\[(\d+)/(\d+)\]")
TAIL_LINES = 60


class Failed(RuntimeError):
    """A command failed; the message holds the end of its output and the path of the whole of it."""


class Line:
    """The progress line: rewritten in place on a terminal, printed now and then elsewhere."""

    def __init__(self, title: str):
        self.title = title
        self.started = time.monotonic()
        self.terminal = sys.stderr.isatty()
        self.printed = self.started
        self.step = ""
        if not self.terminal:
            print(f"strata-hip: {title}", file=sys.stderr, flush=True)

    def text(self) -> str:
        return f"strata-hip: {self.title} {self.step} {time.monotonic() - self.started:4.0f} s"

    def tick(self) -> None:
        """Shows where the command is; away from a terminal at most every 15 seconds."""
        now = time.monotonic()
        if self.terminal:
            print(f"\r\033[K{self.text()}", end="", file=sys.stderr, flush=True)
        elif now - self.printed > 15:
            self.printed = now
            print(self.text(), file=sys.stderr, flush=True)

    def finish(self, word: str) -> None:
        start = "\r\033[K" if self.terminal else ""
        print(f"{start}strata-hip: {self.title}: {word} in {time.monotonic() - self.started:.0f} s", file=sys.stderr, flush=True)


def run(title: str, command: Sequence[str], log: pathlib.Path, env: Optional[Mapping[str, str]] = None,
        cwd: Optional[pathlib.Path] = None) -> None:
    """Runs `command` with its output in `log`. Steps like ninja's [12/193] in the output become the shown progress.

    Raises Failed when the command exits with a code other than 0."""
    log.parent.mkdir(parents=True, exist_ok=True)
    line = Line(title)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, errors="replace", env=env, cwd=cwd)
    lines: "queue.Queue[Optional[str]]" = queue.Queue()

    def read() -> None:
        assert process.stdout
        for text in process.stdout:
            lines.put(text)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    tail = []
    with log.open("w") as file:
        while True:
            try:
                text = lines.get(timeout=1)
            except queue.Empty:
                line.tick()
                continue
            if text is None:
                break
            file.write(text)
            tail = (tail + [text])[-TAIL_LINES:]
            if found := STEP.search(text):
                line.step = f"[{found[1]}/{found[2]}]"
                line.tick()
    code = process.wait()
    if code != 0:
        line.finish("failed")
        raise Failed("".join(tail) + f"\nstrata-hip: {title} failed (exit code {code}); the whole output: {log}")
    line.finish("done")
