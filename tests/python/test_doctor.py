"""`strata-hip doctor`, on made-up machines: trees that look like /sys, /proc, /dev and /etc."""
import json
import os
import pathlib
import subprocess
import sys
from typing import Mapping

import pytest

from strata_hip import built, doctor
from strata_hip.doctor import gpu, memory, software
from strata_hip.doctor.finding import Level
from strata_hip.doctor.system import System, User
from support import fakes

GIB = 2**30
DEVICE = "/sys/class/drm/renderD128/device"
OUTSIDER = 4242


def node(arch_version: int, units: int, minor: int) -> str:
    return (f"cpu_cores_count 0\nsimd_count {2 * units}\nsimd_per_cu 2\ngfx_target_version {arch_version}\n"
            f"vendor_id 4098\ndrm_render_minor {minor}\n")


def strix_halo(changes: "Mapping[str, str | None]" = {}) -> "dict[str, str]":
    """The files of a machine that is set up well, a path and its text each. A change to None leaves a file out."""
    files = {
        "/sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 32\nsimd_count 0\ngfx_target_version 0\n",
        "/sys/class/kfd/kfd/topology/nodes/1/properties": node(110501, 40, 128),
        f"{DEVICE}/mem_info_gtt_total": str(110 * GIB),
        f"{DEVICE}/mem_info_vram_total": str(GIB // 2),
        f"{DEVICE}/fw_version/mes_fw_version": "0x00000080",
        f"{DEVICE}/power_dpm_force_performance_level": "auto",
        f"{DEVICE}/iommu_group/type": "identity",
        "/sys/module/amdgpu/initstate": "live",
        "/sys/module/ttm/parameters/pages_limit": str(110 * GIB // 4096),
        "/sys/class/iommu/ivhd0/name": "",
        "/sys/firmware/acpi/platform_profile": "performance",
        "/proc/sys/kernel/osrelease": "6.16.3",
        "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 iommu=pt quiet",
        "/proc/meminfo": f"MemTotal:       {128 * GIB // 1024} kB\nMemFree: 1 kB\n",
        "/dev/kfd": "",
        "/dev/dri/renderD128": "",
        "/etc/group": f"render:x:{os.getgid()}:someone\nvideo:x:44444:\n",
    }
    for path, text in changes.items():
        if text is None:
            del files[path]
        else:
            files[path] = text
    return files


@pytest.fixture
def machine(tmp_path):
    """Makes a machine of files; `user` is one who may use what the tests' own group may, unless others are named."""
    def make(files: "dict[str, str]", user: "User | None" = User(OUTSIDER, frozenset([os.getgid()]))) -> System:
        for name, text in files.items():
            path = tmp_path / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for path in (tmp_path / "dev").rglob("*"):
            if path.is_file():
                path.chmod(0o660)
        return System(tmp_path, user)
    return make


@pytest.fixture(scope="session")
def hip(tmp_path_factory) -> pathlib.Path:
    return fakes.fake_hip(tmp_path_factory.mktemp("hip"))


def hardware(system: System) -> list:
    """The checks that look at files alone."""
    return [gpu.graphics(system), *gpu.permissions(system), gpu.kernel(system), gpu.firmware(system), memory.limits(system),
            memory.iommu(system), gpu.power(system)]


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "strata_hip.cli", "doctor", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **environment})


def test_a_good_machine_is_ok_in_every_line(machine):
    findings = hardware(machine(strix_halo()))
    assert [finding.level for finding in findings] == [Level.OK] * 8, findings
    told = {finding.check: finding.found for finding in findings}
    assert told["GPU"] == "gfx1151 (40 compute units)"
    assert told["/dev/kfd"] == told["/dev/dri/renderD128"] == "readable and writable"
    assert "6.16.3" in told["kernel"] and told["MES firmware"] == "0x80"
    assert told["GPU memory"] == "GTT 110.0 GiB, ttm.pages_limit 28835840 (110.0 GiB), own memory 0.5 GiB; RAM 128.0 GiB"


def test_the_whole_command_on_a_good_machine(machine, hip, tmp_path):
    """What concerns this package is looked at here, the rest in the tree."""
    machine(strix_halo())
    done = run("--root", tmp_path, STRATA_HIP_LIBRARY=str(hip), FAKE_HIP_VERSION="60400000")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == "ok   GPU                  gfx1151 (40 compute units)"
    assert done.stdout.endswith(", 0 bad: ready\n") and "for gfx1151" in done.stdout and f"{hip}, HIP 6.4" in done.stdout


def test_a_machine_with_nothing(tmp_path):
    done = run("--root", tmp_path, "-o", "json", ROCM_PATH="", STRATA_HIP_LIBRARY="")
    assert done.returncode == 1 and done.stderr == ""
    findings = json.loads(done.stdout)
    assert all(set(finding) == {"check", "level", "found", "meaning", "remedy"} for finding in findings)
    levels = {finding["check"]: finding["level"] for finding in findings}
    assert {levels[check] for check in ("GPU", "/dev/kfd", "/dev/dri", "HIP runtime")} == {"bad"}
    assert {levels[check] for check in ("kernel", "MES firmware", "GPU memory", "power profile")} == {"warn"}
    assert levels["llama-cpp-python"] == levels["ggml"] == levels["emulator"] == levels["code objects"] == "ok"
    assert all(finding["meaning"] and finding["remedy"] for finding in findings if finding["level"] == "bad")
    assert all(finding["meaning"] for finding in findings if finding["level"] == "warn")


def test_this_very_machine_can_be_looked_at():
    done = run()
    assert done.returncode in (0, 1) and done.stderr == ""
    assert done.stdout.splitlines()[-1].endswith(("bad: ready", "bad: not ready to compute on a GPU"))


def test_a_root_that_is_no_folder():
    done = run("--root", "/no/such/folder")
    assert done.returncode == 1 and done.stderr == "strata-hip: --root /no/such/folder: not a folder\n"


def test_another_gpu_is_named(machine):
    system = machine(strix_halo({"/sys/class/kfd/kfd/topology/nodes/1/properties": node(110500, 16, 128)}))
    finding = gpu.graphics(system)
    assert finding.level is Level.BAD and finding.found == "gfx1150 (16 compute units)" and "gfx1151" in finding.meaning
    assert "emulator" in finding.remedy
    code_objects = software.plugin(system)[0]
    assert code_objects.level is Level.BAD and "gfx1150" in code_objects.meaning and "gfx1151" in code_objects.found


def test_the_supported_gpu_counts_beside_another(machine):
    system = machine(strix_halo({"/sys/class/kfd/kfd/topology/nodes/1/properties": node(110001, 96, 129),
                                   "/sys/class/kfd/kfd/topology/nodes/2/properties": node(110501, 40, 128)}))
    assert gpu.graphics(system).level is Level.OK and "gfx1101 (96" in gpu.graphics(system).found
    assert system.gpu().render_node == "renderD128"


def test_a_driver_without_a_gpu(machine):
    system = machine(strix_halo({"/sys/class/kfd/kfd/topology/nodes/1/properties": None}))
    assert "driver is loaded but lists no GPU" in gpu.graphics(system).meaning
    assert [finding.check for finding in gpu.permissions(system)] == ["/dev/kfd", "/dev/dri/renderD128"]


def test_a_user_outside_the_group(machine):
    findings = gpu.permissions(machine(strix_halo(), User(OUTSIDER, frozenset([OUTSIDER]))))
    assert [finding.level for finding in findings] == [Level.BAD] * 2
    assert "group render" in findings[0].found and "usermod -aG render $USER" in findings[0].remedy


def test_nobody_is_told_to_join_the_group_root(machine):
    findings = gpu.permissions(machine(strix_halo({"/etc/group": f"root:x:{os.getgid()}:"}), User(OUTSIDER, frozenset([OUTSIDER]))))
    assert "usermod" not in findings[0].remedy and "chgrp render" in findings[0].remedy


def test_a_group_without_a_name_and_open_nodes(machine):
    system = machine(strix_halo({"/etc/group": ""}), User(OUTSIDER, frozenset([OUTSIDER])))
    assert f"group {os.getgid()}" in gpu.permissions(system)[0].found
    system.path("/dev/kfd").chmod(0o666)
    assert [finding.level for finding in gpu.permissions(system)] == [Level.OK, Level.BAD]


def test_the_owner_and_root(machine):
    system = machine(strix_halo())
    system.path("/dev/kfd").chmod(0o060)  # the owner's bits count for the owner
    assert [f.level for f in gpu.permissions(System(system.root, User(os.getuid() or OUTSIDER, frozenset())))][:1] == [Level.BAD]
    assert [f.level for f in gpu.permissions(System(system.root, User(0, frozenset())))] == [Level.OK] * 2


def test_missing_nodes(machine):
    findings = gpu.permissions(machine(strix_halo({"/dev/kfd": None, "/dev/dri/renderD128": None})))
    assert [(finding.check, finding.level) for finding in findings] == [("/dev/kfd", Level.BAD), ("/dev/dri/renderD128", Level.BAD)]
    assert "--device /dev/kfd" in findings[0].remedy


@pytest.mark.parametrize("text, version, level", [
    ("0x00000080", "0x80", Level.OK), ("0x00000083", "0x83", Level.BAD), ("0x00000086", "0x86", Level.BAD),
    ("0x00011083", "0x83", Level.BAD), ("0x00000087", "0x87", Level.OK)])
def test_mes_firmware(machine, text, version, level):
    finding = gpu.firmware(machine(strix_halo({f"{DEVICE}/fw_version/mes_fw_version": text})))
    assert (finding.found, finding.level) == (version, level)
    assert ("linux-firmware" in finding.remedy) == (level is Level.BAD)


def test_mes_firmware_from_debugfs(machine):
    files = strix_halo({f"{DEVICE}/fw_version/mes_fw_version": None})
    system = machine(files)
    finding = gpu.firmware(system)
    assert finding.level is Level.WARN and "sudo" in finding.remedy
    for name in [path for path in files if path.startswith(DEVICE)]:
        system.path(name).unlink()
    # As the kernel has it: a link to the PCI device, and a folder of that name among others in debugfs.
    address = system.path("/sys/devices/0000:c4:00.0")
    address.mkdir(parents=True)
    for folder in sorted(system.path(DEVICE).rglob("*"), reverse=True):
        folder.rmdir()
    system.path(DEVICE).rmdir()
    system.path(DEVICE).symlink_to(address)
    for name, version in (("0", "0x00000011"), ("1", "0x00000083")):
        folder = system.path(f"/sys/kernel/debug/dri/{name}")
        folder.mkdir(parents=True)
        (folder / "name").write_text("amdgpu dev=0000:03:00.0" if name == "0" else "amdgpu dev=0000:c4:00.0 unique=0000:c4:00.0")
        (folder / "amdgpu_firmware_info").write_text(f"VCE feature version: 0, firmware version: 0x00000000\n"
                                                     f"MES feature version: 1, firmware version: {version}\n")
    assert gpu.firmware(system).found == "0x83"


def test_default_limits_are_half_of_ram(machine):
    finding = memory.limits(machine(strix_halo({
        f"{DEVICE}/mem_info_gtt_total": str(64 * GIB), "/sys/module/ttm/parameters/pages_limit": str(64 * GIB // 4096)})))
    assert finding.level is Level.WARN and "64.5 GiB" in finding.meaning
    assert "ttm.pages_limit=29360128 amdgpu.gttsize=114688" in finding.remedy  # 112 of 128 GiB


def test_the_smaller_limit_counts(machine):
    finding = memory.limits(machine(strix_halo({"/sys/module/ttm/parameters/pages_limit": str(16 * GIB // 4096)})))
    assert finding.level is Level.WARN and "16.5 GiB" in finding.meaning


def test_much_memory_of_its_own_is_as_good(machine):
    files = strix_halo({
        "/proc/meminfo": f"MemTotal: {32 * GIB // 1024} kB\n", "/sys/module/ttm/parameters/pages_limit": str(16 * GIB // 4096),
        f"{DEVICE}/mem_info_gtt_total": str(16 * GIB), f"{DEVICE}/mem_info_vram_total": str(96 * GIB)})
    assert memory.limits(machine(files)).level is Level.OK


def test_no_memory_at_all(machine):
    files = strix_halo({"/sys/module/ttm/parameters/pages_limit": "1000"})
    assert memory.limits(machine(files)).level is Level.BAD
    files["/proc/meminfo"] = "nothing"
    assert memory.limits(machine(files)).level is Level.WARN


@pytest.mark.parametrize("ram", [16 * GIB, 31 * GIB, 64 * GIB - 12345678, 125 * GIB])
def test_suggested_parameters_agree_and_leave_an_eighth(ram):
    values = dict(part.split("=") for part in memory.parameters(ram).split())
    pages, megabytes = int(values["ttm.pages_limit"]), int(values["amdgpu.gttsize"])
    assert pages * 4096 == megabytes * 2**20 <= ram * 7 // 8 < pages * 4096 + GIB


@pytest.mark.parametrize("changes, level", [
    ({}, Level.OK),
    ({"/proc/cmdline": "quiet", f"{DEVICE}/iommu_group/type": "identity"}, Level.OK),
    ({"/proc/cmdline": "quiet", f"{DEVICE}/iommu_group/type": "DMA-FQ"}, Level.WARN),
    ({"/proc/cmdline": "quiet", f"{DEVICE}/iommu_group/type": None}, Level.WARN),
    ({"/proc/cmdline": "amd_iommu=off", "/sys/class/iommu/ivhd0/name": None}, Level.OK)])
def test_iommu(machine, changes, level):
    finding = memory.iommu(machine(strix_halo(changes)))
    assert finding.level is level
    assert ("iommu=pt" in finding.remedy) == (level is Level.WARN)


@pytest.mark.parametrize("profile, level, expected", [
    ("performance", "auto", Level.OK), ("balanced", "auto", Level.OK), ("low-power", "auto", Level.WARN), ("balanced", "low", Level.WARN),
    (None, "auto", Level.OK)])
def test_power(machine, profile, level, expected):
    finding = gpu.power(machine(strix_halo({"/sys/firmware/acpi/platform_profile": profile,
                                              f"{DEVICE}/power_dpm_force_performance_level": level})))
    assert finding.level is expected
    assert ("platform_profile" in finding.remedy, "force_performance_level" in finding.remedy) == (profile == "low-power", level == "low")


def test_kernel_without_the_driver(machine):
    assert "modprobe" in gpu.kernel(machine(strix_halo({"/sys/module/amdgpu/initstate": None}))).remedy


@pytest.mark.parametrize("version, level, words", [
    ("60400000", Level.OK, "HIP 6.4"), ("60200000", Level.OK, "HIP 6.2"),
    ("50731921", Level.BAD, "HIP 5.7"), ("60100000", Level.BAD, "HIP 6.1"),
    ("70000000", Level.WARN, "HIP 7.0"), ("70226015", Level.WARN, "HIP 7.2"), ("70300000", Level.OK, "HIP 7.3")])
def test_hip_versions(tmp_path, hip, monkeypatch, version, level, words):
    folder = tmp_path / "opt" / "rocm" / "lib"
    folder.mkdir(parents=True)
    (folder / "libamdhip64.so").symlink_to(hip)
    for name in ("STRATA_HIP_LIBRARY", "ROCM_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FAKE_HIP_VERSION", version)
    finding = software.hip_library(System(tmp_path))
    assert finding.level is level and words in finding.found and "opt/rocm/lib" in finding.found


def test_a_newer_hip_is_taken_before_an_old_one(tmp_path, hip, monkeypatch):
    monkeypatch.setenv("STRATA_HIP_LIBRARY", str(tmp_path / "gone.so"))
    finding = software.hip_library(System(tmp_path))
    assert finding.level is Level.BAD and f"tried {tmp_path}/gone.so" in finding.found


def test_broken_hip_libraries(tmp_path, monkeypatch):
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    monkeypatch.setenv("STRATA_HIP_LIBRARY", str(broken))
    finding = software.hip_library(System(tmp_path))
    assert finding.level is Level.BAD and str(broken) in finding.found
    source = tmp_path / "abort.c"
    source.write_text("void abort(void); __attribute__((constructor)) static void start(void) { abort(); }")
    monkeypatch.setenv("STRATA_HIP_LIBRARY", str(fakes.compile_c(source, tmp_path / "abort.so")))
    assert "ended the process" in software.hip_library(System(tmp_path)).found


def test_another_llama_cpp_or_ggml(monkeypatch):
    facts = {"llama_cpp_python": "9.9.9", "ggml": "9.9.8"}
    assert [finding.level for finding in software.llama_cpp()] == [Level.OK] * 2
    monkeypatch.setattr(built, "facts", lambda: facts)
    package, ggml = software.llama_cpp()
    assert package.level is ggml.level is Level.BAD
    assert "9.9.9" in package.meaning and "pip install llama-cpp-python==9.9.9" in package.remedy and "9.9.8" in ggml.meaning


def test_a_stock_backend_in_the_package(monkeypatch, tmp_path):
    package = tmp_path / "llama_cpp"
    (package / "lib").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "lib" / "libggml-hip.so").touch()
    monkeypatch.setattr(software.importlib.util, "find_spec", lambda _: type("Spec", (), {"submodule_search_locations": [str(package)]}))
    findings = {finding.check: finding for finding in software.llama_cpp()}
    assert findings["ggml"].level is Level.BAD and "cannot be loaded" in findings["ggml"].found
    assert findings["stock backend"].level is Level.WARN and "race" in findings["stock backend"].meaning


def test_a_missing_plugin(monkeypatch, tmp_path):
    monkeypatch.setenv("STRATA_LIBRARY_DIR", str(tmp_path))
    [finding] = software.plugin(System(tmp_path))
    assert finding.level is Level.BAD and str(tmp_path) in finding.found and "make build" in finding.remedy


def test_switches_are_told():
    told = software.switches({"switches": {"fusion": True, "wmma": True}})
    assert told.level is Level.OK and told.found == "all on: fusion, wmma"
    told = software.switches({"switches": {"fusion": True, "wmma": False}})
    assert told.level is Level.WARN and told.found == "off: wmma" and "STRATA_DISABLE" in told.remedy


def test_a_switch_of_this_environment(tmp_path):
    findings = json.loads(run("--root", tmp_path, "-o", "json", STRATA_DISABLE="wmma").stdout)
    assert [finding["found"] for finding in findings if finding["check"] == "switches"] == ["off: wmma"]


def test_a_switch_that_does_not_exist(tmp_path):
    findings = json.loads(run("--root", tmp_path, "-o", "json", STRATA_DISABLE="wmmma").stdout)
    [finding] = [finding for finding in findings if "wmmma" in finding["found"]]
    assert finding["level"] == "bad" and "unset STRATA_DISABLE" in finding["remedy"]


@pytest.mark.parametrize("name, value, words", [("STRATA_SYNC", "1", "slower"), ("HSA_OVERRIDE_GFX_VERSION", "11.0.0", "another GPU")])
def test_misleading_variables(monkeypatch, name, value, words):
    for each in ("STRATA_SYNC", "HSA_OVERRIDE_GFX_VERSION"):
        monkeypatch.delenv(each, raising=False)
    assert software.environment().level is Level.OK
    monkeypatch.setenv(name, value)
    finding = software.environment()
    assert finding.level is Level.WARN and name in finding.found and words in finding.meaning and name in finding.remedy


def test_a_broken_llama_cpp(monkeypatch, tmp_path):
    (tmp_path / "llama_cpp.py").write_text("raise ImportError('libllama.so is broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    [finding] = software.plugin(System(tmp_path))
    assert finding.level is Level.BAD and finding.found == "ImportError: libllama.so is broken"


@pytest.mark.parametrize("line, level", [
    ("AMD clang version 20.0.0git (https://github.com/RadeonOpenCompute/llvm-project roc-7.1.1 25444 27682a16)", Level.WARN),
    ("AMD clang version 18.0.0git (https://github.com/RadeonOpenCompute/llvm-project roc-6.4.0 25133 27682a16)", Level.OK),
    ("Debian clang version 19.1.7 (3~deb12u1)", Level.OK)])
def test_compilers(monkeypatch, tmp_path, line, level):
    program = tmp_path / "clang++"
    program.write_text(f"#!/bin/sh\n[ $1 = --version ] && echo '{line}' || echo '    amdgcn - AMD GCN GPUs'\n")
    program.chmod(0o755)
    monkeypatch.setenv("STRATA_CLANG", str(program))
    finding = software.clang()
    assert finding.level is level and line in finding.found


def test_no_compiler_is_no_fault(monkeypatch, tmp_path):
    monkeypatch.setenv("STRATA_CLANG", str(tmp_path / "none"))
    finding = software.clang()
    assert finding.level is Level.OK and "none" in finding.found and "clang-19" in finding.meaning


def test_each_bad_or_warned_line_is_shown_with_its_meaning_and_remedy(machine):
    system = machine(strix_halo({"/dev/kfd": None}))
    text = doctor.as_text(hardware(system))
    assert "bad  /dev/kfd" in text and "means: the GPU cannot be opened" in text and "do: Load the driver" in text
    assert text.endswith("7 ok, 0 to look at, 1 bad: not ready to compute on a GPU")
