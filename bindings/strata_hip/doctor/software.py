"""Libraries: AMD's HIP, llama-cpp-python, the plugin itself, and what else is in the process or the environment."""
import ctypes
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any, Dict, List, Optional, Tuple

from .. import built
from .finding import Finding, bad, ok, warn
from .gpu import EMULATOR
from .system import GPU_SUPPORTED, System

OLDEST_HIP = (6, 2)
BAD_CODE_GENERATION = ((7, 0), (7, 2))  # ROCm, first and last
HIP_NAMES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so")
CLANGS = ("clang++-19", "clang++-20", "clang++-21", "clang++-22", "clang++")  # as cmake/DeviceClang.cmake
STOCK_BACKENDS = ("libggml-hip.so", "libggml-cuda.so")

# Loads HIP libraries where a crash of one does no harm, and prints what each is.
_PROBE = """
import ctypes, json, sys
for name in sys.argv[1:]:
    try:
        library = ctypes.CDLL(name)
        version = ctypes.c_int()
        library.hipRuntimeGetVersion(ctypes.byref(version))
        print(json.dumps([name, version.value, ""]), flush=True)
    except (OSError, AttributeError) as error:
        print(json.dumps([name, 0, str(error)]), flush=True)
"""


def hip_library(system: System) -> Finding:
    """AMD's libamdhip64 and its version; the places are the plugin's own (backend/runtime/library.cpp)."""
    check = "HIP runtime"
    newest_first = _probed(_hip_candidates(system))
    found = [(name, version) for name, version, _ in newest_first if version]
    usable = [each for each in found if each[1] >= OLDEST_HIP]
    remedy = "Install the HIP runtime of ROCm 6.2 or newer (not all of ROCm is needed), or name its library in STRATA_HIP_LIBRARY"
    if usable:
        name, version = usable[0]
        told = f"{name}, HIP {version[0]}.{version[1]}"
        if BAD_CODE_GENERATION[0] <= version <= BAD_CODE_GENERATION[1]:
            return warn(check, told, "ROCm 7.0 to 7.2 are known for wrong code generation. The code objects carried here were compiled by "
                        "another compiler; kernels compiled with theirs, of this or other programs, are suspect",
                        "Use another ROCm's compiler, or Debian's clang, for kernels")
        return ok(check, told)
    if found:
        name, version = found[0]
        return bad(check, f"{name}, HIP {version[0]}.{version[1]}", "too old", remedy)
    broken = [f"{name}: {why}" for name, _, why in newest_first if why and not why.endswith("No such file or directory")]
    return bad(check, "; ".join(broken) or f"no libamdhip64.so; tried {', '.join(name for name, _, _ in newest_first)}",
               "no GPU can be used", remedy)


def _hip_candidates(system: System) -> List[str]:
    if named := os.environ.get("STRATA_HIP_LIBRARY"):
        return [named]
    names = list(HIP_NAMES) if system.here else []
    if rocm := os.environ.get("ROCM_PATH"):
        names.append(f"{rocm}/lib/libamdhip64.so")
    names.append(str(system.path("/opt/rocm/lib/libamdhip64.so")))
    return [*names, "libamdhip64.so.5"] if system.here else names  # the last only to say that it is too old


def _probed(names: List[str]) -> List[Tuple[str, Tuple[int, ...], str]]:
    """For each library its name, version (major, minor; empty if it cannot be loaded), and why not."""
    done = subprocess.run([sys.executable, "-c", _PROBE, *names], capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    result: List[Tuple[str, Tuple[int, ...], str]] = [
        (name, (version // 10000000, version // 100000 % 100) if version else (), why) for name, version, why in lines]
    if len(result) < len(names):
        result.append((names[len(result)], (), f"loading it ended the process (exit code {done.returncode})"))
    return result


def llama_cpp() -> List[Finding]:
    """llama-cpp-python's version, its ggml against the one that the plugin is made for, and stock GPU backends in it."""
    check = "llama-cpp-python"
    wanted = built.facts()
    install = f"pip install llama-cpp-python=={wanted['llama_cpp_python']}" if wanted else "pip install strata-hip"
    reinstall = f"{install} --force-reinstall"
    try:
        version = importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:
        return [bad(check, "not installed", "nothing works without it", install)]
    if wanted and version != wanted["llama_cpp_python"]:
        found = [bad(check, version, f"the plugin is made for {wanted['llama_cpp_python']}: ggml's private layouts differ", install)]
    else:
        found = [ok(check, version)]
    spec = importlib.util.find_spec("llama_cpp")
    folders = spec.submodule_search_locations if spec else None
    library = pathlib.Path(next(iter(folders or [""]))) / "lib"
    ggml = _ggml_version(library / "libggml-base.so.0")
    if ggml is None:
        found.append(bad("ggml", f"{library}/libggml-base.so.0 cannot be loaded", "nothing works without it", reinstall))
    elif wanted and ggml != wanted["ggml"]:
        found.append(bad("ggml", ggml, f"the plugin is made for {wanted['ggml']} and refuses any other", reinstall))
    else:
        found.append(ok("ggml", ggml))
    if stock := [name for name in STOCK_BACKENDS if (library / name).exists()]:
        found.append(warn("stock backend", ", ".join(stock), "it may offer the same GPU. On an integrated GPU, builds of it that share "
                          "memory with the CPU let the next batch's inputs race the running graph: wrong output at full speed",
                          "Choose this backend by name (--device STRATA0; `strata-hip` and strata_hip.Llama do)"))
    return found


def _ggml_version(path: pathlib.Path) -> Optional[str]:
    try:
        library = ctypes.CDLL(str(path))
        library.ggml_version.restype = ctypes.c_char_p
        return str(library.ggml_version().decode())
    except (OSError, AttributeError):
        return None


def plugin(system: System) -> List[Finding]:
    """The code objects carried, the switches, and whether the plugin opens: on the emulator, and on the GPU of this machine."""
    info, why = _opened("emulator")
    if info is None and why.startswith("STRATA_DISABLE"):
        return [bad("switches", why, "the plugin does not start with a name that it does not know", "correct or unset STRATA_DISABLE")]
    if info is None:
        return [bad("plugin", why, "the plugin or the emulator cannot be loaded",
                    "pip install --force-reinstall strata-hip, or `make build` in the source tree")]
    targets: Dict[str, int] = {}
    for each in info["code_objects"]:
        targets[each["target"]] = targets.get(each["target"], 0) + 1
    carried = ", ".join(f"{count} for {target}" for target, count in sorted(targets.items()))
    compiler = built.facts().get("compiler")
    found = [ok("code objects", carried + (f", compiled by {compiler}" if compiler else ""))]
    gpu = system.gpu()
    if gpu and gpu.arch not in targets:
        found[0] = bad("code objects", carried, f"none is for {gpu.arch}", f"This backend computes on {GPU_SUPPORTED}. {EMULATOR}")
    found += [switches(info), ok("emulator", f"opens ({info['library']})")]
    if system.here:
        opened, why = _opened("hip")
        if opened:
            found.append(ok("device", ", ".join(f"{device['name']}: {device['description']}" for device in opened["devices"])))
        else:
            found.append(bad("device", why, "no GPU can be used",
                             "The lines above say why; `strata-hip devices` says what was tried"))
    return found


def _opened(runtime: str) -> Tuple[Optional[Dict[str, Any]], str]:
    """What the plugin says of itself on a runtime, or else why it does not open. In a process of its own: a process has one runtime."""
    command = [sys.executable, "-m", "strata_hip.cli", "devices", "--runtime", runtime, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout), ""
    lines = done.stderr.strip().splitlines() or [f"it ended with exit code {done.returncode}"]
    return None, lines[-1] if lines[0].startswith("Traceback") else lines[0].removeprefix("strata-hip: ")


def switches(info: Dict[str, Any]) -> Finding:
    """Which kernels and fusions STRATA_DISABLE has turned off."""
    states: Dict[str, bool] = info["switches"]
    off = [name for name, on in states.items() if not on]
    if off:
        return warn("switches", f"off: {', '.join(off)}", "STRATA_DISABLE turns these kernels and fusions off: slower",
                    "unset STRATA_DISABLE")
    return ok("switches", "all on: " + ", ".join(states))


def environment() -> Finding:
    """Variables, other than STRATA_DISABLE, that change how things are computed."""
    if override := os.environ.get("HSA_OVERRIDE_GFX_VERSION"):
        return warn("environment", f"HSA_OVERRIDE_GFX_VERSION={override}", "the runtime then names another GPU than there is",
                    "unset HSA_OVERRIDE_GFX_VERSION")
    if os.environ.get("STRATA_SYNC", "0") not in ("", "0"):
        return warn("environment", "STRATA_SYNC is set", "each launch is waited for: slower", "unset STRATA_SYNC")
    return ok("environment", "nothing in it slows the backend down or misleads it")


def clang() -> Finding:
    """The compiler that a build from source would take."""
    check = "clang"
    named = os.environ.get("STRATA_CLANG")
    rocm = os.environ.get("ROCM_PATH")
    names = [named] if named else [*([f"{rocm}/llvm/bin/clang++"] if rocm else []), *CLANGS]
    for name in names:
        path = shutil.which(name)
        if path and "amdgcn" in subprocess.run([path, "--print-targets"], capture_output=True, text=True).stdout:
            lines = subprocess.run([path, "--version"], capture_output=True, text=True).stdout.splitlines()
            told = f"{path}: {lines[0] if lines else 'unknown version'}"
            match = re.search(r"\broc-(\d+)\.(\d+)", told)
            if match and BAD_CODE_GENERATION[0] <= (int(match[1]), int(match[2])) <= BAD_CODE_GENERATION[1]:
                return warn(check, told, "the compilers of ROCm 7.0 to 7.2 are known for wrong code generation",
                            "apt-get install clang-19 lld-19")
            return ok(check, told)
    return ok(check, f"none with the AMDGPU target (looked for {', '.join(names)})",
              "only builds from source need one: apt-get install clang-19 lld-19")
