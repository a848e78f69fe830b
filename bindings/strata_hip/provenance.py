"""What a number must carry: which device, driver and code made it, and with which switches."""
import dataclasses
import hashlib
import os
import platform
from typing import Dict, List

from . import devices, plugin

# Variables that change what is computed, or how; those that only name places are left out.
_PREFIXES = ("STRATA_", "HIP_", "HSA_", "ROCR_", "AMD_", "GGML_CUDA_", "GGML_SCHED_")
_PLACES = {"STRATA_RUNTIME", "STRATA_LIBRARY_DIR", "STRATA_CACHE", "STRATA_TOOLS", "STRATA_PEER_LIBRARY", "STRATA_CLANG", "STRATA_TARGETS",
           "STRATA_WERROR", "HIP_PATH", "HSA_PATH"}


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Texts are empty where there is nothing to say."""
    device: str          # "STRATA0: Emulated Strix Halo GPU"
    runtime: str         # "hip", "emulator" or "cpu"
    arch: str            # "gfx1151"
    driver_version: str  # "HIP 6.3.42131, Linux 6.14.0-33-generic"
    code_objects: str    # the first 16 digits of a SHA-256 of all code objects
    switches: str        # "STRATA_DISABLE=wmma STRATA_SYNC=1"
    emulated: bool

    def describe(self) -> List[str]:
        """Lines for people."""
        place = f"device: {self.device}, {self.arch}{', *emulated*' if self.emulated else ''}"
        parts = [f"runtime: {self.runtime}"]
        if self.driver_version:
            parts.append(f"driver: {self.driver_version}")
        if self.code_objects:
            parts.append(f"code objects: {self.code_objects}")
        parts.append(f"switches: {self.switches or 'none'}")
        return [place, "; ".join(parts)]


def switches() -> str:
    """The variables of the environment that change what is computed, or how."""
    names = sorted(name for name in os.environ if name.startswith(_PREFIXES) and name not in _PLACES)
    return " ".join(f"{name}={os.environ[name]}" for name in names)


def code_object_hash(code_objects: List[Dict[str, str]]) -> str:
    """One hash of what plugin.info lists as "code_objects"."""
    lines = sorted(f"{each['family']} {each['target']} {each['hash']}" for each in code_objects)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def cpu_name() -> str:
    """ggml's description of the CPU."""
    return ", ".join(device.description for device in devices.all_devices() if device.on_cpu or device.accelerates)


def of(backend: str) -> Provenance:
    """What "strata-hip" or "cpu" computes with in this process; the plugin must be loaded for the former."""
    ours = plugin.loaded()
    if backend == "cpu" or ours is None:
        return Provenance(f"CPU: {cpu_name()}", "cpu", platform.machine(), f"Linux {platform.release()}", "", switches(), False)
    info = ours.info
    version = info["driver_version"]
    hip = f"{version // 10_000_000}.{version // 100_000 % 100}.{version % 100_000}"
    return Provenance(
        device=", ".join(f"{device['name']}: {device['description']}" for device in info["devices"]),
        runtime=info["runtime"], arch=", ".join(sorted({device["arch"] for device in info["devices"]})),
        driver_version=f"HIP {hip}, Linux {platform.release()}", code_objects=code_object_hash(info["code_objects"]),
        switches=switches(), emulated=info["runtime"] == "emulator")
