"""The command `strata-hip`."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import strata_hip
from strata_hip import cli, models

TEXT = "One, two, three, four, five, six,"


def run(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "strata_hip.cli", *map(str, arguments)], input=stdin, capture_output=True,
                          text=True, timeout=500, env={**os.environ, **environment})


def test_help_and_version():
    assert run("--version").stdout.splitlines()[0] == f"strata-hip {strata_hip.__version__}"
    for command in ("devices", "run", "bench"):
        assert command in run("--help").stdout
        assert "--runtime {auto,hip,emulator}" in run(command, "--help").stdout


def test_no_command_is_wrong_usage():
    done = run()
    assert done.returncode == 2 and "usage" in done.stderr


def test_an_unknown_flag_is_told_with_the_usage_of_its_command():
    done = run("run", "-m", "model.gguf", "--nonsense")
    assert done.returncode == 2 and done.stderr.startswith("usage: strata-hip run ") and "--nonsense" in done.stderr


def test_an_empty_prompt():
    done = run("run", "-m", models.smollm2(), "--runtime", "emulator")
    assert done.returncode == 1 and "no prompt was given" in done.stderr


@pytest.mark.parametrize("name, words", [("picture.gog", "ends in"), ("no/such/folder/picture.png", "cannot be written")])
def test_a_picture_that_cannot_be_drawn_is_told_first(tmp_path, name, words):
    for command in (["bench"], ["profile"]):
        done = run(*command, "-m", models.smollm2(), "--plot", tmp_path / name, STRATA_RUNTIME="emulator")
        assert done.returncode == 1 and words in done.stderr and done.stdout == ""


def test_devices():
    done = run("devices", "--runtime", "emulator")
    assert done.returncode == 0 and done.stderr == ""
    for words in ("STRATA0", "emulated", "gfx1151", "GiB", "libstrata-emulator.so"):
        assert words in done.stdout
    info = json.loads(run("devices", "--runtime", "emulator", "-o", "json").stdout)
    assert info["runtime"] == "emulator" and info["version"] == strata_hip.__version__
    assert info["devices"][0]["arch"] == "gfx1151" and info["code_objects"]


def test_the_environment_chooses_the_runtime():
    assert "emulated" in run("devices", STRATA_RUNTIME="emulator").stdout


@pytest.mark.parametrize("where", [["--backend", "cpu"], ["--runtime", "emulator"]], ids=["cpu", "emulator"])
def test_run_continues_a_text(where):
    done = run("run", "-m", models.smollm2(), "-p", TEXT, "-n", "3", "--temp", "0", "-c", "128", "-no-cnv", *where)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(TEXT + " seven")
    done = run("run", "-m", models.smollm2(), "-p", TEXT, "-n", "3", "--temp", "0", "-c", "128", "-no-cnv", "--no-display-prompt",
               *where)
    assert done.stdout.startswith(" seven")


def test_run_answers_from_stdin_and_stops():
    done = run("run", "-m", models.smollm2(), "-n", "12", "--temp", "0", "-c", "128", "--runtime", "emulator",
               stdin="What is a computer?")
    assert done.returncode == 0, done.stderr
    assert "computer" in done.stdout and "What is" not in done.stdout


def test_run_reads_a_file(tmp_path):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text(TEXT)
    done = run("run", "-m", models.smollm2(), "-f", prompt, "-n", "2", "--temp", "0", "-c", "64", "-no-cnv", "--backend", "cpu")
    assert done.stdout.startswith(TEXT + " seven")


def test_no_token_wanted_is_no_token():
    arguments = ["run", "-m", models.smollm2(), "-p", TEXT, "-n", "0", "-c", "64", "--backend", "cpu"]
    assert run(*arguments, "-no-cnv").stdout == TEXT + "\n"
    assert run(*arguments).stdout == ""


def test_no_prompt_on_a_terminal():
    terminal, end = os.openpty()
    process = subprocess.Popen([sys.executable, "-m", "strata_hip.cli", "run", "-m", str(models.smollm2()), "--backend", "cpu"],
                               stdin=end, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    os.write(terminal, b"\x04")
    _, error = process.communicate(timeout=300)
    os.close(end)
    os.close(terminal)
    assert process.returncode == 1 and error == "strata-hip: no prompt was given\n"


def test_ctrl_c_ends_a_long_batch():
    """While one call of llama.cpp computes thousands of tokens."""
    process = subprocess.Popen([sys.executable, "-m", "strata_hip.cli", "bench", "-m", str(models.smollm2()), "--runtime", "emulator",
                                "-p", "4096", "-n", "0", "-b", "4096", "--no-warmup"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("| model")
        time.sleep(5)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == -signal.SIGINT   # the batch takes minutes
    finally:
        process.kill()


def test_seed_repeats():
    arguments = ["run", "-m", models.smollm2(), "-p", "Once", "-n", "8", "-c", "64", "-no-cnv", "--backend", "cpu", "--temp", "1.5"]
    outputs = [run(*arguments, "-s", seed).stdout for seed in ("1", "1", "2")]
    assert outputs[0] == outputs[1] != outputs[2]


def test_without_a_seed_nothing_repeats():
    arguments = ["run", "-m", models.smollm2(), "-p", "Once", "-n", "12", "-c", "64", "-no-cnv", "--backend", "cpu", "--temp", "3",
                 "--top-k", "0", "--top-p", "1", "--min-p", "0"]
    assert len({run(*arguments).stdout for _ in range(3)}) == 3


@pytest.mark.parametrize("arguments,words", [
    (["run", "-m", "/no/such.gguf", "-p", "x", "--backend", "cpu"], "/no/such.gguf"),
    (["run", "-m", "MODEL", "-f", "/no/such.txt", "--backend", "cpu"], "/no/such.txt"),
    (["run", "-m", "MODEL", "-f", "/bin/sh", "--backend", "cpu"], "the prompt cannot be read"),
    (["run", "-m", "MODEL", "-p", "x", "--backend", "cpu", "-ctk", "q9"], "q9"),
    (["run", "-m", "MODEL", "-p", "x", "--backend", "cpu", "-ub", "0"], "--ubatch-size 0"),
    (["run", "-m", "MODEL", "-p", "x", "--backend", "cpu", "-t", "-4"], "--threads -4"),
    (["run", "-m", "MODEL", "-p", "x", "--backend", "cpu", "-s", "4294967296"], "--seed"),
    (["run", "-m", "MODEL", "-p", "word " * 300, "--backend", "cpu", "-c", "32", "-n", "1"], "exceed context window"),
    (["run", "-m", "MODEL", "-p", "word " * 300, "--backend", "cpu", "-c", "32", "-n", "1", "-no-cnv"], "exceed context window"),
    (["run", "-m", "MODEL", "-p", "x", "--backend", "cpu", "-c", "-5"], "-5 tokens"),
    (["run", "-m", "MODEL", "-p", "", "--backend", "cpu", "-c", "32", "-n", "1", "-no-cnv"], "the prompt is empty"),
    (["bench", "-m", "/no/such.gguf", "--backend", "cpu"], "/no/such.gguf")])
def test_errors_are_one_line_without_a_traceback(arguments, words):
    done = run(*[str(models.smollm2()) if a == "MODEL" else a for a in arguments])
    assert done.returncode == 1
    line = done.stderr.strip().splitlines()[-1]
    assert line.startswith("strata-hip: ") and words in line and "Traceback" not in done.stderr


def test_chat_needs_a_template():
    done = run("run", "-m", models.gemma3(), "-p", "Hello", "-cnv", "--backend", "cpu", "-c", "64")
    assert done.returncode == 1 and "no chat template" in done.stderr


def test_values_that_begin_with_a_dash():
    parsed = cli.parse(["run", "-m", "x", "-p", "-1 is a number", "-n", "3"])
    assert (parsed.prompt, parsed.predict) == ("-1 is a number", 3)
    assert cli.parse(["run", "-m", "x", "--prompt", "-x", "-ngl", "-1"]).prompt == "-x"
    assert cli.parse(["sanitize", "--", "prog", "-p", "-x", "-ngl", "-1,0"]).program[-4:] == ["-p", "-x", "-ngl", "-1,0"]
