"""Bad input: each is a readable error that names what is wrong, and the process lives on."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import strata_hip
from strata_hip import Llama, models

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKS = ["cpu", "emulator"]


def arguments(where: str) -> dict:
    return {"backend": "cpu"} if where == "cpu" else {"device": "emulator"}


def apart(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs code in a process of its own; it may fail."""
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True,
                          timeout=300)


def check_alive() -> None:
    """A good model still loads and answers."""
    model = Llama(models.smollm2(), backend="cpu", n_ctx=32, verbose=False)
    assert model("One, two,", max_tokens=1)["choices"]
    model.close()


@pytest.mark.parametrize("where", WORKS)
def test_missing_model(where):
    with pytest.raises(FileNotFoundError, match="/no/such/model.gguf") as error:
        Llama("/no/such/model.gguf", **arguments(where))
    assert isinstance(error.value, ValueError), "stock llama_cpp raises ValueError here"
    check_alive()


def test_a_folder_is_no_model(tmp_path):
    with pytest.raises(ValueError, match="is a folder"):
        Llama(tmp_path, backend="cpu")


@pytest.mark.parametrize("where", WORKS)
@pytest.mark.parametrize("size,words", [(0, "not a GGUF"), (3, "not a GGUF"), (10, "truncated"), (23, "truncated"), (24, "."),
                                        (50_000, "key-value"), (2_000_000, "."), (40_000_000, "not within the file bounds"),
                                        (-1, "not within the file bounds")])
def test_truncated_model(tmp_path, where, size, words):
    path = tmp_path / "cut.gguf"
    with models.smollm2().open("rb") as file:
        path.write_bytes(file.read(size if size >= 0 else models.smollm2().stat().st_size - 1))
    with pytest.raises(strata_hip.ModelFileError, match=words) as error:
        Llama(path, verbose=False, **arguments(where))
    assert str(path) in str(error.value) and isinstance(error.value, ValueError)
    check_alive()


def test_not_a_gguf(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04" + bytes(1000))
    with pytest.raises(ValueError, match="not a GGUF file"):
        Llama(path, backend="cpu")


def test_unknown_architecture(tmp_path):
    """llama.cpp's own words reach the caller."""
    with models.smollm2().open("rb") as file:
        content = file.read()
    at = content.index(b"\x05\0\0\0\0\0\0\0llama") + 8
    path = tmp_path / "strange.gguf"
    path.write_bytes(content[:at] + b"lloma" + content[at + 5:])
    with pytest.raises(strata_hip.ModelFileError, match="unknown model architecture: 'lloma'"):
        Llama(path, backend="cpu", verbose=False)


NO_GPU = """
import strata_hip
from strata_hip import Llama, models
try:
    Llama(models.smollm2(), verbose=False, device={device!r})
except strata_hip.DeviceError as error:
    print("ERROR", error)
    assert isinstance(error, RuntimeError)
model = Llama(models.smollm2(), device="emulator", n_ctx=32, verbose=False)
print("THEN", model("One, two,", max_tokens=1)["usage"]["completion_tokens"])
"""


@pytest.mark.parametrize("device", [None, "auto", "hip"])
def test_no_gpu(device):
    """Never a silent CPU run: the error says what was looked for and how to ask for the emulator, which then works."""
    run = apart(NO_GPU.format(device=device), STRATA_RUNTIME="", STRATA_HIP_LIBRARY="/no/such/libamdhip64.so")
    assert run.returncode == 0, run.stderr
    for words in ("ERROR", "/no/such/libamdhip64.so", "/dev/kfd", "STRATA_RUNTIME=emulator", 'device="emulator"', "THEN 1"):
        assert words in run.stdout, f"{words} is not in: {run.stdout}"


def test_no_gpu_on_the_command_line():
    run = subprocess.run([sys.executable, "-m", "strata_hip.cli", "devices"], capture_output=True, text=True,
                         env=dict(os.environ, STRATA_RUNTIME="", STRATA_HIP_LIBRARY="/no/such/libamdhip64.so"))
    assert run.returncode == 1
    assert "/no/such/libamdhip64.so" in run.stderr and "--runtime emulator" in run.stderr and "Traceback" not in run.stderr


def test_plugin_missing(tmp_path):
    run = apart("from strata_hip import Llama, models; Llama(models.smollm2())", STRATA_LIBRARY_DIR=str(tmp_path))
    assert run.returncode == 1
    assert str(tmp_path / "libggml-strata-hip.so") in run.stderr.splitlines()[-1] and "make build" in run.stderr


TOO_SMALL = """
import strata_hip
from strata_hip import Llama, models
try:
    Llama(models.smollm2(), device="emulator", verbose=False, n_ctx={n_ctx})
except strata_hip.DeviceMemoryError as error:
    print("ERROR", error)
    assert isinstance(error, MemoryError)
model = Llama(models.smollm2(), backend="cpu", n_ctx=32, verbose=False)
print("THEN", model("One, two,", max_tokens=1)["usage"]["completion_tokens"])
"""


@pytest.mark.parametrize("memory,n_ctx", [("32M", 64), ("128M", 8192)], ids=["weights", "cache"])
def test_out_of_device_memory(memory, n_ctx):
    """The message names what was asked for and what there is."""
    run = apart(TOO_SMALL.format(n_ctx=n_ctx), STRATA_EMULATOR_MEMORY=memory)
    assert run.returncode == 0, run.stderr
    error = next(line for line in run.stdout.splitlines() if line.startswith("ERROR"))
    assert "MiB" in error or "bytes" in error
    assert "free" in error
    assert "THEN 1" in run.stdout


LATER = """
import strata_hip
from strata_hip import Llama, models
def attempt(*arguments, **more):
    try:
        Llama(*arguments, verbose=False, **more)
    except strata_hip.StrataError as error:
        print(type(error).__name__, error)
attempt(models.smollm2(), device="emulator", n_ctx=8192)
for where in ({"device": "emulator"}, {"backend": "cpu"}):
    attempt(CUT, **where)
    attempt(models.smollm2(), n_ctx=64, type_v=2, **where)
"""


def test_an_error_is_not_blamed_on_an_earlier_one(tmp_path):
    cut = tmp_path / "cut.gguf"
    with models.smollm2().open("rb") as file:
        cut.write_bytes(file.read(40_000_000))
    run = apart(LATER.replace("CUT", repr(str(cut))), STRATA_EMULATOR_MEMORY="128M")
    lines = run.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["DeviceMemoryError"] + ["ModelFileError", "DeviceError"] * 2, run.stdout
    for line in lines[1:]:
        assert "hipMalloc" not in line and ("not within the file bounds" in line or "V cache" in line)


FORKED = """
import os, sys
import strata_hip
from strata_hip import Llama, models, plugin
plugin.load("emulator")
if os.fork() == 0:
    try:
        Llama(models.smollm2(), n_ctx=32, verbose=False)
    except strata_hip.DeviceError as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.wait()
"""


def test_a_forked_child_is_told_so():
    text = apart(FORKED).stdout
    assert text.startswith("DeviceError ") and "was forked" in text


def test_a_process_has_one_device():
    run = apart("from strata_hip import plugin\nplugin.load('emulator')\nplugin.load()\nplugin.load('hip')")
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].endswith("this process already computes on 'emulator': start another process for 'hip'")


# The build

def configure(tmp_path, **environment: str) -> subprocess.CompletedProcess:
    """Runs CMake's configuration with the tools beside this Python first, as the build does."""
    path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    cmake = shutil.which("cmake", path=path)
    assert cmake, "cmake is not installed"
    return subprocess.run([cmake, "-S", ROOT, "-B", tmp_path / "build", "-G", "Ninja"], capture_output=True, text=True,
                          env={**os.environ, "PATH": path, **environment})


def test_no_clang_names_the_package(tmp_path):
    run = configure(tmp_path, STRATA_CLANG="/no/such/clang++")
    assert run.returncode != 0
    for words in ("/no/such/clang++", "apt-get install clang-19", "STRATA_CLANG="):
        assert words in run.stderr


def test_a_clang_without_the_target_is_refused(tmp_path):
    fake = tmp_path / "clang++"
    fake.write_text("#!/bin/sh\necho '  Registered Targets: x86-64'\n")
    fake.chmod(0o755)
    run = configure(tmp_path, STRATA_CLANG=str(fake))
    assert run.returncode != 0
    assert "AMDGPU" in run.stderr and str(fake) in run.stderr


def test_system_packages_tells_a_user_what_to_install(tmp_path):
    """As someone who may not install: names the Debian packages, and fails."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "grep", "id"):
        (tools / name).symlink_to(shutil.which(name))
    (tools / "id").unlink()
    (tools / "id").write_text("#!/bin/sh\necho 1000\n")
    (tools / "id").chmod(0o755)
    environment = {"PATH": str(tools), "PYTHON": "/no/such/python"}
    run = subprocess.run([ROOT / "scripts" / "system_packages.sh"], env=environment, capture_output=True, text=True)
    assert run.returncode == 1
    for package in ("clang-19", "lld-19", "g++", "python3-venv", "apt-get install"):
        assert package in run.stderr


def test_another_host_compiler_is_refused(tmp_path):
    run = configure(tmp_path, CXX=shutil.which("g++"))
    assert run.returncode != 0 and "is no clang" in run.stderr and "CXX" in run.stderr
