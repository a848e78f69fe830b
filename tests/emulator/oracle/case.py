"""A case: code for the wave under test, the model that says what it does, and how its registers are filled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from .assembler import LDS_BYTES, SCALAR_BYTES
from .inputs import Source
from .wave import LANES, SGPRS, Wave


@dataclass
class Case:
    mnemonics: tuple[str, ...]  # the instructions that this case tests, normalised (see coverage.normalise)
    code: list[str]
    model: Callable[[Wave], None]
    registers: int = 8
    waves: int = 3
    vgprs: dict[int, tuple[str, int]] = field(default_factory=dict)  # register -> (kind, width); others are random bits
    sgprs: dict[int, tuple[str, int]] = field(default_factory=dict)
    prepare: Callable[[Wave, Source], None] | None = None  # last changes: addresses, lane numbers
    memory: int = 0  # bytes of global memory a wave may access
    lds: bool = False
    scratch: int = 0
    full_exec: bool = False
    style: str = "mixture"

    def __str__(self) -> str:
        return "; ".join(self.code)


@dataclass
class Group:
    """Cases that share a kernel: the same registers, LDS and scratch."""

    name: str
    cases: list[Case]

    @property
    def registers(self) -> int:
        return self.cases[0].registers

    @property
    def lds(self) -> bool:
        return self.cases[0].lds

    @property
    def scratch(self) -> int:
        return self.cases[0].scratch

    @property
    def block_bytes(self) -> int:
        return self.registers * 4 * LANES + SCALAR_BYTES + (LDS_BYTES if self.lds else 0)


def grouped(prefix: str, cases: Iterable[Case]) -> list[Group]:
    """Sorts cases into kernels named prefix_0, prefix_1, ..."""
    groups: dict[tuple, list[Case]] = {}
    for case in cases:
        groups.setdefault((case.registers, case.lds, case.scratch), []).append(case)
    return [Group(f"{prefix}_{n}", members) for n, members in enumerate(groups.values())]


def make_waves(case: Case, source: Source, memory_base: int) -> list[Wave]:
    """Fills the registers of every wave of a case. `memory_base` is the device address of its global memory."""
    count = case.waves * LANES
    v = source.bits(count * case.registers, 32).reshape(case.registers, count)
    for register, (kind, width) in case.vgprs.items():
        values = source.values(count, kind, width, case.style)
        if width == 16 and not kind.startswith("packed"):  # the unused half is noise
            values |= source.bits(count, 16) << np.uint64(16)
        v[register] = values & np.uint64(0xFFFFFFFF)
        if width == 64:
            v[register + 1] = values >> np.uint64(32)
    s = source.bits(SGPRS * case.waves, 32).reshape(SGPRS, case.waves)
    for register, (kind, width) in case.sgprs.items():
        values = source.values(case.waves, kind, width, case.style)
        s[register] = values & np.uint64(0xFFFFFFFF)
        if width == 64:
            s[register + 1] = values >> np.uint64(32)
    scalars = source.bits(2 * case.waves, 32)
    waves = []
    for n in range(case.waves):
        wave = Wave(
            v=v[:, n * LANES : (n + 1) * LANES].tolist(),
            s=s[:, n].tolist(),
            vcc=int(scalars[2 * n]) if n % 4 else source.mask(),
            exec=0xFFFFFFFF if case.full_exec else source.mask(),
            scc=int(source.random.integers(0, 2)),
            m0=int(scalars[2 * n + 1]),
            memory=bytearray(source.random.bytes(case.memory)),
            memory_base=memory_base + n * case.memory,
            lds=bytearray(source.random.bytes(LDS_BYTES)) if case.lds else bytearray(),
        )
        if case.prepare:
            case.prepare(wave, source)
        waves.append(wave)
    return waves


def pack(waves: list[Wave], number: int) -> bytes:
    """The waves as the kernel reads them, for case `number` of its group."""
    parts = []
    for wave in waves:
        scalars = wave.s + [wave.vcc, wave.exec, wave.m0, wave.scc, number]
        scalars += [0] * (SCALAR_BYTES // 4 - len(scalars))
        parts.append(np.array(wave.v, dtype=np.uint32).tobytes())
        parts.append(np.array(scalars, dtype=np.uint32).tobytes())
        parts.append(bytes(wave.lds))
    return b"".join(parts)


@dataclass
class Observed:
    """One wave as the kernel wrote it."""

    v: np.ndarray
    s: list[int]
    vcc: int
    exec: int
    m0: int
    scc: int
    lds: bytes


def unpack(case: Case, block: bytes) -> Observed:
    count = case.registers * LANES
    words = np.frombuffer(block, dtype=np.uint32, count=count + SGPRS + 4)
    scalars = words[count:].tolist()
    return Observed(
        v=words[:count].reshape(case.registers, LANES),
        s=scalars[:SGPRS],
        vcc=scalars[SGPRS],
        exec=scalars[SGPRS + 1],
        m0=scalars[SGPRS + 2],
        scc=scalars[SGPRS + 3],
        lds=block[count * 4 + SCALAR_BYTES :] if case.lds else b"",
    )
