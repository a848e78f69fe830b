"""The pseudo-code's functions: isNAN, fma, exponent, f32_to_i32, pow ..."""

from __future__ import annotations

import re

import numpy as np

from . import softfloat as sf
from .values import FLOAT_FORMATS, Float, Int, Named, boolean, signed_from_bits

INTEGER = re.compile(r"([iu])(\d+)$")


def is_nan(x):
    return boolean(sf.is_nan(x.bits, x.format))


def is_quiet_nan(x):
    return boolean(sf.is_nan(x.bits, x.format) and not sf.is_signalling(x.bits, x.format))


def is_signal_nan(x):
    return boolean(sf.is_signalling(x.bits, x.format))


def quiet(x):
    return Float(sf.quiet(x.bits, x.format), x.format)


def absolute(x):
    return Float(sf.absolute(x.bits, x.format), x.format)


def sign(x):
    return Int(sf.sign(x.bits, x.format), 1)


def exponent(x):
    """The exponent field, as v_cmp_class, v_div_scale and v_div_fixup use it."""
    return Int(sf.exponent_field(x.bits, x.format), 32, True)


def trunc(x):
    return Float(sf.truncate(x.bits, x.format), x.format)


def floor(x):
    return Float(sf.floor(x.bits, x.format), x.format)


def fract(x):
    f = x.format
    return Float(sf.add(x.bits, sf.negate(sf.floor(x.bits, f), f), f), f)


def is_even(x):
    if sf.is_nan(x.bits, x.format) or sf.is_infinite(x.bits, x.format):
        return boolean(False)
    m, e = sf.decode(x.bits, x.format)
    return boolean(e > 0 or (m >> -e) & 1 == 0)


def fma(a, b, c):
    return Float(sf.fma(a.bits, b.bits, c.bits, a.format), a.format)


def sqrt(x):
    return Float(sf.square_root(x.bits, x.format), x.format)


def ldexp(x, n):
    return Float(sf.scale(x.bits, n.value, x.format), x.format)


def signext(x):
    return Int(signed_from_bits(x.bits, x.width), 64, True)


def signext_from_bit(x, width):
    """Sign extension of an integer whose sign is bit width - 1; no bits give 0."""
    n = width.value
    if n == 0:
        return Int(0, x.width, True)
    if n >= x.width:
        return x
    return Int(signed_from_bits(x.bits & ((1 << n) - 1), n), x.width, True)


def _to_longdouble(x) -> np.longdouble:
    m, e = sf.decode(x.bits, x.format)
    return np.ldexp(np.longdouble(m), e)


def _from_longdouble(value: np.longdouble, f: sf.Format) -> int:
    if np.isnan(value):
        return f.nan
    if np.isinf(value):
        return f.infinity | (f.sign_bit if value < 0 else 0)
    m, e = np.frexp(abs(value))
    return sf.round_to(bool(np.signbit(value)), int(np.ldexp(m, 64)), int(e) - 64, f)


def exp2(x):
    """2**x, correctly rounded but for the rare case that 80-bit arithmetic cannot decide."""
    f = x.format
    if sf.is_nan(x.bits, f):
        return quiet(x)
    if sf.is_infinite(x.bits, f):
        return Float(0 if sf.sign(x.bits, f) else f.infinity, f)
    with np.errstate(all="ignore"):
        return Float(_from_longdouble(np.exp2(_to_longdouble(x)), f), f)


def log2(x):
    f = x.format
    if sf.is_nan(x.bits, f):
        return quiet(x)
    if sf.is_zero(x.bits, f):
        return Float(f.infinity | f.sign_bit, f)
    if sf.sign(x.bits, f):
        return Float(f.nan, f)
    if sf.is_infinite(x.bits, f):
        return x
    return Float(_from_longdouble(np.log2(_to_longdouble(x)), f), f)


def _turn(x, function):
    """sin or cos of x turns, reduced exactly to an eighth of a turn around 0 before 80-bit arithmetic sees it."""
    f = x.format
    if sf.is_nan(x.bits, f):
        return quiet(x)
    if sf.is_infinite(x.bits, f):
        return Float(f.nan, f)
    m, e = sf.decode(x.bits, f)
    if e < 0:
        m -= m >> -e << -e  # [0, 1) turns
        quarter = (m << 3 >> -e) + 1 >> 1  # nearest quarter
        rest = np.ldexp(np.longdouble((m << 2) - (quarter << -e)), e - 2)
    else:
        quarter, rest = 0, np.longdouble(0)
    angle = rest * (2 * np.longdouble("3.14159265358979323846264338327950288"))
    if function == "cos":
        quarter += 1
    value = [np.sin(angle), np.cos(angle), -np.sin(angle), -np.cos(angle)][quarter % 4]
    if function == "sin" and sf.is_zero(x.bits, f):
        return x
    return Float(_from_longdouble(value, f), f)


def sin_turns(x):
    """sin(2 pi x)."""
    return _turn(x, "sin")


def cos_turns(x):
    """cos(2 pi x)."""
    return _turn(x, "cos")


def conversion(name: str, rounding):
    """The function called `name` if it is <type>_to_<type>, else None. `rounding` gives the mode for narrowing."""
    match = re.fullmatch(r"(b?[fiu]\d+)_to_(b?[fiu]\d+|snorm|unorm)", name)
    if not match:
        return None
    source, target = match.groups()
    to_float = FLOAT_FORMATS.get(_split(target))
    if source[0] in "iu":
        signed, width = source[0] == "i", int(source[1:])
        if to_float is not None:
            return lambda x: Float(sf.from_int(Int(x.value, width, signed).value, to_float, rounding()), to_float)
        low, high = _range(target)
        kind, out = _split(target)
        return lambda x: Int(max(low, min(high, Int(x.value, width, signed).value)), out, kind == "i")
    if to_float is not None:
        return lambda x: Float(sf.convert(x.bits, x.format, to_float, rounding()), to_float)
    if target == "snorm":
        return lambda x: Int(_normalised(x, 32767), 16, True)
    if target == "unorm":
        return lambda x: Int(_normalised(x, 65535), 16)
    low, high = _range(target)
    kind, out = _split(target)
    return lambda x: Int(sf.to_int(x.bits, x.format, low, high), out, kind == "i")


def _normalised(x, scale: int) -> int:
    """round_half_even(clamp(x) * scale)."""
    low = -scale if scale == 32767 else 0
    f = x.format
    if sf.is_nan(x.bits, f):
        return 0
    if sf.is_infinite(x.bits, f):
        return low if sf.sign(x.bits, f) else scale
    m, e = sf.decode(x.bits, f)
    m *= scale
    if e >= 0:
        value = m << e
    else:
        value, rest, half = m >> -e, m & ((1 << -e) - 1), 1 << (-e - 1)
        if rest > half or (rest == half and value & 1):
            value += 1
    return max(low, min(scale, value))


def _split(name: str) -> tuple[str, int]:
    match = re.fullmatch(r"([a-z]+)(\d+)", name)
    return (match.group(1), int(match.group(2))) if match else ("", 0)


def _range(name: str) -> tuple[int, int]:
    kind, width = _split(name)
    return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind == "i" else (0, (1 << width) - 1)


CONSTANTS = {
    "INF": Named("INF"),
    "NAN": Named("NAN"),
    "DENORM": Named("DENORM"),
    "MAX_FLOAT_F32": Float(sf.F32.max_finite, sf.F32),
    # The pseudo-code does not say what these are; what matters is that they round to zero and to infinity.
    "UNDERFLOW_F32": Float(0, sf.F32),
    "UNDERFLOW_F64": Float(0, sf.F64),
    "OVERFLOW_F32": Float(sf.F32.infinity, sf.F32),
    "OVERFLOW_F64": Float(sf.F64.infinity, sf.F64),
}

FUNCTIONS = {
    "isNAN": is_nan,
    "isQuietNAN": is_quiet_nan,
    "isSignalNAN": is_signal_nan,
    "cvtToQuietNAN": quiet,
    "abs": absolute,
    "sign": sign,
    "exponent": exponent,
    "trunc": trunc,
    "floor": floor,
    "fract": fract,
    "isEven": is_even,
    "fma": fma,
    "sqrt": sqrt,
    "ldexp": ldexp,
    "log2": log2,
    "signext": signext,
    "signext_from_bit": signext_from_bit,
    "pow": lambda base, x: exp2(x),
}
