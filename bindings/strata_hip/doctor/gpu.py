"""The GPU: which one, whether this user may use it, its kernel driver and firmware, its power profile."""
import re
from typing import List, Optional

from .finding import Finding, bad, ok, warn
from .system import GPU_SUPPORTED, Gpu, System

NO_GPU = "not looked at: no GPU is listed"
BAD_MES = {0x83: "it hangs the GPU", 0x86: "it is on the list of versions known to be bad"}
EMULATOR = "The emulator needs no GPU: --runtime emulator."


def graphics(system: System) -> Finding:
    """The GPU and its gfx target, from the compute driver's topology."""
    gpus = system.gpus()
    names = ", ".join(f"{gpu.arch} ({gpu.compute_units} compute units)" for gpu in gpus)
    if any(gpu.arch == GPU_SUPPORTED for gpu in gpus):
        return ok("GPU", names)
    if gpus:
        return bad("GPU", names, f"no code objects are carried for it; this backend computes on {GPU_SUPPORTED} (Strix Halo)", EMULATOR)
    loaded = system.path("/sys/module/amdgpu").exists()
    return bad("GPU", "none in /sys/class/kfd/kfd/topology/nodes",
               "the amdgpu driver is loaded but lists no GPU" if loaded else "there is no AMD GPU, or the amdgpu driver is not loaded",
               f"With a Strix Halo: look into `dmesg | grep amdgpu`; in a container, pass /dev/kfd and /dev/dri on. {EMULATOR}")


def permissions(system: System) -> List[Finding]:
    """Whether the user may open /dev/kfd and the GPU's node in /dev/dri."""
    gpu = system.gpu()
    nodes = [system.path("/dev/kfd")]
    if gpu and gpu.render_node:
        nodes.append(system.path(f"/dev/dri/{gpu.render_node}"))
    else:
        nodes += [node for node in system.listed("/dev/dri") if node.name.startswith("renderD")][:1] or [system.path("/dev/dri")]
    found = []
    for node in nodes:
        name = "/" + str(node.relative_to(system.root))
        if not node.exists():
            found.append(bad(name, "does not exist", "the GPU cannot be opened",
                             "Load the driver (modprobe amdgpu); in a container, pass it on: --device /dev/kfd --device /dev/dri"))
        elif system.may_use(node):
            found.append(ok(name, "readable and writable"))
        else:
            group = system.group_of(node)
            found.append(bad(name, f"exists, but this user may not open it; it belongs to the group {group}", "the GPU cannot be opened",
                             f"sudo usermod -aG {group} $USER, then log in again" if group != "root" else
                             f"It should belong to the group render, by the distribution's udev rules: sudo chgrp render {name}"))
    return found


def kernel(system: System) -> Finding:
    """The kernel's version, and whether it has the driver."""
    release = system.read("/proc/sys/kernel/osrelease")
    if release is None:
        return warn("kernel", "/proc/sys/kernel/osrelease cannot be read", "its version is unknown")
    if not system.path("/sys/module/amdgpu").exists():
        return warn("kernel", f"Linux {release}, without amdgpu", "the GPU's driver is not loaded", "modprobe amdgpu")
    version = system.read("/sys/module/amdgpu/version")
    return ok("kernel", f"Linux {release}, amdgpu {version or 'of the kernel itself'}")


def firmware(system: System) -> Finding:
    """The firmware of the micro engine scheduler (MES), which starts every kernel."""
    gpu = system.gpu()
    if gpu is None:
        return warn("MES firmware", NO_GPU, "its version is unknown")
    version = _mes_version(system, gpu)
    if version is None:
        return warn("MES firmware", "its version cannot be read", "versions " + ", ".join(map(hex, BAD_MES)) + " are known to be bad",
                    "Only root may read it: sudo strata-hip doctor, or sudo grep MES /sys/kernel/debug/dri/*/amdgpu_firmware_info")
    if version in BAD_MES:
        return bad("MES firmware", hex(version), BAD_MES[version],
                   "Install another version of the linux-firmware package (amdgpu/gc_11_5_1_mes*.bin), rebuild the initramfs, and reboot")
    return ok("MES firmware", hex(version))


def _mes_version(system: System, gpu: Gpu) -> Optional[int]:
    """From the device's fw_version/, or else from debugfs; the low 12 bits are the version."""
    value = system.number(gpu.device / "fw_version" / "mes_fw_version") if gpu.device else None
    if value is None:
        address = gpu.device.resolve().name if gpu.device else ""
        for folder in system.listed("/sys/kernel/debug/dri"):
            text = system.read(folder / "amdgpu_firmware_info") or ""
            match = re.search(r"^MES feature version: .*firmware version: (0x[0-9a-fA-F]+)", text, re.M)
            if match and (folder.name == address or f"dev={address}" in (system.read(folder / "name") or f"dev={address}")):
                value = int(match[1], 16)
                break
    return value & 0xfff if value else None


def power(system: System) -> Finding:
    """The platform's power profile and the GPU's own level."""
    profile = system.read("/sys/firmware/acpi/platform_profile")
    gpu = system.gpu()
    level = system.read(gpu.device / "power_dpm_force_performance_level") if gpu and gpu.device else None
    found = ", ".join([f"platform profile {profile}"] * bool(profile) + [f"GPU performance level {level}"] * bool(level))
    if not found:
        return warn("power profile", "neither the platform nor a GPU tells one", "its clocks are unknown")
    remedies = []
    if profile in ("low-power", "quiet", "cool"):
        remedies.append("echo performance | sudo tee /sys/firmware/acpi/platform_profile (or: powerprofilesctl set performance)")
    if level == "low" and gpu and gpu.device:
        remedies.append("echo auto | sudo tee /sys/class/drm/" + f"{gpu.render_node}/device/power_dpm_force_performance_level")
    if remedies:
        return warn("power profile", found, "clocks are held down: results are the same, but slower", "; ".join(remedies))
    if profile and profile != "performance":
        return ok("power profile", found, "for measurements choose performance, and say which it was")
    return ok("power profile", found)
