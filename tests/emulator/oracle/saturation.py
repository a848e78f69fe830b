"""Integer instructions with clamp: the exact result, saturated to the type of the destination. The pseudo-code does not describe it."""

from __future__ import annotations

from collections.abc import Callable

from .values import signed_from_bits
from .wave import MASK32


def _dot(width: int, mixed: bool) -> Callable[..., int]:
    """The exact sum of v_dot4 and v_dot8; `negative` says which operands are signed."""

    def total(a: int, b: int, c: int, negative: int) -> int:
        result = signed_from_bits(c, 32) if mixed else c
        for k in range(32 // width):
            x, y = (v >> (k * width) & ((1 << width) - 1) for v in (a, b))
            x = signed_from_bits(x, width) if mixed and negative & 1 else x
            y = signed_from_bits(y, width) if mixed and negative & 2 else y
            result += x * y
        return result

    return total


DOTS = {"v_dot4_i32_iu8": _dot(8, True), "v_dot8_i32_iu4": _dot(4, True), "v_dot4_u32_u8": _dot(8, False), "v_dot8_u32_u4": _dot(4, False)}

# name -> (exact result of the operands, their types, the result's type); a type is (signed, width)
U16, I16, U24, I24, U32, I32 = ((signed, width) for width in (16, 24, 32) for signed in (False, True))
FORMS: dict[str, tuple[Callable[..., int], tuple, tuple[bool, int]]] = {
    "v_add_nc_u32": (lambda a, b: a + b, (U32, U32), U32),
    "v_add_co_u32": (lambda a, b: a + b, (U32, U32), U32),
    "v_sub_nc_u32": (lambda a, b: a - b, (U32, U32), U32),
    "v_sub_co_u32": (lambda a, b: a - b, (U32, U32), U32),
    "v_subrev_nc_u32": (lambda a, b: b - a, (U32, U32), U32),
    "v_subrev_co_u32": (lambda a, b: b - a, (U32, U32), U32),
    "v_add_nc_i32": (lambda a, b: a + b, (I32, I32), I32),
    "v_sub_nc_i32": (lambda a, b: a - b, (I32, I32), I32),
    "v_add_nc_u16": (lambda a, b: a + b, (U16, U16), U16),
    "v_sub_nc_u16": (lambda a, b: a - b, (U16, U16), U16),
    "v_add_nc_i16": (lambda a, b: a + b, (I16, I16), I16),
    "v_sub_nc_i16": (lambda a, b: a - b, (I16, I16), I16),
    "v_mad_u16": (lambda a, b, c: a * b + c, (U16, U16, U16), U16),
    "v_mad_i16": (lambda a, b, c: a * b + c, (I16, I16, I16), I16),
    "v_mad_u32_u24": (lambda a, b, c: a * b + c, (U24, U24, U32), U32),
    "v_mad_i32_i24": (lambda a, b, c: a * b + c, (I24, I24, I32), I32),
    "v_mad_u32_u16": (lambda a, b, c: a * b + c, (U16, U16, U32), U32),
    "v_mad_i32_i16": (lambda a, b, c: a * b + c, (I16, I16, I32), I32),
    "v_pk_add_u16": (lambda a, b: a + b, (U16, U16), U16),
    "v_pk_add_i16": (lambda a, b: a + b, (I16, I16), I16),
    "v_pk_sub_u16": (lambda a, b: a - b, (U16, U16), U16),
    "v_pk_sub_i16": (lambda a, b: a - b, (I16, I16), I16),
    "v_pk_mad_u16": (lambda a, b, c: a * b + c, (U16, U16, U16), U16),
    "v_pk_mad_i16": (lambda a, b, c: a * b + c, (I16, I16, I16), I16),
}


def saturating(mnemonic: str) -> bool:
    """Whether clamp of this integer instruction is modelled."""
    return mnemonic in FORMS or mnemonic in DOTS


def clip(value: int, signed: bool, width: int) -> int:
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    return max(low, min(high, value)) & ((1 << width) - 1)


def saturated(mnemonic: str, cells: dict, unsaturated: int) -> int:
    """The 32 bits of the destination; `unsaturated` gives those that the instruction does not write."""
    operands = [cells[f"S{n}"].value.bits for n in range(3) if f"S{n}" in cells]
    if mnemonic in DOTS:
        mixed = "_iu" in mnemonic
        return clip(DOTS[mnemonic](*operands, cells["NEG"].value.bits), mixed, 32)
    function, types, (signed, width) = FORMS[mnemonic]

    def lane(shift: int) -> int:
        values = [x >> shift & ((1 << w) - 1) for x, (_, w) in zip(operands, types)]
        return clip(function(*(signed_from_bits(x, w) if s else x for x, (s, w) in zip(values, types))), signed, width)

    if mnemonic.startswith("v_pk_"):
        return lane(16) << 16 | lane(0)
    return lane(0) if width == 32 else unsaturated & MASK32 & ~0xFFFF | lane(0)
