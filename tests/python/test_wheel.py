"""The wheel: what is in it, what it needs, and that it runs where nothing but Python is."""
import email
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import strata_hip
from strata_hip import built, tools
from strata_hip.errors import StrataError
from support import fakes
from support.libraries import library_dir
from support.paths import ROOT, llama_cpp_source

sys.path[:0] = [str(ROOT / "cmake"), str(ROOT / "scripts"), str(ROOT / "scripts" / "wheel")]

import build_info  # noqa: E402
import build_tools  # noqa: E402
import fetch_sources  # noqa: E402
import llama_wheel  # noqa: E402
import wheel_backend  # noqa: E402

LIBRARIES = ["libggml-strata-hip.so", "libstrata-emulator.so"]
SYSTEM = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}
LLAMA_CPP = {"libggml.so.0", "libggml-base.so.0", "libggml-cpu.so.0", "libllama.so.0", "libmtmd.so.0"}
LARGEST = 40e6  # bytes


def dynamic(file: pathlib.Path, tag: str) -> "list[str]":
    """The values of a tag (NEEDED, RUNPATH) in an ELF file's dynamic section."""
    output = subprocess.run(["objdump", "-p", file], check=True, capture_output=True, text=True).stdout
    return [line.split()[1] for line in output.splitlines() if line.split()[:1] == [tag]]


def strata_hip_command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "strata_hip.cli", *arguments], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("name", LIBRARIES)
def test_libraries_need_only_what_every_linux_has(name):
    """No ROCm, no LLVM, no compression libraries: ggml's base library and the C and C++ runtime."""
    assert set(dynamic(library_dir() / name, "NEEDED")) <= SYSTEM | {"libggml-base.so.0"}


def test_the_emulator_shows_hip_and_nothing_of_llvm():
    command = ["nm", "-D", "--defined-only", library_dir() / "libstrata-emulator.so"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names = [line.split()[-1] for line in output.splitlines()]
    assert len(names) > 60 and [name for name in names if not re.match(r"hip|__hip|strata_emulator_", name)] == []


@pytest.mark.parametrize("order", ["llvm first", "emulator first"])
def test_another_llvm_in_the_process(order):
    """Programs bring their own LLVM (triton, numba, Mesa): each keeps to its own."""
    llvm = next(iter(sorted(pathlib.Path("/usr/lib").glob("**/libLLVM*.so*"))), None)
    if llvm is None:
        pytest.skip("there is no shared LLVM here")
    program = f"""
import ctypes
def llvm():
    return ctypes.CDLL({str(llvm)!r}, mode=ctypes.RTLD_GLOBAL)
def emulator():
    library = ctypes.CDLL({str(library_dir() / "libstrata-emulator.so")!r})
    assert library.hipInit(0) == 0
    count = ctypes.c_int()
    assert library.hipGetDeviceCount(ctypes.byref(count)) == 0 and count.value == 1
    return library
{"theirs, ours = llvm(), emulator()" if order == "llvm first" else "ours, theirs = emulator(), llvm()"}
theirs.LLVMContextCreate.restype = ctypes.c_void_p
assert theirs.LLVMContextCreate()
print(ours.hipDeviceSynchronize())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stdout == "0\n", done.stderr


def test_version_says_what_it_was_built_from():
    facts = json.loads((library_dir() / built.FILE).read_text())
    assert facts == built.facts()
    assert facts["version"] == strata_hip.__version__ and facts["llama_cpp_python"] == fetch_sources.VERSION
    assert facts["targets"] == "gfx1151" or os.environ.get("STRATA_TARGETS")
    lines = strata_hip_command("--version").stdout.splitlines()
    assert lines[0] == f"strata-hip {strata_hip.__version__}"
    for value in [facts[name] for name in ("llama_cpp_python", "ggml", "compiler", "llvm", "targets")] + [facts["commit"] or "unknown"]:
        assert any(value in line for line in lines[1:]), value


def test_version_without_a_build(monkeypatch, tmp_path):
    monkeypatch.setenv("STRATA_LIBRARY_DIR", str(tmp_path))
    assert strata_hip_command("--version").stdout == f"strata-hip {strata_hip.__version__}\n"


def git(folder: pathlib.Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a", *arguments], check=True, capture_output=True)


def test_the_commit_that_is_built(tmp_path):
    assert build_info.commit(tmp_path) is None
    git(tmp_path, "init")
    (tmp_path / "a").write_text("a")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-m", "a")
    commit = build_info.commit(tmp_path)
    assert re.fullmatch("[0-9a-f]{12}", commit)
    (tmp_path / "untracked").touch()
    assert build_info.commit(tmp_path) == commit
    (tmp_path / "a").write_text("b")
    assert build_info.commit(tmp_path) == commit + "+changes"
    (tmp_path / "archive").mkdir()
    assert build_info.commit(tmp_path / "archive") is None, "a folder inside of another clone"


def test_facts_are_written_only_when_they_change(tmp_path):
    output = tmp_path / "lib" / "build.json"
    command = [sys.executable, ROOT / "cmake" / "build_info.py", output, tmp_path, "compiler=clang = 19"]
    subprocess.run(command, check=True)
    assert json.loads(output.read_text()) == {"compiler": "clang = 19", "commit": None}
    before = output.stat().st_mtime_ns
    subprocess.run(command, check=True)
    assert output.stat().st_mtime_ns == before


def test_the_build_requires_what_the_package_requires():
    pyproject = (ROOT / "pyproject.toml").read_text()
    assert re.findall(r'"llama-cpp-python==([\d.]+)"', pyproject) == [fetch_sources.VERSION] * 2


@pytest.mark.parametrize("ours, theirs", [
    ("llama.cpp.txt", "LICENSE"), ("cpp-httplib.txt", "vendor/cpp-httplib/LICENSE"), ("nlohmann-json.txt", "licenses/LICENSE-jsonhpp")])
def test_licenses_are_those_of_the_pinned_sources(ours, theirs):
    assert (ROOT / "licenses" / ours).read_text() == (llama_cpp_source() / theirs).read_text()


def test_every_license_is_listed():
    listed = re.findall(r"^\| `(.*?)` \|", (ROOT / "licenses" / "README.md").read_text(), re.M)
    assert sorted([*listed, "README.md"]) == sorted(path.name for path in (ROOT / "licenses").iterdir())
    assert "LLVM Exceptions to the Apache 2.0 License" in (ROOT / "licenses" / "LLVM.txt").read_text()


@pytest.mark.skipif("STRATA_LIBRARY_DIR" in os.environ, reason="a build tree is tested, not the installed package")
def test_the_installed_package_has_the_licenses():
    files = {pathlib.PurePath(file).name for file in importlib.metadata.files("strata-hip") if "licenses" in str(file)}
    assert {"LICENSE", *(path.name for path in (ROOT / "licenses").iterdir())} <= files


def test_where_programs_of_llama_cpp_are_looked_for(monkeypatch, tmp_path):
    """STRATA_TOOLS, then the wheel's own, then the source tree."""
    named, packed = tmp_path / "named", tmp_path / "packed"
    for folder in (named, packed):
        folder.mkdir()
        (folder / "llama-server").touch()
        (folder / "libstrata-preload.so").touch()
    monkeypatch.setattr(tools, "PACKED", packed)
    monkeypatch.setenv("STRATA_TOOLS", str(named))
    assert tools.tools("llama-server", "strata-preload") == [named / "llama-server", named / "libstrata-preload.so"]
    monkeypatch.delenv("STRATA_TOOLS")
    assert tools.tools("llama-server", "strata-preload") == [packed / "llama-server", packed / "libstrata-preload.so"]
    (packed / "llama-server").unlink()
    monkeypatch.setattr(tools.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 0, "/built/llama-server\n"))
    assert tools.tools("llama-server") == [pathlib.Path("/built/llama-server")]
    monkeypatch.setattr(tools, "__file__", str(tmp_path / "a" / "b" / "tools.py"))
    monkeypatch.setattr(tools.sys, "prefix", str(tmp_path / "c" / "d"))
    with pytest.raises(StrataError, match=f"llama-server is neither in {packed}.*STRATA_TOOLS"):
        tools.tools("llama-server")


def test_programs_that_commands_start_are_packed():
    started = set()
    for file in (ROOT / "bindings" / "strata_hip").glob("*.py"):
        started.update(name for name in build_tools.TOOLS if f'"{name}"' in file.read_text())
    assert started <= set(build_tools.PACKED)


def small_wheel(folder: pathlib.Path, needed: str) -> str:
    """A wheel with one library that needs another."""
    source = folder / "a.c"
    source.write_text("#include <stdlib.h>\nint f(void);\nint g(void) { return f() + abs(1) + atoi(\"1\"); }\n")
    (folder / "f.c").write_text("int f(void) { return 1; }")
    other = fakes.compile_c(folder / "f.c", folder / needed, f"-Wl,-soname,{needed}")
    library = fakes.compile_c(source, folder / "liba.so", f"-Wl,{other}")
    name = "a-1-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        wheel.write(library, "a/lib/liba.so")
        wheel.writestr("a-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: a\nVersion: 1\n")
        wheel.writestr("a-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n")
        wheel.writestr("a-1.dist-info/RECORD", "a/lib/liba.so,,\na-1.dist-info/METADATA,,\na-1.dist-info/WHEEL,,\na-1.dist-info/RECORD,,\n")
    return name


@pytest.mark.parametrize("needed, platform", [("libggml-base.so.0", r"manylinux\w+_x86_64"), ("libother.so.1", "linux_x86_64")])
def test_the_name_says_which_linux(monkeypatch, tmp_path, capfd, needed, platform):
    monkeypatch.setattr(wheel_backend, "build_plain_wheel", lambda folder, *_: small_wheel(pathlib.Path(folder), needed))
    name = wheel_backend.build_wheel(str(tmp_path))
    assert re.fullmatch(rf"a-1-py3-none-({platform}\.?)+\.whl", name) and [path.name for path in tmp_path.iterdir()] == [name]
    with zipfile.ZipFile(tmp_path / name) as wheel:
        tags = email.message_from_bytes(wheel.read("a-1.dist-info/WHEEL")).get_all("Tag")
        assert [file for file in wheel.namelist() if ".so" in file] == ["a/lib/liba.so"], "nothing is copied into it"
    assert tags and all(re.fullmatch(f"py3-none-{platform}", tag) for tag in tags)
    assert ("no manylinux platform fits" in capfd.readouterr().err) == (needed == "libother.so.1")


# What takes minutes.

@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    """What `pip wheel .` makes of the source tree. llama-cpp-python, which the build requires, is the wheel that `make build` made."""
    folder = tmp_path_factory.mktemp("wheel")
    links = llama_wheel.wheel(folder / "llama.log").parent
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "-w", str(folder)], capture_output=True, text=True,
                          env={**os.environ, "PIP_FIND_LINKS": str(links)}, timeout=3000)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return next(folder.glob("strata_hip-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> pathlib.Path:
    """The bin folder of a new environment with the wheel and what it requires."""
    environment = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    links = llama_wheel.wheel(environment / "llama.log").parent
    subprocess.run([environment / "bin" / "python", "-m", "pip", "install", "-q", "--find-links", str(links), str(wheel)], check=True)
    return environment / "bin"


def alone(bin_folder: pathlib.Path, *command: object, timeout: float = 300) -> subprocess.CompletedProcess:
    """Runs a program of the new environment with nothing else on the path, and none of the variables that name parts of this one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STRATA_", "PYTHON", "LD_", "GGML_"))}
    return subprocess.run([str(bin_folder / str(command[0])), *map(str, command[1:])], capture_output=True, text=True, timeout=timeout,
                          env={**kept, "PATH": str(bin_folder)}, cwd="/")


@pytest.mark.full
@pytest.mark.timeout(4000)
def test_the_wheel_holds_everything_and_is_small(wheel, tmp_path):
    assert wheel.stat().st_size < LARGEST
    assert re.fullmatch(rf"strata_hip-{strata_hip.__version__}-py3-none-(manylinux\w+_x86_64\.?)+\.whl", wheel.name)
    shutil.unpack_archive(wheel, tmp_path, "zip")
    package = tmp_path / "strata_hip"
    assert {path.name for path in (package / "bin").iterdir()} == {build_tools.file_name(tool) for tool in build_tools.PACKED}
    assert all((package / "lib" / name).exists() for name in [*LIBRARIES, built.FILE])
    sources = [source.stem for source in (ROOT / "ggml_hip_ext").rglob("*.hip")]
    assert {path.name for path in (package / "code_objects").iterdir()} == {f"{family}.gfx1151.co" for family in sources}
    metadata = email.message_from_bytes(next(tmp_path.glob("*.dist-info/METADATA")).read_bytes())
    assert metadata["License-Expression"].startswith("MIT AND Apache-2.0 WITH LLVM-exception")
    licenses = {path.name for path in tmp_path.glob("*.dist-info/licenses/**/*") if path.is_file()}
    assert licenses == {"LICENSE", *(path.name for path in (ROOT / "licenses").iterdir())}
    for program in (package / "bin").iterdir():
        assert set(dynamic(program, "NEEDED")) <= SYSTEM | LLAMA_CPP
        assert dynamic(program, "RUNPATH") == [build_tools.PACKED_RPATH], "no folder of this machine"


@pytest.mark.full
@pytest.mark.timeout(4000)
def test_the_readme_s_example_runs_from_the_wheel(installed):
    example = re.search(r"```python\n(from strata_hip import Llama.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    from strata_hip import models
    program = example.replace('"model.gguf"', repr(str(models.smollm2()))).replace("max_tokens=32", "max_tokens=8, temperature=0")
    done = alone(installed, "python", "-c", program)
    assert done.returncode == 0 and "computer" in done.stdout, done.stderr


@pytest.mark.full
@pytest.mark.timeout(4000)
def test_commands_run_from_the_wheel(installed):
    version = alone(installed, "strata-hip", "--version").stdout
    assert version.startswith(f"strata-hip {strata_hip.__version__}\n") and f"ggml {built.facts()['ggml']}" in version
    devices = json.loads(alone(installed, "strata-hip", "devices", "--runtime", "emulator", "-o", "json").stdout)
    assert str(installed.parent) in devices["library"] and devices["devices"][0]["arch"] == "gfx1151"
    doctor = alone(installed, "strata-hip", "doctor", "-o", "json")
    levels = {finding["check"]: finding["level"] for finding in json.loads(doctor.stdout)}
    assert levels["emulator"] == levels["code objects"] == levels["ggml"] == "ok"
    tested = alone(installed, "strata-hip", "ops", "test", "--runtime", "emulator", "-o", "SCALE")
    assert tested.returncode == 0 and " 0 failed" in tested.stdout, tested.stdout + tested.stderr
    site = next((installed.parent / "lib").glob("python*/site-packages"))
    for program in ("llama-server", "ggml-rpc-server", "llama-bench"):
        command = [site / "strata_hip" / "bin" / program, "--help"]
        done = subprocess.run(command, capture_output=True, text=True, env={"PATH": ""}, timeout=300)
        assert "usage" in (done.stdout + done.stderr).lower(), program
