"""The machine that the doctor looks at: /sys, /proc, /dev and /etc, or a copy of another machine's."""
import dataclasses
import os
import pathlib
import re
import stat
from typing import Dict, FrozenSet, List, Optional

GPU_SUPPORTED = "gfx1151"


@dataclasses.dataclass(frozen=True)
class User:
    """Who wants to use the GPU."""
    uid: int
    gids: FrozenSet[int]


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU as the kernel's compute driver lists it."""
    arch: str                       # "gfx1151"
    compute_units: int
    render_node: Optional[str]      # "renderD128"
    device: Optional[pathlib.Path]  # the PCI device's folder in sysfs


@dataclasses.dataclass(frozen=True)
class System:
    """A machine's files below `root`. With `user`, permissions are computed for that user from owners and modes; without, the kernel is
    asked about this process, which also knows access control lists."""
    root: pathlib.Path = pathlib.Path("/")
    user: Optional[User] = None

    @property
    def here(self) -> bool:
        """Whether it is the machine that this runs on."""
        return self.root == pathlib.Path("/")

    def path(self, name: str) -> pathlib.Path:
        """The place of an absolute path."""
        return self.root / name.lstrip("/")

    def read(self, name: "str | pathlib.Path") -> Optional[str]:
        """A file's text without the space around it. None if it cannot be read."""
        path = self.path(name) if isinstance(name, str) else name
        try:
            return path.read_text(errors="replace").strip()
        except OSError:
            return None

    def number(self, name: "str | pathlib.Path") -> Optional[int]:
        """A file's first number, decimal or 0x hexadecimal. None if there is none."""
        return first_number(self.read(name) or "")

    def listed(self, name: str) -> List[pathlib.Path]:
        """What a folder holds, sorted. Empty if it cannot be read."""
        try:
            return sorted(self.path(name).iterdir())
        except OSError:
            return []

    def may_use(self, path: pathlib.Path) -> bool:
        """Whether the user may read and write a file."""
        if self.user is None:
            return os.access(path, os.R_OK | os.W_OK)
        status = path.stat()
        if self.user.uid == 0:
            return True
        if status.st_uid == self.user.uid:
            wanted = stat.S_IRUSR | stat.S_IWUSR
        elif status.st_gid in self.user.gids:
            wanted = stat.S_IRGRP | stat.S_IWGRP
        else:
            wanted = stat.S_IROTH | stat.S_IWOTH
        return status.st_mode & wanted == wanted

    def group_of(self, path: pathlib.Path) -> str:
        """The name of the group that a file belongs to, or its number."""
        gid = path.stat().st_gid
        for line in (self.read("/etc/group") or "").splitlines():
            fields = line.split(":")
            if len(fields) > 2 and fields[2] == str(gid):
                return fields[0]
        return str(gid)

    def gpus(self) -> List[Gpu]:
        """The GPUs in the compute driver's topology; CPUs, which it lists too, are left out."""
        found = []
        for node in self.listed("/sys/class/kfd/kfd/topology/nodes"):
            properties = _properties(self.read(node / "properties") or "")
            version = properties.get("gfx_target_version", 0)
            if version == 0:
                continue
            minor = properties.get("drm_render_minor", 0)
            device = self.path(f"/sys/class/drm/renderD{minor}/device")
            # decimal MMmmss; the name has minor and stepping as one hexadecimal digit each
            arch = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
            found.append(Gpu(arch, properties.get("simd_count", 0) // max(1, properties.get("simd_per_cu", 2)),
                             f"renderD{minor}" if minor else None, device if device.exists() else None))
        return found

    def gpu(self) -> Optional[Gpu]:
        """The supported GPU, else the first, else None."""
        found = self.gpus()
        return next((gpu for gpu in found if gpu.arch == GPU_SUPPORTED), found[0] if found else None)


def first_number(text: str) -> Optional[int]:
    """The first number of a text, decimal or 0x hexadecimal."""
    match = re.search(r"0[xX][0-9a-fA-F]+|\d+", text)
    return int(match[0], 0 if match[0][:2] in ("0x", "0X") else 10) if match else None


def _properties(text: str) -> Dict[str, int]:
    found = {}
    for line in text.splitlines():
        name, _, value = line.strip().partition(" ")
        if value.strip().isdigit():
            found[name] = int(value)
    return found
