"""A model that is split over two RPC servers on this machine, each with a device of its own, against one device."""
import contextlib
import json
import os
import pathlib
import re
import subprocess

import pytest

from strata_hip.tools import tools
from support.server import RUNTIME, Command, free_port, serving

pytestmark = pytest.mark.timeout(1800)  # the first builds llama-server

PROMPTS = ["The sea was calm that night, and the lamp on the pier", "Winter", "A letter in the window " * 12]
TOKENS = 40


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """What --rpc takes for two `strata-hip rpc-server` of this machine."""
    with contextlib.ExitStack() as stack:
        addresses = []
        for number in range(2):
            port = free_port()
            command = Command("rpc-server", "-p", port, log=tmp_path_factory.mktemp("rpc") / str(number))
            stack.callback(command.stop)
            assert command.wait_until_ready() == f"127.0.0.1:{port}"
            addresses.append(f"127.0.0.1:{port}")
        yield ",".join(addresses)


def answers(server):
    """Of each prompt: the tokens, and the logarithms of the three greatest probabilities at each."""
    made = [server.complete(prompt, TOKENS, n_probs=3, cache_prompt=False) for prompt in PROMPTS]
    return [(answer["tokens"], [[one["logprob"] for one in each["top_logprobs"]] for each in answer["completion_probabilities"]])
            for answer in made]


def weights(log: pathlib.Path):
    """What a server says with -lv 4: the devices that have weights. All of them leave the embeddings to the CPU."""
    found = re.findall(r"load_tensors: +(\S+) model buffer size", log.read_text())
    return {name for name in found if not name.endswith("_Host") and not name.startswith("CPU")}


def remote(machines: str):
    """Their devices' names."""
    return {f"RPC0[{address}]" for address in machines.split(",")}


@pytest.mark.parametrize("arch,kind", [("qwen35", "q4_K"), ("qwen35moe", "f32")])
def test_same_tokens(toy, machines, tmp_path, arch, kind):
    """Twice: the second time the servers have held another client's graphs."""
    arguments = ["-np", 1, "-c", 512]
    with serving(toy(arch, kind), *arguments, log=tmp_path / "one") as server:
        wanted = answers(server)
    split = ["--rpc", machines, "--device", "RPC0,RPC1", "--tensor-split", "1,1", "-lv", 4]
    for time in range(2):
        with serving(toy(arch, kind), *arguments, *split, log=tmp_path / f"two {time}") as server:
            assert answers(server) == wanted
        assert weights(tmp_path / f"two {time}") == remote(machines)


def test_local_and_remote_device(toy, machines, tmp_path):
    """With --rpc alone llama.cpp shares the model out over the remote devices and ours."""
    with serving(toy(), "-np", 1, "-c", 512, log=tmp_path / "one") as server:
        wanted = server.complete(PROMPTS[0], TOKENS)["content"]
    with serving(toy(), "-np", 1, "-c", 512, "--rpc", machines, "--tensor-split", "1,1,1", "-lv", 4, log=tmp_path / "three") as server:
        assert server.complete(PROMPTS[0], TOKENS)["content"] == wanted
    assert weights(tmp_path / "three") == {*remote(machines), "STRATA0"}


def test_bench(toy, machines):
    """llama-bench measures over them too."""
    program, = tools("llama-bench")
    command = [program, "-m", toy(), "--rpc", machines, "-dev", "RPC0/RPC1", "-p", "16", "-n", "4", "-r", "1", "-o", "json"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=200, env={**os.environ, "STRATA_RUNTIME": RUNTIME})
    assert done.returncode == 0, done.stderr
    assert [(row["n_prompt"], row["n_gen"], row["devices"], row["avg_ts"] > 0) for row in json.loads(done.stdout)] == [
        (16, 0, "RPC0/RPC1", True), (0, 4, "RPC0/RPC1", True)]


def test_port_in_use(machines, tmp_path):
    command = Command("rpc-server", "-p", machines.rpartition(":")[2], log=tmp_path / "log")
    assert command.process.wait(300) == 1
    assert "ggml-rpc-server ended; the lines above say why" in (tmp_path / "log").read_text()
