"""Memory that the GPU may use, and the IOMMU on the way to it."""
from typing import Optional

from .finding import Finding, bad, ok, warn
from .gpu import NO_GPU
from .system import System

PAGE = 4096          # bytes; of x86-64, which ttm.pages_limit counts in
KEPT_FOR_SYSTEM = 8  # the suggested limit leaves one part in so many to the rest of the system


def gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"


def parameters(ram: int) -> str:
    """Kernel parameters that let the GPU use all RAM but what is kept for the system; in whole GiB. `ram` is in bytes."""
    limit = (ram - ram // KEPT_FOR_SYSTEM) // 2**30
    return f"ttm.pages_limit={limit * (2**30 // PAGE)} amdgpu.gttsize={limit * 1024}"


def limits(system: System) -> Finding:
    """The system memory that the GPU may map: the GTT's size and ttm.pages_limit, against RAM."""
    check = "GPU memory"
    gpu = system.gpu()
    ram = _ram(system)
    if gpu is None:
        return warn(check, NO_GPU + (f"; RAM {gib(ram)}" if ram else ""), "how much of RAM a GPU may use is unknown")
    gtt = system.number(gpu.device / "mem_info_gtt_total") if gpu.device else None
    vram = (system.number(gpu.device / "mem_info_vram_total") if gpu.device else None) or 0
    pages = system.number("/sys/module/ttm/parameters/pages_limit")
    if not ram or not gtt:
        return warn(check, "the driver does not tell its GTT size" if ram else "/proc/meminfo cannot be read",
                    "how much memory models may take is unknown")
    usable = min(gtt, pages * PAGE) if pages else gtt
    limit = f"{pages} ({gib(pages * PAGE)})" if pages else "unknown"
    told = f"GTT {gib(gtt)}, ttm.pages_limit {limit}, own memory {gib(vram)}; RAM {gib(ram)}"
    if usable + vram >= 0.75 * (ram + vram):
        return ok(check, told)
    set_them = (f"Add to the kernel's command line (GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub), and reboot: "
                f"{parameters(ram)} (all but one part in {KEPT_FOR_SYSTEM} of RAM)")
    if usable + vram < 2**30:
        return bad(check, told, "hardly any model fits", set_them)
    return warn(check, told, f"models and their caches may take {gib(usable + vram)}", set_them)


def iommu(system: System) -> Finding:
    """Whether the GPU's accesses are translated by an IOMMU."""
    command_line = (system.read("/proc/cmdline") or "").split()
    if not system.listed("/sys/class/iommu"):
        return ok("IOMMU", "off")
    gpu = system.gpu()
    kind = system.read(gpu.device / "iommu_group" / "type") if gpu and gpu.device else None
    if kind == "identity" or "iommu=pt" in command_line:
        return ok("IOMMU", "on, passed through" + (" (iommu=pt)" if "iommu=pt" in command_line else ""))
    return warn("IOMMU", "on" + (f", type {kind} for the GPU" if kind else ""),
                "it translates every access of a device, which can cost bandwidth",
                "Add iommu=pt to the kernel's command line (devices that the kernel drives itself then pass through), and reboot")


def _ram(system: System) -> Optional[int]:
    """MemTotal in bytes."""
    for line in (system.read("/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal" and value.split()[:1] and value.split()[0].isdigit():
            return int(value.split()[0]) * 1024
    return None
