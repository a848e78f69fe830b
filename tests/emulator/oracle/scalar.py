"""Executes scalar ALU instructions by their pseudo-code."""

from __future__ import annotations

from dataclasses import dataclass

from . import pcode
from . import softfloat as sf
from .signature import Signature, signature
from .values import FLOAT_FORMATS, Cell, Float, Int, Register
from .wave import MASK32, Loose, S, Wave

PAYLOAD_FIXED = ("s_min_f", "s_max_f")


@dataclass(frozen=True)
class ScalarInstruction:
    mnemonic: str
    destination: object
    sources: tuple
    literal: int | None = None  # SIMM16 of SOPK, the literal of s_fmaak and s_fmamk

    @property
    def signature(self) -> Signature:
        return signature(self.mnemonic)


def assembly(i: ScalarInstruction) -> str:
    operands = [str(x) for x in i.sources]
    if "fmamk" in i.mnemonic:
        operands.insert(1, f"{i.literal:#x}")
    elif i.literal is not None:
        operands.append(f"{i.literal:#x}")
    if i.destination is not None:
        operands.insert(0, str(i.destination))
    return f"{i.mnemonic} {', '.join(operands)}"


def execute(i: ScalarInstruction, wave: Wave) -> None:
    s = i.signature
    cells: dict = {}
    for n, (operand, kind) in enumerate(zip(i.sources, s.sources)):
        cells[f"S{n}"] = Cell(Int(operand.read(wave, 0, kind.width, kind.kind), kind.width))
    wide = s.result is not None and s.result.width == 64
    old = i.destination.read(wave, 0, 64 if wide else 32, "b") if i.destination is not None else 0
    d0 = cells["D0"] = Register(old, 64 if wide else 32)
    scc = cells["SCC"] = Register(wave.scc, 1)
    execution = cells["EXEC"] = Register(wave.exec, 64)
    cells["VCC"] = Register(wave.vcc, 64)
    cells["M0"] = Register(wave.m0, 32)
    cells["SIMM16"] = Cell(Int(i.literal or 0, 16))
    cells["SIMM32"] = Cell(Int(i.literal or 0, 32))
    OVERRIDES.get(i.mnemonic, pcode.compiled(i.mnemonic))(cells)
    if i.destination is not None:
        i.destination.write(wave, 0, d0.bits)
        _note_tolerance(i, s, wave)
    if execution.written:
        wave.exec = execution.bits & MASK32
    if scc.written:
        wave.scc = scc.bits


def _note_tolerance(i: ScalarInstruction, s: Signature, wave: Wave) -> None:
    if not isinstance(i.destination, S) or s.result is None or i.mnemonic.startswith(PAYLOAD_FIXED):
        return
    if i.mnemonic == "s_cvt_pk_rtz_f16_f32":
        wave.loose["s", i.destination.n] = [(0, Loose(sf.F16)), (16, Loose(sf.F16))]
    elif s.result.is_float:
        wave.loose["s", i.destination.n] = [(0, Loose(FLOAT_FORMATS["f", s.result.width]))]
        if s.result.width == 16:  # whether the upper half stays or becomes 0 is not documented
            wave.alternatives["s", i.destination.n] = [wave.s[i.destination.n] & 0xFFFF]


def _rndne(f: sf.Format):
    """The pseudo-code's floor(x + 0.5) is inexact for large odd numbers; the instruction rounds to nearest even."""

    def run(cells: dict) -> None:
        bits = cells["S0"].value.bits & ((1 << f.width) - 1)
        cells["D0"].set_typed("f", f.width, Float(sf.round_half_even(bits, f), f))

    return run


OVERRIDES = {"s_rndne_f32": _rndne(sf.F32), "s_rndne_f16": _rndne(sf.F16)}
