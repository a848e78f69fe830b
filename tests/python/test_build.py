"""What `make build` is made of: the fetched sources, the cached wheel, progress, and what the installed package holds."""
import fcntl
import importlib.metadata
import io
import os
import pathlib
import subprocess
import sys
import tarfile

import pytest

from support.libraries import library_dir

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import build  # noqa: E402
import fetch_sources  # noqa: E402
import llama_wheel  # noqa: E402
import progress  # noqa: E402


def fetch(cache: pathlib.Path, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, ROOT / "scripts" / "fetch_sources.py"], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "STRATA_CACHE": str(cache), **environment})


def test_a_wrong_sdist_is_refused(tmp_path):
    """A file of the right name from a mirror, but with another content."""
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    with tarfile.open(mirror / fetch_sources.FILE, "w:gz") as tar:
        content = b"Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: 0.3.36\n"
        member = tarfile.TarInfo(fetch_sources.FILE.removesuffix(".tar.gz") + "/PKG-INFO")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    done = fetch(tmp_path / "cache", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(mirror))
    assert done.returncode == 1 and done.stdout == ""
    assert "could not download" in done.stderr and fetch_sources.FILE in done.stderr
    assert not list((tmp_path / "cache").rglob("*.tar.gz"))


def test_without_a_source_the_error_says_where_to_put_the_file(tmp_path):
    done = fetch(tmp_path / "cache", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert done.returncode == 1
    assert str(tmp_path / "cache" / "sdist") in done.stderr.splitlines()[-1]


def test_a_cached_sdist_needs_no_index(tmp_path):
    """What someone put into the cache by hand, or a damaged file there."""
    folder = tmp_path / "cache" / "sdist"
    folder.mkdir(parents=True)
    (folder / fetch_sources.FILE).symlink_to(fetch_sources.sdist())
    done = fetch(tmp_path / "cache", PIP_NO_INDEX="1")
    assert done.returncode == 0, done.stderr
    assert (pathlib.Path(done.stdout.strip()) / "ggml" / "include" / "ggml.h").exists()
    (folder / fetch_sources.FILE).unlink()
    (folder / fetch_sources.FILE).write_bytes(b"damaged")
    again = fetch(tmp_path / "cache", PIP_NO_INDEX="1")
    assert again.stdout == done.stdout, "the unpacked sources are enough"


def test_the_wheels_key_tells_builds_apart(monkeypatch):
    plain = llama_wheel.key()
    assert fetch_sources.VERSION in plain and fetch_sources.SHA256[:12] in plain
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_NATIVE=OFF")
    other = llama_wheel.key()
    monkeypatch.delenv("CMAKE_ARGS")
    monkeypatch.setattr(llama_wheel, "cpu_features", lambda: "another CPU")
    assert len({plain, other, llama_wheel.key()}) == 3


def test_progress_shows_steps_and_keeps_the_output(tmp_path, capsys):
    log = tmp_path / "logs" / "a.log"
    progress.run("counting", [sys.executable, "-c", "for i in range(3): print(f'[{i + 1}/3] compiling')"], log)
    assert log.read_text() == "[1/3] compiling\n[2/3] compiling\n[3/3] compiling\n"
    error = capsys.readouterr().err
    assert "counting" in error and "done in" in error


def test_a_failed_command_shows_the_end_of_its_output(tmp_path, capsys):
    log = tmp_path / "a.log"
    with pytest.raises(progress.Failed) as failed:
        progress.run("failing", [sys.executable, "-c", "print('first\\n' * 100 + 'the reason'); raise SystemExit(3)"], log)
    message = str(failed.value)
    assert "the reason" in message and "exit code 3" in message and str(log) in message
    assert message.count("first") < 100 <= log.read_text().count("first")
    assert "failed" in capsys.readouterr().err


def test_waiting_for_another_build_is_told(tmp_path):
    """What it has built meanwhile is not built again."""
    code = "import build_tools, pathlib as p; build_tools.make(p.Path('to'), p.Path('work'), {'tool': p.Path('to/tool')})"
    (tmp_path / "work").mkdir()
    with (tmp_path / "work" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "scripts")}) as process:
            assert "waiting for another process" in process.stderr.readline()
            (tmp_path / "to" / "tool").touch()
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert process.communicate(timeout=300)[1] == "" and process.returncode == 0


def test_a_changed_source_or_switch_changes_the_state(tmp_path, monkeypatch):
    for name in build.SOURCES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if "." in name:
            (tmp_path / name).write_text("a")
        else:
            (tmp_path / name).mkdir()
    monkeypatch.setattr(build, "ROOT", tmp_path)
    states = [build.state_of_sources()]
    assert build.state_of_sources() == states[0]
    (tmp_path / "backend" / "new.cpp").write_text("a")
    states.append(build.state_of_sources())
    (tmp_path / "backend" / "new.cpp").write_text("ab")
    states.append(build.state_of_sources())
    monkeypatch.setenv("STRATA_WERROR", "1" if os.environ.get("STRATA_WERROR") != "1" else "0")
    states.append(build.state_of_sources())
    assert len(set(states)) == 4


def test_everything_the_package_is_made_of_exists():
    assert all((ROOT / name).exists() for name in build.SOURCES)


@pytest.mark.skipif("STRATA_LIBRARY_DIR" in os.environ, reason="a build tree is tested, not the installed package")
def test_the_installed_package_is_complete():
    files = {str(file) for file in importlib.metadata.files("strata-hip")}
    for name in ("lib/libggml-strata-hip.so", "lib/libstrata-emulator.so", "lib/ggml_declarations.h", "include/strata/device.h",
                 "include/ggml-common.h", "py.typed", "llama.py", "cli.py"):
        assert f"strata_hip/{name}" in files
    sources = [source.stem for source in (ROOT / "ggml_hip_ext").rglob("*.hip")]
    packed = {pathlib.Path(file).name for file in files if file.endswith(".co")}
    assert sources and packed == {f"{family}.gfx1151.co" for family in sources}
    assert library_dir() == pathlib.Path(importlib.metadata.distribution("strata-hip").locate_file("strata_hip/lib"))
