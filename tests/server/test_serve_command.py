"""`strata-hip serve` and `rpc-server` themselves: what they pass on, what they say, how they end. A script plays llama-server where the
real one is not what is tested."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from strata_hip import cli, serve
from support.libraries import library_dir
from support.server import Command, Server, free_port, serving

pytestmark = pytest.mark.timeout(1800)  # the first builds llama-server

PLAYER = f"""#!{sys.executable}
import http.server, os, signal, sys
if "--fail" in sys.argv:
    print("0.00.005.916 I srv  reading", "0.00.005.927 E srv  load_model: it is broken", "0.00.006.022 E srv  ending", sep="\\n",
          file=sys.stderr)
    sys.exit(int(sys.argv[sys.argv.index("--fail") + 1]))
if "--abort" in sys.argv:
    print("a.cpp:1: GGML_ASSERT(ok) failed", "the stack", sep="\\n", file=sys.stderr, flush=True)
    os.abort()

class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == os.environ.get("LLAMA_ARG_API_PREFIX", "") + "/health" else 404)
        self.end_headers()

    def log_message(self, *_):
        pass

def ended(number, _):
    print("ended by", signal.Signals(number).name, file=sys.stderr, flush=True)
    os._exit(7)

for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, ended)
print("arguments:", *sys.argv[1:], file=sys.stderr)
print("environment:", os.environ.get("STRATA_RUNTIME"), os.environ.get("GGML_BACKEND_PATH"), file=sys.stderr, flush=True)
http.server.HTTPServer(("127.0.0.1", 0), Health).serve_forever()
"""


@pytest.fixture
def player(tmp_path):
    """The environment in which the script plays llama-server, and has a model."""
    program = tmp_path / "tools" / serve.PROGRAM
    program.parent.mkdir()
    program.write_text(PLAYER)
    program.chmod(0o755)
    (program.parent / "ggml-rpc-server").symlink_to(program)
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF" + bytes(20))
    return {"STRATA_TOOLS": str(program.parent), "LLAMA_ARG_MODEL": str(model)}


def run(*arguments: object, **environment: "str | None") -> subprocess.CompletedProcess:
    """The command, where it ends by itself."""
    variables = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
    return subprocess.run([sys.executable, "-m", "strata_hip.cli", *map(str, arguments)], env=variables, capture_output=True, text=True,
                          timeout=300)


@pytest.mark.parametrize("given,ours,theirs", [
    (["-m", "a", "--port", "1"], [], ["-m", "a", "--port", "1"]),
    (["-hf", "user/model", "--runtime", "emulator", "-np", "-1"], ["--runtime", "emulator"], ["-hf", "user/model", "-np", "-1"]),
    (["--runtime=hip", "-h"], ["--runtime=hip", "-h"], []),
    (["-p", "--runtime"], ["--runtime"], ["-p"]),
])
def test_flags_are_told_apart(given, ours, theirs):
    assert cli.split(given) == (ours, theirs)


@pytest.mark.parametrize("arguments", [("serve", "--runtime"), ("serve", "--runtime", "gpu"), ("rpc-server", "--runtime=gpu")])
def test_wrong_runtime(arguments):
    done = run(*arguments)
    assert done.returncode == 2 and "--runtime" in done.stderr


def told(log: pathlib.Path, what: str) -> str:
    line, = [line for line in log.read_text().splitlines() if line.startswith(f"{what}: ")]
    return line.removeprefix(f"{what}: ")


@pytest.mark.parametrize("arguments,environment,wanted,with_plugin", [
    (["-np", "2"], {}, "--device STRATA0 -np 2", True),
    (["-hf", "user/model", "-m", "new.gguf"], {}, "--device STRATA0 -hf user/model -m new.gguf", True),
    (["-dev", "STRATA0,RPC0"], {}, "-dev STRATA0,RPC0", True),
    (["--device", "none"], {}, "--device none", False),
    (["-np", "2"], {"LLAMA_ARG_DEVICE": "none"}, "-np 2", False),
    (["--rpc", "PEER"], {}, "--rpc PEER", True),
    (["--rpc", "PEER", "--device", "RPC0"], {}, "--rpc PEER --device RPC0", False),
])
def test_device(player, tmp_path, arguments, environment, wanted, with_plugin):
    """Ours unless others are named, and with --rpc what llama-server makes of it; what our device is not part of needs no GPU."""
    with socket.create_server(("127.0.0.1", 0)) as peer:
        address = f"127.0.0.1:{peer.getsockname()[1]}"
        arguments = [address if argument == "PEER" else argument for argument in arguments]
        command = Command("serve", *arguments, log=tmp_path / "log", **player, **environment)
        command.wait_until_ready()
    assert command.stop() == 7
    assert told(tmp_path / "log", "arguments") == wanted.replace("PEER", address)
    plugin = library_dir() / "libggml-strata-hip.so"
    assert told(tmp_path / "log", "environment").split()[1] == (str(plugin) if with_plugin else os.environ.get("GGML_BACKEND_PATH", "None"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on_once(player, tmp_path, number):
    command = Command("serve", log=tmp_path / "log", LLAMA_ARG_API_PREFIX="/api", **player)
    assert command.wait_until_ready().endswith("/api")
    assert command.stop(number) == 7
    assert [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("ended by")] == [f"ended by {number.name}"]


def test_failed_start(player):
    done = run("serve", "--runtime", "emulator", "--fail", 3, **player)
    assert done.returncode == 3
    assert done.stderr.endswith("srv  ending\nstrata-hip: llama-server ended with exit code 3 before it was ready; its first error: "
                                "srv  load_model: it is broken\n")
    assert done.stderr.count("reading") == 1


def test_crash_at_the_start(player):
    done = run("serve", "--runtime", "emulator", "--abort", **player)
    assert done.returncode == 128 + signal.SIGABRT
    assert done.stderr.endswith("the stack\nstrata-hip: llama-server ended by SIGABRT before it was ready; its first error: "
                                "a.cpp:1: GGML_ASSERT(ok) failed\n")


def test_end_of_what_only_prints(player):
    """As --version does."""
    done = run("serve", "--runtime", "emulator", "--fail", 0, **player)
    assert done.returncode == 0 and "strata-hip" not in done.stderr


@pytest.mark.parametrize("flag,words", [("--usage", "--ctx-size"), ("--version", "version: "), ("--cache-list", "models in cache")])
def test_what_only_tells_needs_no_device(flag, words):
    done = run("serve", flag, STRATA_RUNTIME=None, STRATA_HIP_LIBRARY="/nowhere/libamdhip64.so")
    assert done.returncode == 0 and words in done.stdout + done.stderr and "GPU" not in done.stderr


def test_rpc_server_that_ends(player):
    """The real one's exit code is 0 when it cannot open its port."""
    done = run("rpc-server", "--runtime", "emulator", "--fail", 0, **player)
    assert done.returncode == 1 and done.stderr.endswith("strata-hip: ggml-rpc-server ended; the lines above say why\n")


def test_no_gpu(player):
    """Never the emulator unasked."""
    for command in ("serve", "rpc-server"):
        done = run(command, STRATA_RUNTIME=None, STRATA_HIP_LIBRARY="/nowhere/libamdhip64.so", **player)
        assert done.returncode == 1 and "no usable AMD GPU" in done.stderr and "--runtime emulator" in done.stderr


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1"])
def test_no_rpc_server(player, address):
    done = run("serve", "--runtime", "emulator", "--rpc", f"{address},127.0.0.1:1", **player)
    assert done.returncode == 1 and done.stderr.startswith(f"strata-hip: --rpc {address}: ") and "strata-hip rpc-server" in done.stderr


def test_missing_program(tmp_path):
    done = run("serve", "--runtime", "emulator", "-hf", "user/model", STRATA_TOOLS=str(tmp_path))
    assert done.returncode == 1 and "does not hold llama-server" in done.stderr and "build_tools.py" in done.stderr


@pytest.mark.parametrize("arguments,variables,lacks", [
    ([], {}, True), (["--port", "1"], {}, True), (["--spec-default"], {}, True), (["-m", "a"], {}, False),
    (["--hf_repo", "a/b"], {}, False), (["--gpt-oss-20b-default"], {}, False), (["--models-dir", "a"], {}, False),
    ([], {"LLAMA_ARG_MODELS_PRESET": "a"}, False), ([], {"LLAMA_ARG_MODEL": "a"}, False), (["--list-devices"], {}, False),
    (["--usage"], {}, False),
])
def test_what_gives_a_model(monkeypatch, arguments, variables, lacks):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert serve.lacks_model(arguments) == lacks


def test_no_model():
    done = run("serve", "--runtime", "emulator", "-np", 2)
    assert done.returncode == 2 and "-m is missing" in done.stderr


@pytest.mark.parametrize("content,words", [(None, "does not exist"), (b"PK" + bytes(100), "is not a GGUF file")])
def test_missing_model(player, tmp_path, content, words):
    """One line, before a device is looked for and llama-server started."""
    path = tmp_path / "given.gguf"
    if content:
        path.write_bytes(content)
    done = run("serve", "-m", path, **player)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and words in done.stderr and str(path) in done.stderr


def test_truncated_model(toy, tmp_path):
    """Its own words, once and in our line."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(toy().read_bytes()[:-1000])
    done = run("serve", "--runtime", "emulator", "-m", path, "--port", 0)
    assert done.returncode == 1 and "not within the file bounds" in done.stderr.splitlines()[-1]
    assert done.stderr.count("exiting due to model loading error") == 1


def test_port_in_use(server, toy):
    done = run("serve", "--runtime", "emulator", "-m", toy(), "--port", server.url.rpartition(":")[2])
    assert done.returncode == 1 and "couldn't bind" in done.stderr


def gone(process: int) -> bool:
    """Whether a process ends, or is nothing but an entry that nobody has asked about."""
    for _ in range(2000):
        try:
            state = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.05)
    return False


def test_killed_and_started_again(toy, tmp_path):
    """SIGKILL in the middle of an answer, to the program or to the command: both end, and the next one gives the same answers."""
    def answer(server):
        return server.complete("The sea was calm", 24, n_probs=2)["completion_probabilities"]

    with serving(toy(), "-np", 2, "-c", 1024, log=tmp_path / "first") as server:
        wanted = answer(server)
    for kill in (lambda server: os.kill(server.program(), signal.SIGKILL), lambda server: server.process.kill()):
        server = Server(toy(), "-np", 2, "-c", 1024, "--port", free_port(), log=tmp_path / "log")
        program = server.program()
        with contextlib.closing(server.stream("/completion", prompt="On and on", n_predict=-1, ignore_eos=True)) as events:
            next(events)
            kill(server)
        assert server.process.wait(300) in (128 + signal.SIGKILL, -signal.SIGKILL) and gone(program)
        with serving(toy(), "-np", 2, "-c", 1024, "--port", server.url.rpartition(":")[2], log=tmp_path / "again") as again:
            assert again.url == server.url and answer(again) == wanted
