"""What the pseudo-code of an instruction says about its operands: how many, how wide, of what kind."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from . import pcode


@dataclass(frozen=True)
class OperandType:
    kind: str  # f, bf, i, u, b
    width: int  # 16, 32, 64 or 128

    @property
    def dwords(self) -> int:
        return max(1, self.width // 32)

    @property
    def is_float(self) -> bool:
        return self.kind in ("f", "bf")


@dataclass(frozen=True)
class Signature:
    sources: tuple[OperandType, ...]
    result: OperandType | None
    reads_vcc: bool
    writes_vcc: bool  # a carry or condition bit a lane
    writes_scc: bool
    compares: bool  # D0 is a lane mask (v_cmp)
    compares_exec: bool  # v_cmpx


I64 = OperandType("i", 64)
U16 = OperandType("u", 16)
OVERRIDES = {  # what the text leaves open
    "v_mad_i64_i32": {"result": I64},
    "s_bitset0_b64": {"result": OperandType("b", 64)},
    "s_bitset1_b64": {"result": OperandType("b", 64)},
    "v_lshlrev_b16": {"sources": (U16, U16)},
    "v_lshrrev_b16": {"sources": (U16, U16)},
    "v_ashrrev_i16": {"sources": (U16, OperandType("i", 16))},
    "v_frexp_mant_f16": {"sources": (OperandType("f", 16),), "result": OperandType("f", 16)},
    "v_frexp_mant_f32": {"sources": (OperandType("f", 32),), "result": OperandType("f", 32)},
    "v_frexp_mant_f64": {"sources": (OperandType("f", 64),), "result": OperandType("f", 64)},
}


def _operand(text: str, name: str) -> OperandType | None:
    accesses = re.findall(rf"\b{name}(?:\[[^\]]*\])?\.(bf|[uifb])(\d+)", text)
    plain = re.search(rf"\b{name}\b(?!\.)", text)  # S0[15 : 0], or S0 alone
    if not accesses and not plain:
        return None
    sliced = re.search(rf"\b{name}\[", text)
    widths = {16 if int(w) in (8, 16) else 64 if int(w) == 64 else 128 if int(w) == 128 else 32 for _, w in accesses}
    width = max(widths, default=32)
    if sliced:  # slices say nothing about the operand's own width, except where they reach past bit 31
        high = max((int(h) for h in re.findall(rf"\b{name}\[(\d+) : \d+\]", text)), default=31)
        width = 32
        direct = re.findall(rf"\b{name}\.(?:bf|[uifb])(\d+)", text)
        if "64" in direct or 31 < high < 64:
            width = 64
        if high >= 64:
            width = 128
    kinds = [k for k, _ in accesses]
    kind = kinds[0] if kinds else "b"
    return OperandType(kind, width)


@functools.cache
def signature(mnemonic: str) -> Signature:
    text = re.sub(r"//[^\n]*", "", pcode.text(mnemonic))
    sources = []
    for name in ("S0", "S1", "S2"):
        operand = _operand(text, name)
        if operand is None:
            break
        sources.append(operand)
    if "declare S : 32'B[3]" in text:
        sources = [OperandType("f", 32)] * 3
    writes = re.findall(r"\bD0(?:\[[^\]]*\])?(?:\.(bf|[uifb])(\d+))?(?:\[[^\]]*\])?\s*(?:[-+]?=)(?!=)|\bD0\.(u)(64) \}", text)
    override = OVERRIDES.get(mnemonic, {})
    result = None
    compares = "D0.u64[laneId]" in text
    if re.search(r"\bD0\b", text) and not compares:
        wide = [(k or x, int(w or y)) for k, w, x, y in writes if (k or x)]
        kind = wide[0][0] if wide else "b"
        width = max((w for _, w in wide), default=32)
        if re.search(r"\bD0\[", text) or not wide:
            width = max(width, 32)
        width = {1: 32, 8: 16}.get(width, width)
        result = OperandType(kind, width)
    return Signature(
        sources=override.get("sources", tuple(sources)),
        result=override.get("result", result),
        reads_vcc="VCC.u64[laneId]" in re.sub(r"VCC\.u64\[laneId\] = ", "", text),
        writes_vcc=bool(re.search(r"VCC(\.u64\[laneId\])? = |D1\.[ui]1", text)),
        writes_scc=bool(re.search(r"\bSCC = ", text)),
        compares=compares,
        compares_exec="EXEC.u64[laneId] =" in text,
    )
