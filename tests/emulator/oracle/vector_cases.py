"""The forms of every vector ALU instruction that the pseudo-code describes: encodings, operands, modifiers, DPP."""

from __future__ import annotations

import functools
import re

from . import pcode
from .case import Case
from .lanes import Dpp, Dpp8
from .saturation import saturating
from .signature import signature
from .vector import Modifiers, VectorInstruction, assembly, execute, is_dot_integer, is_mixed
from .wave import NULL, VCC, Inline, Literal, S, V

# Prose, or instructions whose effect is not lane by lane: these have models of their own, or no code object uses them.
NOT_GENERIC = re.compile(
    r"v_(readlane|writelane|readfirstlane|permlane|swap|movrel|wmma|cvt_off|trig_preop|cmpx?_(f|t)_|nop|fmac_dx9|"
    r"mullit|mqsad|qsad|interp|pipeflush|cube)"
)
ENCODINGS = {"VOP1Op": ("_e32", "_e64"), "VOP2Op": ("_e32", "_e64"), "VOPCOp": ("_e32", "_e64"), "VOP3Op": ("",), "VOP3SDOp": ("",),
             "VOP3POp": ("",)}  # fmt: skip
D, S0, S1, S2 = 0, 2, 4, 6  # first registers of the operands; s4, s6 hold scalar sources, s8 a mask out, s10 a mask in
LITERAL32 = [0x40490FDB, 0x80000001, 0x7F800000, 0xFFFF0000, 0x00008000, 0xC1200000]
DPP_CONTROLS = [
    Dpp("quad_perm:[3,1,0,2]"),
    Dpp("quad_perm:[1,0,3,2]", bound_ctrl=True),
    Dpp("row_shl:1"),
    Dpp("row_shl:15", bound_ctrl=True),
    Dpp("row_shr:4", row_mask=0x1),
    Dpp("row_shr:1", bound_ctrl=True, fi=True),
    Dpp("row_ror:7", bank_mask=0x5),
    Dpp("row_mirror", fi=True),
    Dpp("row_half_mirror", bound_ctrl=True),
    Dpp("row_share:5", row_mask=0xA),
    Dpp("row_share:0", fi=True),
    Dpp("row_xmask:1"),
    Dpp("row_xmask:8", bound_ctrl=True),
    Dpp("row_xmask:15", fi=True),
    Dpp8((7, 6, 5, 4, 3, 2, 1, 0)),
    Dpp8((1, 1, 7, 0, 5, 2, 2, 3), fi=True),
]
ALL_CONTROLS = {"v_mov_b32", "v_add_f32", "v_max_f32", "v_add_nc_u32"}
# A lane that DPP disables leaves its bit of a mask undefined in the documents, so masks are only tested where no lane is disabled.
MASK_CONTROLS = [Dpp("quad_perm:[3,1,0,2]", fi=True), Dpp("row_xmask:8", fi=True), Dpp("row_ror:7", bound_ctrl=True)]


@functools.cache
def mnemonics() -> dict[str, str]:
    """Every vector mnemonic that is tested by its pseudo-code -> encoding in the data module."""
    result = {}
    for encoding in ENCODINGS:
        for (where, name), _ in pcode.texts().items():
            if where == encoding and name not in result and name.startswith("v_") and not NOT_GENERIC.match(name):
                result[name] = encoding
    return result


def input_kinds(name: str) -> dict[int, tuple[str, int]]:
    """What the source registers hold."""
    s = signature(name)
    kinds: dict[int, tuple[str, int]] = {}
    for register, operand in zip((S0, S1, S2), s.sources):
        kinds[register] = (operand.kind, min(operand.width, 64))
    half = "packed bf16" if "bf16" in name else "packed f16"
    if name.startswith("v_pk_"):
        kinds = dict.fromkeys(kinds, (half if name.endswith("_f16") else "packed i16", 32))
    elif name.startswith("v_dot2"):
        kinds[S0] = kinds[S1] = (half, 32)
        kinds[D if name == "v_dot2acc_f32_f16" else S2] = ("f", 32) if "_f32_" in name else ("bf" if "bf16" in name else "f", 16)
    elif is_mixed(name):
        kinds = dict.fromkeys(kinds, (half, 32))
    elif is_dot_integer(name):
        kinds[S0] = kinds[S1] = ("bits", 32)
    elif name == "v_perm_b32":
        kinds[S0] = kinds[S1] = ("bits", 32)
    elif name == "v_cvt_f32_f16":
        kinds[S0] = ("f", 16)
    elif name.startswith("v_ldexp"):
        kinds[S1] = ("exponent", 32)
    if "fma" in name and s.result is not None or name.startswith("v_fmac"):
        kinds[D] = (s.result.kind, s.result.width) if not name.startswith("v_fma_mix") else ("bits", 32)
    return kinds


def forms(name: str) -> list[VectorInstruction]:
    """Instructions to try; those that the encoding does not have are dropped by the assembler."""
    s = signature(name)
    destination = V(D, s.result.dwords if s.result else 1)
    sources = tuple(V(n, o.dwords) for n, o in zip((S0, S1, S2), s.sources))
    scalars = tuple(S(n, o.dwords) for n, o in zip((4, 6, 12), s.sources))
    result: list[VectorInstruction] = []
    for encoding in ENCODINGS[mnemonics()[name]]:
        e32 = encoding == "_e32"
        common: dict = {"encoding": encoding}
        if s.compares:
            common["destination"] = VCC if e32 else S(8)
        elif s.compares_exec:
            common["destination"] = None
        else:
            common["destination"] = destination
        if not e32 and (s.writes_vcc or s.reads_vcc) and not name.startswith("v_div_fmas"):
            common["carry_out"] = S(8)
            common["carry_in"] = S(10) if "_ci_" in name or "cndmask" in name else VCC
        literals: list[int | None] = (
            [0x3FC00000, 0xC2FE0000] if "mk_f32" in name or "ak_f32" in name else [0x3E00] if "k_f16" in name else [None]
        )
        for literal in literals:
            result.append(VectorInstruction(name, sources=sources, literal=literal, **common))
        common["literal"] = literals[0]
        plain = result[-1]
        if name.startswith("v_div_scale"):  # S0 must be one of the others
            result.pop()
            for first in (sources[1], sources[2]):
                result.append(VectorInstruction(name, sources=(first,) + sources[1:], **common))
            result.append(VectorInstruction(name, sources=(sources[2],) + sources[1:], **(common | {"carry_out": VCC})))
            result.append(VectorInstruction(name, sources=(sources[1],) + sources[1:], **(common | {"carry_out": NULL})))
            scalar, constant = scalars[1], Inline(1.0)
            result.append(VectorInstruction(name, sources=(scalar, scalar, sources[2]), **common))
            result.append(VectorInstruction(name, sources=(sources[2], scalar, sources[2]), **common))
            result.append(VectorInstruction(name, sources=(constant, sources[1], constant), **common))
            continue
        if s.result is not None and s.result.width == s.sources[0].width:  # in place
            result.append(VectorInstruction(name, sources=sources, **(common | {"destination": sources[0]})))
            result.append(VectorInstruction(name, sources=(sources[0],) * len(sources), **(common | {"destination": sources[0]})))
        if s.writes_vcc and not e32:
            result.append(VectorInstruction(name, sources=sources, **(common | {"carry_out": NULL})))
            result.append(VectorInstruction(name, sources=sources, **(common | {"carry_out": VCC})))
        if s.compares and not e32:
            result.append(VectorInstruction(name, sources=sources, **(common | {"destination": VCC})))
        for n, operand in enumerate(s.sources):
            if e32 and n > 0:
                break
            others = _constants(operand, name) + [scalars[n]]
            for other in others:
                changed = sources[:n] + (other,) + sources[n + 1 :]
                result.append(VectorInstruction(name, sources=changed, **common))
        if not e32:
            result += _modified(name, plain)
        result += _dpp(name, plain)
    return result


def _constants(operand, name: str) -> list:
    constants: list = [Inline(-7), Inline(31)]
    if operand.is_float and not is_mixed(name):
        constants += [Inline(0.5), Inline(-4.0)]
    if name.startswith("v_pk_") and name.endswith("_f16") or name.startswith("v_dot2") or is_mixed(name):
        constants = [Inline(0)]
    if operand.width == 16:
        constants.append(Literal(0x3A01 if operand.is_float else 0x1234))
    else:
        constants.append(Literal(0x40490FDB if operand.is_float else 0x7FFF8421))
        if operand.width == 32:
            constants.append(Literal(0xFF800001 if operand.is_float else 0x80000003))
    return constants


def _modified(name: str, plain: VectorInstruction) -> list[VectorInstruction]:
    s = signature(name)
    count = len(s.sources)
    everything = (1 << count) - 1
    wanted: list[Modifiers] = []
    floats = sum(1 << n for n, o in enumerate(s.sources) if o.is_float or name == "v_cndmask_b32")
    if name.startswith("v_pk_"):
        wanted += [
            Modifiers(op_sel=1),
            Modifiers(op_sel=everything, op_sel_hi=0),
            Modifiers(op_sel_hi=everything & 5),
            Modifiers(op_sel=2, op_sel_hi=1),
        ]
        if saturating(name):
            wanted += [Modifiers(clamp=True), Modifiers(clamp=True, op_sel=1)]
        if name.endswith("_f16"):
            wanted += [Modifiers(neg=1), Modifiers(abs=2), Modifiers(neg=everything, abs=5 & everything, op_sel=1), Modifiers(clamp=True)]
    elif is_mixed(name):
        bits = [
            (0, 0, 0, 0),
            (0, 1, 0, 0),
            (1, 1, 2, 0),
            (4, 6, 1, 1),
            (5, 7, 4, 2),
            (0, 2, 7, 7),
            (3, 3, 0, 4),
            (0, 0, 3, 0),
            (0, 4, 0, 0),
        ]
        wanted += [Modifiers(op_sel=k, op_sel_hi=h, neg=n, abs=a) for k, h, n, a in bits]
        wanted += [Modifiers(clamp=True, op_sel_hi=7)]
    elif is_dot_integer(name):
        if "_iu" in name:
            wanted += [Modifiers(neg=n) for n in (1, 2, 3)] + [Modifiers(neg=3, clamp=True), Modifiers(neg=0, clamp=True)]
        else:
            wanted += [Modifiers(clamp=True)]
    elif name.startswith("v_dot2"):
        wanted += [Modifiers(neg=1), Modifiers(abs=2), Modifiers(neg=4)] if name.startswith("v_dot2_f32") else []
    else:
        if floats and not name.startswith(("v_cvt_f32_ubyte", "v_div_scale")):
            wanted += [
                Modifiers(neg=floats),
                Modifiers(abs=floats),
                Modifiers(neg=floats, abs=floats),
                Modifiers(neg=1 & floats),
                Modifiers(abs=2 & floats),
            ]
        if s.result is not None and s.result.is_float and not name.startswith(("v_div_scale", "v_pack_")):
            wanted.append(Modifiers(clamp=True))
        elif saturating(name):
            wanted.append(Modifiers(clamp=True))
        halves = sum(1 << n for n, o in enumerate(s.sources) if o.width == 16)
        half_result = s.result is not None and s.result.width == 16
        if (halves or half_result) and plain.encoding == "":
            wanted += [Modifiers(op_sel=halves)] if halves else []
            wanted += [Modifiers(op_sel=8 | halves), Modifiers(op_sel=8), Modifiers(op_sel=1)] if half_result else []
    seen: list[Modifiers] = []
    for m in wanted:
        if m != Modifiers() and m not in seen:
            seen.append(m)
    return [
        VectorInstruction(name, plain.destination, plain.sources, plain.encoding, plain.carry_out, plain.carry_in, m, None, plain.literal)
        for m in seen
    ]


def _dpp(name: str, plain: VectorInstruction) -> list[VectorInstruction]:
    s = signature(name)
    if any(o.width == 64 for o in s.sources) or (s.result is not None and s.result.width == 64) or plain.literal is not None:
        return []
    if s.compares or s.compares_exec or s.writes_vcc:
        controls: list = MASK_CONTROLS
    elif name in ALL_CONTROLS:
        controls = DPP_CONTROLS
    else:
        start = sum(name.encode()) % len(DPP_CONTROLS)
        controls = [DPP_CONTROLS[start], DPP_CONTROLS[(start + 7) % len(DPP_CONTROLS)]]
    result = []
    for n, control in enumerate(controls):
        destination = plain.destination
        if n % 2 == 0 and s.result is not None and s.result.width == s.sources[0].width:
            destination = plain.sources[0]  # in place: all lanes must be read first
        result.append(
            VectorInstruction(name, destination, plain.sources, plain.encoding, plain.carry_out, plain.carry_in, plain.modifiers, control)
        )
    return result


def cases_of(name: str, instructions: list[VectorInstruction]) -> list[Case]:
    kinds = input_kinds(name)
    result = []
    for n, i in enumerate(instructions):
        first = n == 0 or i.encoding != instructions[n - 1].encoding
        result.append(
            Case(
                mnemonics=(name,),
                code=[assembly(i)],
                model=functools.partial(execute, i),
                waves=10 if first else 2,
                vgprs=kinds,
                sgprs={4: kinds.get(S0, ("bits", 32)), 6: kinds.get(S1, ("bits", 32)), 12: kinds.get(S2, ("bits", 32))},
            )
        )
    return result
