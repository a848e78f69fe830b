"""What is inside an AMDGPU code object: its kernels, their arguments and what they take of the chip, read from its metadata note."""
import dataclasses
import io
import struct
from typing import Any, Dict, List, Optional, Tuple

import msgpack
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from .errors import ArgumentError

_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_NOTE_TYPE = 32  # NT_AMDGPU_METADATA
_POINTERS = ("global_buffer", "dynamic_shared_pointer")


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument that a launch gives to a kernel."""
    name: str    # "" where the compiler did not write it down
    offset: int  # in the segment of arguments, in bytes
    size: int    # in bytes
    kind: str    # "by_value", "global_buffer", ...

    @property
    def pointer(self) -> bool:
        """Whether it is an address on the device."""
        return self.kind in _POINTERS

    def __str__(self) -> str:
        what = "pointer" if self.pointer else f"{self.size}-byte value"
        return f"{self.name}: {what}" if self.name else what


@dataclasses.dataclass(frozen=True)
class KernelInfo:
    """A kernel, as its metadata describes it. Sizes are in bytes; registers are those of a lane (vgprs) and of a wave (sgprs)."""
    name: str
    arguments: Tuple[Argument, ...]  # without those that the runtime fills in
    lds: int                         # a workgroup, without what a launch adds
    scratch: int                     # a work-item
    vgprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    wave_size: int
    max_block: int                                   # work-items of a workgroup
    required_block: Optional[Tuple[int, int, int]]   # the only workgroup that it can be launched with; None: any

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


def read_kernels(image: bytes) -> Dict[str, KernelInfo]:
    """The kernels of a code object (an ELF file), by name. Raises ArgumentError, saying what the bytes are instead."""
    if image.startswith(_BUNDLE):
        raise ArgumentError("these bytes are an offload bundle, not a code object: compile with --no-gpu-bundle-output")
    try:
        notes = [note["n_descdata"] for section in ELFFile(io.BytesIO(image)).iter_sections() if isinstance(section, NoteSection)
                 for note in section.iter_notes() if note["n_name"] == "AMDGPU" and note["n_type"] in (_NOTE_TYPE, "NT_AMDGPU_METADATA")]
    except (ELFError, ValueError, LookupError, ArithmeticError, AttributeError, TypeError, struct.error) as error:
        raise ArgumentError(f"these {len(image)} bytes are no code object: {error or 'a broken ELF file'}") from None
    if not notes:
        raise ArgumentError("this ELF file has no metadata of AMDGPU kernels: it is no code object, or older than version 3")
    try:
        described: List[Dict[str, Any]] = msgpack.unpackb(_bytes(notes[0]), strict_map_key=False)["amdhsa.kernels"]
        kernels = [_kernel(each) for each in described]
    except (ValueError, LookupError, AttributeError, TypeError, msgpack.exceptions.UnpackException) as error:
        raise ArgumentError(f"this code object's metadata cannot be read: {error}") from None
    return {kernel.name: kernel for kernel in kernels}


def _bytes(description: Any) -> bytes:
    return description if isinstance(description, bytes) else str(description).encode("latin-1")


def _kernel(entry: Dict[str, Any]) -> KernelInfo:
    arguments = tuple(Argument(each.get(".name", ""), each[".offset"], each[".size"], each[".value_kind"])
                      for each in entry.get(".args", []) if not each[".value_kind"].startswith("hidden_"))
    required = entry.get(".reqd_workgroup_size")
    return KernelInfo(
        entry[".name"], arguments, entry[".group_segment_fixed_size"], entry[".private_segment_fixed_size"], entry[".vgpr_count"],
        entry[".sgpr_count"], entry.get(".vgpr_spill_count", 0), entry.get(".sgpr_spill_count", 0), entry[".wavefront_size"],
        entry[".max_flat_workgroup_size"], tuple(required) if required else None)
