"""Typed values of the pseudo-code: integers and floats with a width, and cells (registers, variables) that hold bits."""

from __future__ import annotations

from . import softfloat as sf

FLOAT_FORMATS = {("f", 16): sf.F16, ("f", 32): sf.F32, ("f", 64): sf.F64, ("bf", 16): sf.BF16}


class Int:
    """An integer of a width; `value` is in the range of its type."""

    __slots__ = ("value", "width", "signed")

    def __init__(self, value: int, width: int, signed: bool = False):
        value &= (1 << width) - 1
        if signed and value >> (width - 1):
            value -= 1 << width
        self.value = value
        self.width = width
        self.signed = signed

    @property
    def bits(self) -> int:
        return self.value & ((1 << self.width) - 1)

    def __repr__(self) -> str:
        return f"{'i' if self.signed else 'u'}{self.width}:{self.value:#x}"


class Float:
    """A floating-point number as its bits."""

    __slots__ = ("bits", "format")

    def __init__(self, bits: int, format: sf.Format):
        self.bits = bits & ((1 << format.width) - 1)
        self.format = format

    @property
    def width(self) -> int:
        return self.format.width

    def __repr__(self) -> str:
        return f"{self.format.name}:{self.bits:#x}"


class PowerOfTwo:
    """2.0 ** n before it meets its other factor, so that ldexp is rounded once even where 2.0 ** n is no number."""

    __slots__ = ("power",)

    def __init__(self, power: int):
        self.power = power


class Named:
    """A constant that takes the format of its accessor: INF, NAN, DENORM."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def typed(self, f: sf.Format):
        if self.name == "INF":
            return Float(f.infinity, f)
        if self.name == "NAN":
            return Float(f.nan, f)
        return DenormalOf(f)


class DenormalOf:
    """DENORM.f32: equal to every denormal."""

    __slots__ = ("format",)

    def __init__(self, f: sf.Format):
        self.format = f


class Cell:
    """A variable: the value last assigned, or raw bits once a part has been assigned."""

    __slots__ = ("value",)

    def __init__(self, value=None):
        self.value = value if value is not None else Int(0, 32)

    def set(self, value) -> None:
        self.value = value

    def set_typed(self, kind: str, width: int, value) -> None:
        self.value = convert_for_store(kind, width, value)

    def set_slice(self, high: int, low: int, value) -> None:
        old = self.value
        width = max(old.width, high + 1)
        mask = (1 << (high - low + 1)) - 1
        bits = old.bits & ~(mask << low) | (value.bits & mask) << low
        if isinstance(old, Int) and old.width == width:
            self.value = Int(bits, width, old.signed)
        else:
            self.value = Int(bits, width)


class Register(Cell):
    """A register of a fixed width. Narrow writes keep the bits above. `written` lists (kind, low, width) of each write."""

    __slots__ = ("width", "written")

    def __init__(self, bits: int, width: int):
        self.width = width
        self.value = Int(bits, width)
        self.written: list[tuple[str, int, int]] = []

    @property
    def bits(self) -> int:
        return self.value.bits

    def set(self, value) -> None:
        self.value = Int(value.bits, self.width)
        self.written.append(("b", 0, self.width))

    def set_typed(self, kind: str, width: int, value) -> None:
        bits = convert_for_store(kind, width, value).bits
        keep = self.value.bits >> width << width
        self.value = Int(keep | bits, self.width)
        self.written.append((kind, 0, width))

    def set_slice(self, high: int, low: int, value) -> None:
        mask = (1 << (high - low + 1)) - 1
        bits = self.value.bits & ~(mask << low) | (value.bits & mask) << low
        self.value = Int(bits, self.width)
        kind = "f" if isinstance(value, Float) else "b"
        self.written.append((kind, low, high - low + 1))


def convert_for_store(kind: str, width: int, value):
    """What `x.<kind><width> = value` stores."""
    f = FLOAT_FORMATS.get((kind, width))
    if f is None:
        if isinstance(value, Float):
            return Int(value.bits, width, kind == "i")
        return Int(value.value, width, kind == "i")
    if isinstance(value, Float):
        if value.format is not f:
            raise TypeError(f"{value!r} stored as {f.name}")
        return value
    if isinstance(value, Named):
        return value.typed(f)
    return Float(value.bits, f)


def access(value, kind: str, width: int):
    """`value.<kind><width>`: bits for floats, value conversion between integers."""
    f = FLOAT_FORMATS.get((kind, width))
    if isinstance(value, Named):
        return value.typed(f)
    if f is None:
        source = value.bits if isinstance(value, Float) else value.value
        return Int(source, width, kind == "i")
    return Float(value.bits, f)


def cast(value, kind: str, width: int):
    """`width'kind(value)`: numeric between floats and between integers, bits from an integer to a float."""
    f = FLOAT_FORMATS.get((kind.lower(), width))
    if f is not None:
        if isinstance(value, Float):
            if sf.is_signalling(value.bits, value.format):  # isSignalNAN(64'F(x)) must still see it
                payload = sf.convert_nan_payload(sf.fraction_field(value.bits, value.format), value.format, f)
                top = f.sign_bit if sf.sign(value.bits, value.format) else 0
                return Float(top | f.infinity | payload or 1, f)
            return Float(sf.convert(value.bits, value.format, f), f)
        if isinstance(value, (PowerOfTwo, Named)):
            return value
        return Float(value.bits, f)
    if isinstance(value, Float):
        if kind == "B":
            return Int(value.bits, width)
        raise TypeError("a float is not cast to an integer by the pseudo-code")
    return Int(value.value, width, kind == "I")


def slice_bits(value, high: int, low: int):
    """`value[high : low]`; low > high reverses the bits."""
    bits = value.bits
    if high < low:
        reversed_bits = 0
        for i in range(high, low + 1):
            reversed_bits = reversed_bits << 1 | (bits >> i & 1)
        return Int(reversed_bits, max(value.width, low - high + 1))
    width = high - low + 1
    return Int(bits >> low & ((1 << width) - 1), max(width, min(value.width, 64)))


def bit(value, index: int):
    return Int(value.bits >> index & 1, 1)


def concatenate(*parts):
    bits = width = 0
    for part in parts:
        bits = bits << part.width | part.bits
        width += part.width
    return Int(bits, width)


def signed_from_bits(bits: int, width: int) -> int:
    return bits - (1 << width) if bits >> (width - 1) & 1 else bits


def truth(value) -> bool:
    return (value.value if isinstance(value, Int) else value.bits) != 0


def boolean(x: bool) -> Int:
    return Int(1 if x else 0, 1)


def _common(a: Int, b: Int) -> tuple[int, bool]:
    return max(a.width, b.width), a.signed and b.signed


def _same_format(a, b):
    if isinstance(a, Named):
        a = a.typed(b.format)
    if isinstance(b, Named):
        b = b.typed(a.format)
    if isinstance(a, Float) and isinstance(b, Float) and a.format is not b.format:
        f = a.format if a.width > b.width else b.format
        a, b = (x if x.format is f else Float(sf.convert(x.bits, x.format, f), f) for x in (a, b))
    if not isinstance(a, (Float, DenormalOf)) or not isinstance(b, (Float, DenormalOf)):
        raise TypeError(f"float and integer mixed: {a!r}, {b!r}")
    return a, b


def _is_int(a, b) -> bool:
    return isinstance(a, Int) and isinstance(b, Int)


def add(a, b):
    if _is_int(a, b):
        return Int(a.value + b.value, *_common(a, b))
    a, b = _same_format(a, b)
    return Float(sf.add(a.bits, b.bits, a.format), a.format)


def subtract(a, b):
    if _is_int(a, b):
        return Int(a.value - b.value, *_common(a, b))
    a, b = _same_format(a, b)
    b_negated = b.bits if sf.is_nan(b.bits, b.format) else sf.negate(b.bits, b.format)
    return Float(sf.add(a.bits, b_negated, a.format), a.format)


def multiply(a, b):
    if _is_int(a, b):
        return Int(a.value * b.value, *_common(a, b))
    if isinstance(b, PowerOfTwo):
        return Float(sf.scale(a.bits, b.power, a.format), a.format)
    if isinstance(a, PowerOfTwo):
        return Float(sf.scale(b.bits, a.power, b.format), b.format)
    a, b = _same_format(a, b)
    return Float(sf.multiply(a.bits, b.bits, a.format), a.format)


def divide(a, b):
    if _is_int(a, b):
        quotient = abs(a.value) // abs(b.value)
        return Int(quotient if (a.value < 0) == (b.value < 0) else -quotient, *_common(a, b))
    a, b = _same_format(a, b)
    return Float(sf.divide(a.bits, b.bits, a.format), a.format)


def remainder(a, b):
    return Int(a.value % b.value, *_common(a, b))


def power(a, b):
    if isinstance(a, Float) and isinstance(b, Int) and a.bits == sf.from_int(2, a.format):
        return PowerOfTwo(b.value)
    raise TypeError(f"{a!r} ** {b!r}")


def bit_and(a, b):
    return Int(a.bits & b.bits if not (a.signed and b.signed) else a.value & b.value, *_common(a, b))


def bit_or(a, b):
    return Int(a.bits | b.bits if not (a.signed and b.signed) else a.value | b.value, *_common(a, b))


def bit_xor(a, b):
    return Int(a.bits ^ b.bits if not (a.signed and b.signed) else a.value ^ b.value, *_common(a, b))


def shift_left(a, b):
    return Int(a.value << b.value, a.width, a.signed)


def shift_right(a, b):
    return Int(a.value >> b.value, a.width, a.signed)


def negate(a):
    if isinstance(a, Int):
        return Int(-a.value, a.width, a.signed)
    if isinstance(a, Named):
        return Float(sf.F64.infinity | sf.F64.sign_bit, sf.F64)
    return Float(sf.negate(a.bits, a.format), a.format)


def invert(a):
    return Int(~a.value, a.width, a.signed)


def _compare(a, b) -> int | None:
    """-1, 0, 1, or None if unordered."""
    if _is_int(a, b):
        return (a.value > b.value) - (a.value < b.value)
    a, b = _same_format(a, b)
    if isinstance(b, DenormalOf):
        return 0 if sf.is_denormal(a.bits, a.format) else None
    if sf.is_nan(a.bits, a.format) or sf.is_nan(b.bits, b.format):
        return None
    ka, kb = sf.order_key(a.bits, a.format), sf.order_key(b.bits, b.format)
    return (ka > kb) - (ka < kb)


def equal(a, b):
    return boolean(_compare(a, b) == 0)


def not_equal(a, b):
    """!=: true for unordered."""
    return boolean(_compare(a, b) != 0)


def less_or_greater(a, b):
    """<>: false for unordered."""
    return boolean(_compare(a, b) in (-1, 1))


def less(a, b):
    return boolean(_compare(a, b) == -1)


def less_equal(a, b):
    return boolean(_compare(a, b) in (-1, 0))


def greater(a, b):
    return boolean(_compare(a, b) == 1)


def greater_equal(a, b):
    return boolean(_compare(a, b) in (0, 1))
