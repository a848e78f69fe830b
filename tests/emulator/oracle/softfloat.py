"""Exact IEEE arithmetic on bit patterns, with integers only: nothing is left to the host's floating-point unit.

A number is a pair (bits, format). Every operation forms the exact result as sign * mantissa * 2**exponent and rounds it once.
"""

from __future__ import annotations

from math import isqrt


class Format:
    """A binary interchange format. `mantissa` counts the stored fraction bits."""

    def __init__(self, name: str, width: int, mantissa: int):
        self.name = name
        self.width = width
        self.mantissa = mantissa
        self.exponent_bits = width - 1 - mantissa
        self.exponent_max = (1 << self.exponent_bits) - 1
        self.bias = (1 << (self.exponent_bits - 1)) - 1
        self.lowest = 1 - self.bias - mantissa  # exponent of a denormal's last bit
        self.sign_bit = 1 << (width - 1)
        self.infinity = self.exponent_max << mantissa
        self.quiet_bit = 1 << (mantissa - 1)
        self.nan = self.infinity | self.quiet_bit
        self.max_finite = self.infinity - 1


F16 = Format("f16", 16, 10)
BF16 = Format("bf16", 16, 7)
F32 = Format("f32", 32, 23)
F64 = Format("f64", 64, 52)

NEAREST_EVEN = "nearest even"
TOWARD_ZERO = "toward zero"


def sign(bits: int, f: Format) -> int:
    return bits >> (f.width - 1) & 1


def exponent_field(bits: int, f: Format) -> int:
    return bits >> f.mantissa & f.exponent_max


def fraction_field(bits: int, f: Format) -> int:
    return bits & ((1 << f.mantissa) - 1)


def is_nan(bits: int, f: Format) -> bool:
    return (bits & ~f.sign_bit) > f.infinity


def is_signalling(bits: int, f: Format) -> bool:
    return is_nan(bits, f) and not bits & f.quiet_bit


def is_infinite(bits: int, f: Format) -> bool:
    return bits & ~f.sign_bit == f.infinity


def is_zero(bits: int, f: Format) -> bool:
    return bits & ~f.sign_bit == 0


def is_denormal(bits: int, f: Format) -> bool:
    return exponent_field(bits, f) == 0 and fraction_field(bits, f) != 0


def quiet(bits: int, f: Format) -> int:
    return bits | f.quiet_bit if is_nan(bits, f) else bits


def decode(bits: int, f: Format) -> tuple[int, int]:
    """A finite number as (signed mantissa, exponent of two)."""
    e = exponent_field(bits, f)
    m = fraction_field(bits, f)
    if e == 0:
        e = 1
    else:
        m |= 1 << f.mantissa
    return (-m if sign(bits, f) else m), e - f.bias - f.mantissa


def round_to(negative: int, mantissa: int, exponent: int, f: Format, mode: str = NEAREST_EVEN, sticky: bool = False) -> int:
    """Rounds mantissa * 2**exponent (mantissa >= 0; plus a little if `sticky`) to f and packs it."""
    top = f.sign_bit if negative else 0
    if mantissa == 0:
        return top
    shift = mantissa.bit_length() - (f.mantissa + 1)
    lowest = f.lowest
    if exponent + shift < lowest:
        shift = lowest - exponent
    if shift > 0:
        rest = mantissa & ((1 << shift) - 1)
        kept = mantissa >> shift
        half = 1 << (shift - 1)
        if mode == NEAREST_EVEN and (rest > half or (rest == half and (sticky or kept & 1))):
            kept += 1
    else:
        kept = mantissa << -shift
    exponent += shift
    if kept >> (f.mantissa + 1):
        kept >>= 1
        exponent += 1
    if kept >> f.mantissa == 0:
        return top | kept
    field = exponent + f.bias + f.mantissa
    if field >= f.exponent_max:
        return top | (f.infinity if mode == NEAREST_EVEN else f.max_finite)
    return top | field << f.mantissa | (kept & ((1 << f.mantissa) - 1))


def from_scaled(value: int, exponent: int, f: Format, mode: str = NEAREST_EVEN, zero_sign: int = 0) -> int:
    """Rounds value * 2**exponent; `zero_sign` is the sign of an exact zero."""
    if value == 0:
        return f.sign_bit if zero_sign else 0
    return round_to(value < 0, abs(value), exponent, f, mode)


def from_int(value: int, f: Format, mode: str = NEAREST_EVEN) -> int:
    return from_scaled(value, 0, f, mode)


def convert(bits: int, source: Format, target: Format, mode: str = NEAREST_EVEN) -> int:
    """Changes the format. NaNs become quiet and keep the top of their payload."""
    s = sign(bits, source)
    top = target.sign_bit if s else 0
    if is_nan(bits, source):
        return top | convert_nan_payload(fraction_field(bits, source), source, target) | target.nan
    if is_infinite(bits, source):
        return top | target.infinity
    m, e = decode(bits, source)
    return round_to(s, abs(m), e, target, mode)


def convert_nan_payload(payload: int, source: Format, target: Format) -> int:
    shift = target.mantissa - source.mantissa
    return payload << shift if shift >= 0 else payload >> -shift


def negate(bits: int, f: Format) -> int:
    return bits ^ f.sign_bit


def absolute(bits: int, f: Format) -> int:
    return bits & ~f.sign_bit


def fma(a: int, b: int, c: int, f: Format, mode: str = NEAREST_EVEN, power: int = 0) -> int:
    """(a * b + c) * 2**power with one rounding."""
    for x in (a, b, c):
        if is_nan(x, f):
            return quiet(x, f)
    product_sign = sign(a, f) ^ sign(b, f)
    if is_infinite(a, f) or is_infinite(b, f):
        if is_zero(a, f) or is_zero(b, f):
            return f.nan
        if is_infinite(c, f) and sign(c, f) != product_sign:
            return f.nan
        return f.infinity | (f.sign_bit if product_sign else 0)
    if is_infinite(c, f):
        return c
    ma, ea = decode(a, f)
    mb, eb = decode(b, f)
    mc, ec = decode(c, f)
    mp, ep = ma * mb, ea + eb
    e = min(ep, ec)
    total = (mp << (ep - e)) + (mc << (ec - e))
    return from_scaled(total, e + power, f, mode, product_sign & sign(c, f))


def add(a: int, b: int, f: Format, mode: str = NEAREST_EVEN) -> int:
    if is_nan(a, f) or is_nan(b, f):
        return quiet(a if is_nan(a, f) else b, f)
    if is_infinite(a, f):
        return f.nan if is_infinite(b, f) and a != b else a
    if is_infinite(b, f):
        return b
    ma, ea = decode(a, f)
    mb, eb = decode(b, f)
    e = min(ea, eb)
    return from_scaled((ma << (ea - e)) + (mb << (eb - e)), e, f, mode, sign(a, f) & sign(b, f))


def multiply(a: int, b: int, f: Format, mode: str = NEAREST_EVEN) -> int:
    if is_nan(a, f) or is_nan(b, f):
        return quiet(a if is_nan(a, f) else b, f)
    s = sign(a, f) ^ sign(b, f)
    if is_infinite(a, f) or is_infinite(b, f):
        return f.nan if is_zero(a, f) or is_zero(b, f) else f.infinity | (f.sign_bit if s else 0)
    ma, ea = decode(a, f)
    mb, eb = decode(b, f)
    return round_to(s, abs(ma * mb), ea + eb, f, mode)


def divide(a: int, b: int, f: Format) -> int:
    if is_nan(a, f) or is_nan(b, f):
        return quiet(a if is_nan(a, f) else b, f)
    s = sign(a, f) ^ sign(b, f)
    top = f.sign_bit if s else 0
    if is_infinite(a, f):
        return f.nan if is_infinite(b, f) else top | f.infinity
    if is_infinite(b, f):
        return top
    if is_zero(b, f):
        return f.nan if is_zero(a, f) else top | f.infinity
    ma, ea = decode(a, f)
    mb, eb = decode(b, f)
    shift = 2 * f.mantissa + 8
    quotient, rest = divmod(abs(ma) << shift, abs(mb))
    return round_to(s, quotient << 1 | (rest != 0), ea - eb - shift - 1, f)


def square_root(a: int, f: Format) -> int:
    if is_nan(a, f):
        return quiet(a, f)
    if is_zero(a, f):
        return a
    if sign(a, f):
        return f.nan
    if is_infinite(a, f):
        return a
    m, e = decode(a, f)
    shift = 2 * f.mantissa + 8 + (e & 1)
    m <<= shift
    e -= shift
    root = isqrt(m)
    return round_to(0, root << 1 | (root * root != m), e // 2 - 1, f)


def reciprocal_square_root(a: int, f: Format) -> int:
    """1 / sqrt(a), rounded once."""
    if is_nan(a, f):
        return quiet(a, f)
    if is_zero(a, f):
        return f.infinity | (a & f.sign_bit)
    if sign(a, f):
        return f.nan
    if is_infinite(a, f):
        return 0
    m, e = decode(a, f)
    if e & 1:
        m <<= 1
        e -= 1
    # 1 / sqrt(m * 2**e) = sqrt(2**(2k) / m) * 2**(-e/2 - k), with enough bits for a correct rounding
    k = 3 * f.mantissa + m.bit_length() + 16
    root = isqrt((1 << 2 * k) // m)
    return round_to(0, root << 1 | 1 if root * root * m != 1 << 2 * k else root << 1, -e // 2 - k - 1, f)


def scale(a: int, power: int, f: Format) -> int:
    """ldexp: a * 2**power, rounded once."""
    if is_nan(a, f):
        return quiet(a, f)
    if is_infinite(a, f) or is_zero(a, f):
        return a
    m, e = decode(a, f)
    power = max(-(8 << f.exponent_bits), min(8 << f.exponent_bits, power))  # beyond that it is zero or infinity anyway
    return round_to(sign(a, f), abs(m), e + power, f)


def order_key(bits: int, f: Format) -> int:
    """An integer that orders numbers (not NaN) as their values do; both zeros give 0."""
    magnitude = bits & ~f.sign_bit
    return -magnitude if sign(bits, f) else magnitude


def truncate(a: int, f: Format) -> int:
    if is_nan(a, f):
        return quiet(a, f)
    if is_infinite(a, f):
        return a
    m, e = decode(a, f)
    if e >= 0:
        return a
    return round_to(sign(a, f), abs(m) >> -e, 0, f)


def floor(a: int, f: Format) -> int:
    if is_nan(a, f):
        return quiet(a, f)
    if is_infinite(a, f):
        return a
    m, e = decode(a, f)
    if e >= 0:
        return a
    return from_scaled(m >> -e, 0, f, zero_sign=sign(a, f))


def round_half_even(a: int, f: Format) -> int:
    if is_nan(a, f):
        return quiet(a, f)
    if is_infinite(a, f):
        return a
    m, e = decode(a, f)
    if e >= 0:
        return a
    kept, rest, half = abs(m) >> -e, abs(m) & ((1 << -e) - 1), 1 << (-e - 1)
    if rest > half or (rest == half and kept & 1):
        kept += 1
    return round_to(sign(a, f), kept, 0, f)


def to_int(a: int, f: Format, low: int, high: int) -> int:
    """Truncates to an integer, saturating to [low, high]; NaN gives 0."""
    if is_nan(a, f):
        return 0
    if is_infinite(a, f):
        return low if sign(a, f) else high
    m, e = decode(a, f)
    value = abs(m) << e if e >= 0 else abs(m) >> -e
    return max(low, min(high, -value if m < 0 else value))
