"""The stock ggml-hip backend that tests/bench/peer builds: where it is, and the code objects inside it."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from .paths import ROOT

BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
TRIPLE = b"hipv4-amdgcn-amd-amdhsa--gfx1151"


def library() -> Path | None:
    """libggml-hip.so: STRATA_PEER_LIBRARY, else the one in the cache; None if it has not been built."""
    if given := os.environ.get("STRATA_PEER_LIBRARY"):
        return Path(given)
    sys.path.insert(0, str(ROOT / "scripts"))
    import fetch_sources

    path = fetch_sources.cache_folder() / "peer" / "libggml-hip.so"
    return path if path.exists() else None


def section(elf: bytes, name: str) -> bytes:
    """The contents of a section of a 64-bit ELF file, b"" if it has none of that name."""
    table, = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + n * size) for n in range(count)]
    names = headers[names_index][4]
    for name_at, _, _, _, offset, length in headers:
        start = names + name_at
        if elf[start:elf.index(b"\0", start)].decode() == name:
            return elf[offset:offset + length]
    return b""


def code_objects(file: Path) -> Iterator[bytes]:
    """The gfx1151 code objects embedded in a library or an object of HIP's compiler."""
    fat = section(file.read_bytes(), ".hip_fatbin")
    start = fat.find(BUNDLE)
    while start >= 0:
        at = start + len(BUNDLE) + 8
        for _ in range(struct.unpack_from("<Q", fat, at - 8)[0]):
            offset, size, length = struct.unpack_from("<QQQ", fat, at)
            if fat[at + 24:at + 24 + length] == TRIPLE:
                yield fat[start + offset:start + offset + size]
            at += 24 + length
        start = fat.find(BUNDLE, start + len(BUNDLE))
