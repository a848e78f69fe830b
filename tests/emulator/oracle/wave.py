"""The architectural state of one wave of 32 lanes, and the operands of instructions as text and as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import softfloat as sf

LANES = 32
SGPRS = 24  # s0..s23 are inputs and outputs of a case
MASK32 = 0xFFFFFFFF


@dataclass
class Loose:
    """How bits that are a float of `format` may differ from the model's.

    NaNs need only be quiet NaNs, or any with `any_nan`; `ulps` is the distance allowed between numbers.
    """

    format: sf.Format
    ulps: int = 0
    flushes: bool = False  # hardware may flush denormal results or operands: a zero of the same sign is right as well
    any_nan: bool = False


@dataclass
class Wave:
    v: list[list[int]]  # [register][lane]
    s: list[int]
    vcc: int
    exec: int
    scc: int
    m0: int
    memory: bytearray = field(default_factory=bytearray)
    memory_base: int = 0
    lds: bytearray = field(default_factory=bytearray)
    # (register, lane) -> Loose, for VGPRs; ("s", register) for SGPRs
    loose: dict = field(default_factory=dict)
    # (register, lane) -> other acceptable bits
    alternatives: dict = field(default_factory=dict)

    def copy(self) -> Wave:
        return Wave([list(row) for row in self.v], list(self.s), self.vcc, self.exec, self.scc, self.m0, bytearray(self.memory),
                    self.memory_base, bytearray(self.lds))  # fmt: skip

    def active(self, lane: int) -> bool:
        return bool(self.exec >> lane & 1)

    def lanes(self) -> list[int]:
        return [lane for lane in range(LANES) if self.exec >> lane & 1]

    def scalar(self, name: str) -> int:
        if name == "vcc_lo":
            return self.vcc
        if name == "exec_lo":
            return self.exec
        if name == "m0":
            return self.m0
        if name == "null":
            return 0
        if name == "scc":
            return self.scc
        raise KeyError(name)

    def set_scalar(self, name: str, value: int) -> None:
        value &= MASK32
        if name == "vcc_lo":
            self.vcc = value
        elif name == "exec_lo":
            self.exec = value
        elif name == "m0":
            self.m0 = value
        elif name != "null":
            raise KeyError(name)


@dataclass(frozen=True)
class V:
    """VGPRs n .. n + dwords - 1."""

    n: int
    dwords: int = 1

    def __str__(self) -> str:
        return f"v{self.n}" if self.dwords == 1 else f"v[{self.n}:{self.n + self.dwords - 1}]"

    def read(self, wave: Wave, lane: int, width: int, kind: str) -> int:
        if width <= 32:
            return wave.v[self.n][lane] & ((1 << width) - 1)
        return wave.v[self.n][lane] | wave.v[self.n + 1][lane] << 32

    def write(self, wave: Wave, lane: int, bits: int) -> None:
        for i in range(self.dwords):
            wave.v[self.n + i][lane] = bits >> (32 * i) & MASK32


@dataclass(frozen=True)
class S:
    """SGPRs n .. n + dwords - 1."""

    n: int
    dwords: int = 1

    def __str__(self) -> str:
        return f"s{self.n}" if self.dwords == 1 else f"s[{self.n}:{self.n + self.dwords - 1}]"

    def read(self, wave: Wave, lane: int, width: int, kind: str) -> int:
        if width <= 32:
            return wave.s[self.n] & ((1 << width) - 1)
        return wave.s[self.n] | wave.s[self.n + 1] << 32

    def write(self, wave: Wave, lane: int, bits: int) -> None:
        for i in range(self.dwords):
            wave.s[self.n + i] = bits >> (32 * i) & MASK32


@dataclass(frozen=True)
class Named:
    """vcc_lo, exec_lo, m0, null or scc."""

    name: str

    def __str__(self) -> str:
        return {"scc": "src_scc"}.get(self.name, self.name)

    def read(self, wave: Wave, lane: int, width: int, kind: str) -> int:
        return wave.scalar(self.name) & ((1 << width) - 1)

    def write(self, wave: Wave, lane: int, bits: int) -> None:
        wave.set_scalar(self.name, bits)


@dataclass(frozen=True)
class Inline:
    """An inline constant: an integer from -16 to 64, or one of the floats, which takes the operand's format."""

    value: int | float

    def __str__(self) -> str:
        return str(self.value)

    def read(self, wave: Wave, lane: int, width: int, kind: str) -> int:
        if isinstance(self.value, int):
            return self.value & ((1 << width) - 1)
        f = {16: sf.F16, 32: sf.F32, 64: sf.F64}[width]
        numerator, denominator = self.value.as_integer_ratio()
        return sf.from_scaled(numerator, 1 - denominator.bit_length(), f)


@dataclass(frozen=True)
class Literal:
    """A 32-bit literal. It is the upper half of a 64-bit float, the zero-extended lower half of other 64-bit operands."""

    value: int

    def __str__(self) -> str:
        return f"{self.value:#x}"

    def read(self, wave: Wave, lane: int, width: int, kind: str) -> int:
        if width == 64 and kind == "f":
            return self.value << 32
        return self.value & ((1 << width) - 1)


NULL = Named("null")
VCC = Named("vcc_lo")
EXEC = Named("exec_lo")
M0 = Named("m0")
SCC = Named("scc")
