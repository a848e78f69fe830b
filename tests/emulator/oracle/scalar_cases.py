"""The forms of every scalar ALU instruction that the pseudo-code describes."""

from __future__ import annotations

import functools
import re

from . import pcode
from .case import Case
from .scalar import ScalarInstruction, assembly, execute
from .signature import signature
from .wave import EXEC, M0, SCC, VCC, Inline, Literal, S

ENCODINGS = ("SOP1Op", "SOP2Op", "SOPCOp", "SOPKOp")
# EXEC has 32 bits here, so the 64-bit forms that read it are left out.
NOT_GENERIC = re.compile(
    r"s_(\w+(saveexec|wrexec)_b64|movrel|getpc|setpc|swappc|rfe|call|getreg|setreg|version|waitcnt|cmpk|subvector|sendmsg)"
)
D, S0, S1 = 0, 4, 6


@functools.cache
def mnemonics() -> dict[str, str]:
    result = {}
    for (where, name), _ in pcode.texts().items():
        if where in ENCODINGS and name not in result and not NOT_GENERIC.match(name):
            result[name] = where
    return result


def forms(name: str) -> list[ScalarInstruction]:
    s = signature(name)
    destination = S(D, s.result.dwords) if s.result else None
    sources = tuple(S(n, o.dwords) for n, o in zip((S0, S1), s.sources))
    if mnemonics()[name] == "SOPKOp":
        return [ScalarInstruction(name, destination, (), value) for value in (0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x1234, 0xFF00)]
    literals = [0x3FC00000, 0xC2FE0000] if "fmamk" in name or "fmaak" in name else [None]
    result = [ScalarInstruction(name, destination, sources, literal) for literal in literals]
    literal = literals[0]
    if destination is not None:
        result.append(ScalarInstruction(name, S(S0, destination.dwords), sources, literal))
        if destination.dwords == 1 and s.result.width != 16:
            result.append(ScalarInstruction(name, VCC, sources, literal))
            if not name.endswith("exec_b32"):
                result += [ScalarInstruction(name, M0, sources, literal), ScalarInstruction(name, EXEC, sources, literal)]
    for n, operand in enumerate(s.sources):
        others: list = [Inline(-5), Inline(33), Literal(0x40A00001)]
        if operand.width == 32:
            others += [Literal(0x80010004), VCC, EXEC, M0, SCC]
        if operand.is_float:
            floats = [] if name == "s_cvt_hi_f32_f16" else [Inline(0.5), Inline(-2.0)]  # which half of a constant is it?
            others = [*floats, Inline(3), VCC] + [Literal(0x40490FDB) if operand.width == 32 else Literal(0x3555)]
        for other in others:
            changed = sources[:n] + (other,) + sources[n + 1 :]
            result.append(ScalarInstruction(name, destination, changed, literal))
    return result


def cases_of(name: str, instructions: list[ScalarInstruction]) -> list[Case]:
    s = signature(name)
    kinds = {n: (o.kind, o.width) for n, o in zip((S0, S1), s.sources)}
    if s.result is not None and s.result.is_float:
        kinds[D] = (s.result.kind, s.result.width)
    return [
        Case(
            mnemonics=(name,),
            code=[assembly(i)],
            model=functools.partial(execute, i),
            registers=1,
            waves=40 if n == 0 else 6,
            sgprs=kinds,
        )
        for n, i in enumerate(instructions)
    ]
