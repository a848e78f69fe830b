"""The code objects inside the plugin: the bytes that ship."""
import functools
import re

from .libraries import library_dir


@functools.cache
def embedded_code_objects() -> list[bytes]:
    """The AMDGPU ELF images of libggml-strata-hip.so. The last one may have other bytes of the library behind it."""
    library = (library_dir() / "libggml-strata-hip.so").read_bytes()
    starts = [m.start() for m in re.finditer(rb"\x7fELF\x02\x01\x01\x40", library)]   # OS/ABI 64: AMDGPU HSA
    return [library[begin:end] for begin, end in zip(starts, starts[1:] + [len(library)])]


@functools.cache
def shipped_kernels() -> dict[str, bytes]:
    """The image of every kernel by the kernel's name, found by the name of its descriptor."""
    found = {}
    for image in embedded_code_objects():
        for symbol in re.findall(rb"\0(\w+)\.kd(?=\0)", image):
            found[symbol.decode()] = image
    return found
