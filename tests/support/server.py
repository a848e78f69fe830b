"""A `strata-hip serve` or `rpc-server` of its own process, and a client of it."""
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from typing import Any, Iterator, List

from strata_hip import rpc, serve
from strata_hip.tools import tools

RUNTIME = os.environ.get("STRATA_RUNTIME", "emulator")


def free_port() -> int:
    """A port for a program that is started later, below those that the system gives to whoever asks for any."""
    low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(2000, max(low, 3000))
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Command:
    """A running `strata-hip` command that serves; stderr goes to a file."""

    def __init__(self, command: str, *arguments: object, log: pathlib.Path, **environment: str):
        tools(serve.PROGRAM, rpc.PROGRAM)  # built before, not while it is waited for
        self.log = log
        with log.open("w") as file:
            self.process = subprocess.Popen([sys.executable, "-m", "strata_hip.cli", command, *map(str, arguments)], stderr=file,
                                            stdout=file, env={**os.environ, "STRATA_RUNTIME": RUNTIME, **environment})

    def wait_until_ready(self, timeout: float = 300) -> str:
        """The address it tells."""
        limit = time.monotonic() + timeout
        while time.monotonic() < limit:
            if found := re.search(r"strata-hip: \S+ is ready: (\S+)", self.log.read_text(errors="replace")):
                return found[1]
            assert self.process.poll() is None, self.log.read_text(errors="replace")[-3000:]
            time.sleep(0.05)
        raise TimeoutError(self.log.read_text(errors="replace")[-3000:])

    def program(self) -> int:
        """The process id of the program that it runs."""
        child, = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(child)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Sends the signal and returns the exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self.process.wait(300)


class Server(Command):
    """`strata-hip serve`, ready, on a port of its own."""

    def __init__(self, model: pathlib.Path, *arguments: object, log: pathlib.Path, **environment: str):
        super().__init__("serve", "-m", model, "--host", "127.0.0.1", "--port", 0, *arguments, log=log, **environment)
        try:
            self.url = self.wait_until_ready()
        except BaseException:
            self.stop(signal.SIGKILL)
            raise

    def get(self, path: str) -> Any:
        return self._answer(self.url + path)

    def post(self, path: str, **fields: Any) -> Any:
        return self._answer(self._request(path, fields))

    def complete(self, prompt: "str | List[int]", n: int = 16, **more: Any) -> Any:
        """Greedy, with the tokens."""
        return self.post("/completion", prompt=prompt, n_predict=n, temperature=0, return_tokens=True, **more)

    def stream(self, path: str, **fields: Any) -> Iterator[Any]:
        """The events of an answer that is streamed."""
        with urllib.request.urlopen(self._request(path, dict(fields, stream=True)), timeout=300) as answer:
            for line in answer:
                if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                    yield json.loads(line[6:])

    def _request(self, path: str, fields: Any) -> urllib.request.Request:
        return urllib.request.Request(self.url + path, json.dumps(fields).encode(), {"Content-Type": "application/json"})

    def _answer(self, request: "str | urllib.request.Request") -> Any:
        with urllib.request.urlopen(request, timeout=300) as answer:
            text = answer.read().decode()
            return json.loads(text) if answer.headers.get_content_type() == "application/json" else text


@contextlib.contextmanager
def serving(model: pathlib.Path, *arguments: object, log: pathlib.Path, **environment: str) -> Iterator[Server]:
    """A server that ends with the block."""
    server = Server(model, *arguments, log=log, **environment)
    try:
        yield server
    finally:
        server.stop()


def sure(answer: Any, margin: float) -> bool:
    """Whether at each token of an answer with n_probs=2 the likeliest was more likely than the next by exp(margin): other orders of
    summation cannot make it another."""
    return all(first["logprob"] - second["logprob"] > margin
               for first, second in (each["top_logprobs"][:2] for each in answer["completion_probabilities"]))
