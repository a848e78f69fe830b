"""Executes vector ALU instructions by their pseudo-code, lane by lane, with all modifiers of the encodings around it."""

from __future__ import annotations

from dataclasses import dataclass, field

from . import pcode
from . import softfloat as sf
from .saturation import saturated
from .signature import OperandType, Signature, signature
from .values import FLOAT_FORMATS, Cell, Float, Int, Register
from .wave import LANES, VCC, Loose, V, Wave

# Results that hardware approximates: the emulator promises the correctly rounded value, hardware 1 ulp.
APPROXIMATE = {"exp", "log", "rcp", "rsq", "sqrt", "sin", "cos"}
# Results that are one of the operands, so that even a NaN's payload is given.
PAYLOAD_FIXED = {"min", "max", "minmax", "maxmin", "min3", "max3", "med3"}


@dataclass(frozen=True)
class Modifiers:
    """VOP3 and VOP3P modifiers. neg and abs are bit masks over the sources (neg is neg_lo of VOP3P, abs is its neg_hi)."""

    neg: int = 0
    abs: int = 0
    clamp: bool = False
    op_sel: int = 0
    op_sel_hi: int | None = None  # VOP3P only; the default is all ones, for v_fma_mix zero


@dataclass(frozen=True)
class VectorInstruction:
    mnemonic: str  # without _e32, _e64
    destination: object
    sources: tuple
    encoding: str = ""  # "_e32", "_e64" or "" for mnemonics of one encoding
    carry_out: object = VCC
    carry_in: object = VCC
    modifiers: Modifiers = field(default_factory=Modifiers)
    dpp: object = None
    literal: int | None = None  # of v_fmaak, v_fmamk

    @property
    def signature(self) -> Signature:
        return signature(self.mnemonic)

    @property
    def packed(self) -> bool:
        return self.mnemonic.startswith(("v_pk_", "v_dot", "v_fma_mix"))

    @property
    def destination_bit(self) -> int:
        """The op_sel bit that chooses the half of a 16-bit result."""
        return self.modifiers.op_sel >> 3 & 1


def is_mixed(mnemonic: str) -> bool:
    return mnemonic.startswith("v_fma_mix")


def is_dot_integer(mnemonic: str) -> bool:
    return mnemonic.startswith(("v_dot4", "v_dot8"))


def assembly(i: VectorInstruction) -> str:
    """The instruction as the assembler reads it."""
    s, m = i.signature, i.modifiers
    operands = []
    for n, source in enumerate(i.sources):
        text = str(source)
        if not i.packed:
            if m.abs >> n & 1:
                text = f"|{text}|"
            if m.neg >> n & 1:
                text = f"-{text}"
        operands.append(text)
    if "fmamk" in i.mnemonic:
        operands.insert(1, f"{i.literal:#x}")
    elif "fmaak" in i.mnemonic:
        operands.append(f"{i.literal:#x}")
    if i.mnemonic == "v_cndmask_b32" or i.mnemonic.endswith("_co_ci_u32") or i.mnemonic == "v_cndmask_b16":
        operands.append(str(i.carry_in))
    if not s.compares_exec:
        prefix = [str(i.destination)]
        if s.writes_vcc:
            prefix.append(str(i.carry_out))
        operands = prefix + operands
    suffix = {None: ""}.get(i.dpp, "_dpp")
    if i.dpp is not None and i.encoding == "_e64":
        suffix = "_e64_dpp"
    elif i.dpp is None:
        suffix = i.encoding
    text = f"{i.mnemonic}{suffix} {', '.join(operands)}"
    count = len(i.sources)
    if i.packed:
        text += _bits("neg_lo", m.neg, count) + _bits("neg_hi", m.abs, count) if not is_mixed(i.mnemonic) else _mix_signs(i)
        text += _bits("op_sel", m.op_sel, count)
        if m.op_sel_hi is not None:
            text += f" op_sel_hi:[{','.join(str(m.op_sel_hi >> n & 1) for n in range(count))}]"
    elif m.op_sel:
        text += _bits("op_sel", m.op_sel & 7, count, last=m.op_sel >> 3)
    if m.clamp:
        text += " clamp"
    if i.dpp is not None:
        text += f" {i.dpp}"
    return text


def _mix_signs(i: VectorInstruction) -> str:
    return _bits("neg_lo", i.modifiers.neg, 3) + _bits("neg_hi", i.modifiers.abs, 3)


def _bits(name: str, mask: int, count: int, last: int | None = None) -> str:
    if not mask and not last:
        return ""
    parts = [str(mask >> n & 1) for n in range(count)]
    if last is not None:
        parts.append(str(last))
    return f" {name}:[{','.join(parts)}]"


def execute(i: VectorInstruction, wave: Wave) -> None:
    """Runs the instruction on the active lanes of `wave`. All lanes read before any lane writes."""
    s = i.signature
    run = OVERRIDES.get(i.mnemonic) or pcode.compiled(i.mnemonic)
    targets = i.dpp.writes(wave) if i.dpp is not None else [lane if wave.active(lane) else None for lane in range(LANES)]
    carry_in = i.carry_in.read(wave, 0, 32, "u")
    read = _packed_source if i.packed else _source
    operands = [(f"S{n}", n, x, k, max(k.width, 32) if i.packed else k.width) for n, (x, k) in enumerate(zip(i.sources, s.sources))]
    wide = s.result is not None and s.result.width > 32
    result_width = 128 if wide and s.result.width == 128 else 64 if wide or s.compares else 32
    constants = {
        "SCC": Cell(Int(wave.scc, 1)),
        "NEG": Cell(Int(i.modifiers.neg, 3)),
        "OPSEL": Cell(Int(i.modifiers.op_sel, 3)),
        "OPSEL_HI": Cell(Int(i.modifiers.op_sel_hi or 0, 3)),  # only v_fma_mix reads it, and there the default is 0
        "SIMM32": Cell(Int(i.literal or 0, 32)),
    }
    results = []
    for lane, source_lane in enumerate(targets):
        if source_lane is None:
            continue
        cells: dict = {"laneId": lane, **constants}
        for name, n, operand, kind, width in operands:
            where = source_lane if n == 0 else lane
            cells[name] = Cell(Int(read(i, n, operand, kind, wave, where) if where >= 0 else 0, width))
        old = 0
        if s.result is not None and isinstance(i.destination, V):
            old = i.destination.read(wave, lane, 64 if wide else 32, "b")
        cells["D0"] = d0 = Register(old >> 16, 16) if i.destination_bit else Register(old, result_width)
        cells["D1"] = Register(0, 32)
        cells["VCC"] = vcc = Register(carry_in, 64)
        cells["EXEC"] = Register(0, 64)
        run(cells)
        if i.modifiers.clamp:
            _clamp(i, s, d0, cells)
        results.append((lane, d0, vcc, cells))
    mask = 0
    for lane, d0, vcc, cells in results:
        if s.compares:
            mask |= (d0.bits >> lane & 1) << lane
        elif s.compares_exec:
            mask |= (cells["EXEC"].bits >> lane & 1) << lane
        else:
            bits = d0.bits
            if i.destination_bit:
                bits = bits << 16 | i.destination.read(wave, lane, 16, "b")
            _note_tolerance(i, s, d0, lane, wave, cells)
            i.destination.write(wave, lane, bits)
        if s.writes_vcc:
            bit = cells["D1"].bits & 1 if "mad_" in i.mnemonic else vcc.bits >> lane & 1
            mask |= bit << lane
    if s.compares:
        i.destination.write(wave, 0, mask)
    elif s.compares_exec:
        wave.exec = mask
    elif s.writes_vcc:
        i.carry_out.write(wave, 0, mask)


def _source(i: VectorInstruction, n: int, operand, kind: OperandType, wave: Wave, lane: int) -> int:
    m = i.modifiers
    width = kind.width
    if width == 16 and m.op_sel >> n & 1:
        bits = operand.read(wave, lane, 32, kind.kind) >> 16
    else:
        bits = operand.read(wave, lane, width, kind.kind)
    if kind.is_float or i.mnemonic in ("v_cndmask_b32", "v_cndmask_b16", "v_mov_b32"):
        sign_bit = 1 << (width - 1)
        if m.abs >> n & 1:
            bits &= ~sign_bit
        if m.neg >> n & 1:
            bits ^= sign_bit
    return bits


def _packed_source(i: VectorInstruction, n: int, operand, kind: OperandType, wave: Wave, lane: int) -> int:
    m = i.modifiers
    if is_mixed(i.mnemonic):
        half = (i.modifiers.op_sel_hi or 0) >> n & 1
        bits = operand.read(wave, lane, 32, kind.kind)
        sign_bits = 0x80008000 if half else 0x80000000
        if m.abs >> n & 1:
            bits &= ~sign_bits
        if m.neg >> n & 1:
            bits ^= sign_bits
        return bits
    bits = operand.read(wave, lane, 32, "b" if not isinstance(getattr(operand, "value", 0), float) else "f")
    if isinstance(getattr(operand, "value", None), float):
        bits = operand.read(wave, lane, 16 if "16" in i.mnemonic.rsplit("_", 1)[1] and n < 2 or i.mnemonic.startswith("v_pk") else 32, "f")
    if is_dot_integer(i.mnemonic) or (i.mnemonic.startswith("v_dot2_f32") and n == 2):
        if n == 2 and i.mnemonic.startswith("v_dot2_f32"):
            if m.abs >> n & 1:
                bits &= 0x7FFFFFFF
            if m.neg >> n & 1:
                bits ^= 0x80000000
        return bits
    high_select = 1 if m.op_sel_hi is None else m.op_sel_hi >> n & 1
    low = bits >> 16 if m.op_sel >> n & 1 else bits & 0xFFFF
    high = bits >> 16 if high_select else bits & 0xFFFF
    if kind.is_float:
        low ^= 0x8000 if m.neg >> n & 1 else 0
        high ^= 0x8000 if m.abs >> n & 1 else 0
    return high << 16 | low


def _clamp(i: VectorInstruction, s: Signature, d0: Register, cells: dict) -> None:
    """Floats go to [0, 1], NaN to 0 (DX10_CLAMP); integers saturate."""
    for kind, low, width in _float_parts(i, s, d0):
        f = FLOAT_FORMATS[kind, width]
        bits = d0.bits >> low & ((1 << width) - 1)
        one = sf.from_int(1, f)
        if sf.is_nan(bits, f) or sf.sign(bits, f):
            bits = 0
        elif sf.order_key(bits, f) > one:
            bits = one
        d0.set_slice(low + width - 1, low, Int(bits, width))
    if not _float_parts(i, s, d0):
        d0.set_slice(31, 0, Int(saturated(i.mnemonic, cells, d0.bits), 32))


def _float_parts(i: VectorInstruction, s: Signature, d0: Register) -> list[tuple[str, int, int]]:
    """(kind, lowest bit, width) of the floats in the result."""
    mnemonic = i.mnemonic
    if mnemonic.startswith("v_pk_") and mnemonic.endswith("_f16") or mnemonic == "v_cvt_pk_rtz_f16_f32":
        return [("f", 0, 16), ("f", 16, 16)]
    if mnemonic == "v_fma_mixhi_f16":
        return [("f", 16, 16)]
    if mnemonic == "v_fma_mixlo_f16":
        return [("f", 0, 16)]
    if s.result is None or mnemonic == "v_pack_b32_f16":
        return []
    return [(s.result.kind, 0, s.result.width)] if s.result.is_float else []


def _note_tolerance(i: VectorInstruction, s: Signature, d0: Register, lane: int, wave: Wave, cells: dict) -> None:
    """Tells the comparison where the model is not exact to the bit: NaN payloads and approximated functions."""
    operation = i.mnemonic.split("_")[1] if not i.packed else i.mnemonic.split("_")[2]
    if operation in PAYLOAD_FIXED and not i.packed:
        return
    approximate = operation in APPROXIMATE
    shift = 16 if i.destination_bit else 0
    for kind, low, width in _float_parts(i, s, d0):
        f = FLOAT_FORMATS[kind, width]
        entry = Loose(f, 1 if approximate else 0, approximate and width == 32, any_nan=operation == "div")
        wave.loose.setdefault((i.destination.n + low // 32, lane), []).append((low + shift, entry))
        if entry.flushes and sf.is_denormal(cells["S0"].value.bits, f):
            flushed = dict(cells, S0=Cell(Int(cells["S0"].value.bits & f.sign_bit, 32)), D0=Register(0, 32))
            (OVERRIDES.get(i.mnemonic) or pcode.compiled(i.mnemonic))(flushed)
            wave.alternatives.setdefault((i.destination.n, lane), []).append(flushed["D0"].bits)


def _sin(cells: dict) -> None:
    from .functions import sin_turns

    _unary(cells, sin_turns)


def _cos(cells: dict) -> None:
    from .functions import cos_turns

    _unary(cells, cos_turns)


def _unary(cells: dict, function) -> None:
    width = cells["S0"].value.width
    f = FLOAT_FORMATS["f", width]
    cells["D0"].set_typed("f", width, function(Float(cells["S0"].value.bits, f)))


def _rsq(cells: dict) -> None:
    """The pseudo-code divides by a rounded square root; the instruction is one function."""
    _unary(cells, lambda x: Float(sf.reciprocal_square_root(x.bits, x.format), x.format))


def _rndne(cells: dict) -> None:
    """The pseudo-code's floor(x + 0.5) is inexact for large odd numbers; the instruction rounds to nearest even."""
    _unary(cells, lambda x: Float(sf.round_half_even(x.bits, x.format), x.format))


def _frexp(cells: dict, want_exponent: bool) -> None:
    """frexp: x = mantissa * 2**exponent, 0.5 <= |mantissa| < 1; denormals are normalised; 0 gives exponent 0."""
    bits, width = cells["S0"].value.bits, cells["S0"].value.width
    f = FLOAT_FORMATS["f", width]
    special = sf.is_nan(bits, f) or sf.is_infinite(bits, f)
    if special or sf.is_zero(bits, f):
        mantissa, exponent = Float(sf.quiet(bits, f), f), 0
    else:
        m, e = sf.decode(bits, f)
        exponent = e + abs(m).bit_length()
        mantissa = Float(sf.scale(bits, -exponent, f), f)
    if want_exponent:
        cells["D0"].set_typed("i", 16 if width == 16 else 32, Int(exponent, 32, True))
    else:
        cells["D0"].set_typed("f", width, mantissa)


def _fract(cells: dict) -> None:
    """x - floor(x), never 1: hardware clamps to the largest number below (as LLVM's fract intrinsic relies on)."""

    def fract(x):
        f = x.format
        if sf.is_infinite(x.bits, f):
            return Float(f.nan, f)
        bits = sf.add(x.bits, sf.negate(sf.floor(x.bits, f), f), f)
        one = sf.from_int(1, f)
        return Float(one - 1 if bits == one else bits, f)

    _unary(cells, fract)


def _div_scale(f: sf.Format, far: int, step: int, tiny: int):
    """v_div_scale. The text leaves D0 alone where nothing is scaled (it is S0), divides in double even for f32 (where 1 / x is never
    denormal, though the scaling is there to keep v_rcp_f32 away from denormal results), and scales a huge denominator up where its
    quotient is denormal (which gives infinity; down is what v_div_fmas undoes). The whole division's test shows that these readings
    fit together.
    """

    def run(cells: dict) -> None:
        x, denominator, numerator = (cells[f"S{n}"].value.bits for n in range(3))
        condition, result = 0, x
        if sf.is_zero(denominator, f) or sf.is_zero(numerator, f):
            result = f.nan
        else:
            reciprocal = sf.is_denormal(sf.divide(sf.from_int(1, f), denominator, f), f)
            quotient = sf.is_denormal(sf.divide(numerator, denominator, f), f)
            if sf.exponent_field(numerator, f) - sf.exponent_field(denominator, f) >= far:
                condition = 1
                if x == denominator:
                    result = sf.scale(x, step, f)
            elif sf.is_denormal(denominator, f):
                result = sf.scale(x, step, f)
            elif reciprocal and quotient:
                condition = 1
                if x == denominator:
                    result = sf.scale(x, -step, f)
            elif reciprocal:
                result = sf.scale(x, -step, f)
            elif quotient:
                condition = 1
                if x == numerator:
                    result = sf.scale(x, step, f)
            elif sf.exponent_field(numerator, f) <= tiny:
                result = sf.scale(x, step, f)
        cells["D0"].set_typed("f", f.width, Float(result, f))
        cells["VCC"].set(Int(condition << cells["laneId"], 64))

    return run


def _div_fmas(f: sf.Format, step: int):
    """v_div_fmas undoes the scaling: the text's 2 ** 32 fits no case of v_div_scale; the quotient's size says which one it was.
    A denormal quotient is rounded once, or division would not be correctly rounded.
    """

    def run(cells: dict) -> None:
        a, b, c = (cells[f"S{n}"].value.bits for n in range(3))
        power = 0
        if cells["VCC"].value.bits >> cells["laneId"] & 1:
            power = step if sf.exponent_field(c, f) > f.bias else -step
        result = sf.fma(a, b, c, f, power=power)
        cells["D0"].set_typed("f", f.width, Float(result, f))

    return run


def _div_fixup(f: sf.Format, name: str):
    """v_div_fixup. Where a quotient overflows, the steps before give NaN (infinity times zero) as S0; the text would keep it."""

    def run(cells: dict) -> None:
        quotient, denominator, numerator = (cells[f"S{n}"].value.bits for n in range(3))
        if sf.is_nan(quotient, f):
            sign = sf.sign(denominator, f) ^ sf.sign(numerator, f)
            cells = dict(cells, S0=Cell(Int(f.infinity | (f.sign_bit if sign else 0), f.width)))
        pcode.compiled(name)(cells)

    return run


OVERRIDES = (
    {
        "v_div_fixup_f32": _div_fixup(sf.F32, "v_div_fixup_f32"),
        "v_div_fixup_f64": _div_fixup(sf.F64, "v_div_fixup_f64"),
        "v_div_fmas_f32": _div_fmas(sf.F32, 64),
        "v_div_fmas_f64": _div_fmas(sf.F64, 128),
        "v_sin_f32": _sin,
        "v_sin_f16": _sin,
        "v_cos_f32": _cos,
        "v_cos_f16": _cos,
        "v_rsq_f16": _rsq,
        "v_rsq_f32": _rsq,
        "v_rsq_f64": _rsq,
        "v_rndne_f16": _rndne,
        "v_rndne_f32": _rndne,
        "v_rndne_f64": _rndne,
        "v_fract_f16": _fract,
        "v_fract_f32": _fract,
        "v_fract_f64": _fract,
        "v_div_scale_f32": _div_scale(sf.F32, 96, 64, 23),
        "v_div_scale_f64": _div_scale(sf.F64, 768, 128, 53),
    }
    | {f"v_frexp_mant_{t}": (lambda cells: _frexp(cells, False)) for t in ("f16", "f32", "f64")}
    | {f"v_frexp_exp_{t}": (lambda cells: _frexp(cells, True)) for t in ("i16_f16", "i32_f32", "i32_f64")}
)
