"""Register contents for the tests: random bits, random numbers of a kind, and the values at the borders of each kind."""

from __future__ import annotations

import numpy as np

from . import softfloat as sf

BORDERS_I32 = [0, 1, 2, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000, 0xFFFFFF, 0x7FFFFFFF,
               0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF, 0x55555555, 0xAAAAAAAA, 0x204, 0x3FF]  # fmt: skip
BORDERS_I16 = [0, 1, 2, 7, 15, 16, 17, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF]
BORDERS_I64 = [0, 1, 31, 32, 63, 64, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000,
               0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF00000000, 0xFFFFFFFF80000000]  # fmt: skip


def float_borders(f: sf.Format) -> list[int]:
    """Zeros, infinities, NaNs of both kinds, denormals, the largest and smallest numbers, powers, halves, integers."""
    one = sf.from_int(1, f)
    values = [
        0,
        1,  # smallest denormal
        (1 << f.mantissa) - 1,  # largest denormal
        1 << f.mantissa,  # smallest normal
        f.max_finite,
        f.infinity,
        f.nan,
        f.nan | 5,
        f.infinity | 1,  # signalling
        f.infinity | f.quiet_bit >> 1 | 3,
        one,
        one - 1,
        one + 1,
        sf.from_scaled(1, -1, f),
        sf.from_scaled(3, -1, f),
        sf.from_scaled(5, -1, f),
        sf.from_int(2, f),
        sf.from_int(3, f),
        sf.from_int(127, f),
        sf.from_int(128, f),
        sf.from_int(1 << f.mantissa, f),
        sf.from_int((1 << (f.mantissa + 1)) - 1, f),
        sf.scale(one, 14, f),
        sf.scale(one, -14, f),
        sf.scale(one, f.bias - 2, f),
    ]
    if f.width > 16:
        values += [sf.from_int(x, f) for x in (255, 256, 65535, 65536, 2147483647, 2147483648, 4294967295, 4294967296)]
    if f is sf.F32:
        # the borders of f16: half of the smallest denormal, rounding up to infinity, ties
        values += [0x33000000, 0x33000001, 0x33800000, 0x387FE000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x3F801000, 0x3F803000]
    return values + [v | f.sign_bit for v in values]


class Source:
    """A generator of register contents; everything follows from its seed."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)

    def bits(self, count: int, width: int) -> np.ndarray:
        values = self.random.integers(0, 1 << 32, count, dtype=np.uint64)
        if width == 64:
            values |= self.random.integers(0, 1 << 32, count, dtype=np.uint64) << np.uint64(32)
        return values & np.uint64((1 << width) - 1)

    def floats(self, count: int, f: sf.Format) -> np.ndarray:
        """Random signs and mantissas with exponents near 1, so that sums and products interact."""
        spread = {16: 6, 32: 12, 64: 20}[f.width]
        exponent = self.random.integers(f.bias - spread, f.bias + spread + 1, count, dtype=np.uint64)
        mantissa = self.bits(count, 64) & np.uint64((1 << f.mantissa) - 1)
        sign = self.random.integers(0, 2, count, dtype=np.uint64)
        return sign << np.uint64(f.width - 1) | exponent << np.uint64(f.mantissa) | mantissa

    def choose(self, count: int, values: list[int]) -> np.ndarray:
        return np.array(values, dtype=np.uint64)[self.random.integers(0, len(values), count)]

    def mixture(self, count: int, kind: str, width: int) -> np.ndarray:
        """A third each of borders, random numbers of the kind, and random bits (small integers for integers)."""
        f = {("f", 16): sf.F16, ("f", 32): sf.F32, ("f", 64): sf.F64, ("bf", 16): sf.BF16}.get((kind, width))
        if f is not None:
            parts = [self.choose(count, float_borders(f)), self.floats(count, f), self.bits(count, width)]
        else:
            borders = {16: BORDERS_I16, 32: BORDERS_I32, 64: BORDERS_I64}[width]
            small = self.random.integers(0, 40, count, dtype=np.uint64)
            parts = [self.choose(count, borders), self.bits(count, width), small]
        which = self.random.integers(0, 3, count)
        return np.choose(which, parts)

    def values(self, count: int, kind: str, width: int, style: str = "mixture") -> np.ndarray:
        """`count` values of a kind; style "floats" leaves special values out."""
        if kind.startswith("packed"):
            part = kind.split()[1]
            name, size = ("bf", 16) if part == "bf16" else (part[0], 16)
            return self.values(count, name, size, style) | self.values(count, name, size, style) << np.uint64(16)
        if kind == "exponent":  # of ldexp: mostly what moves numbers between denormals and infinity
            near = self.random.integers(-300, 300, count).astype(np.int64).astype(np.uint64) & np.uint64((1 << width) - 1)
            return np.where(self.random.integers(0, 5, count) > 0, near, self.mixture(count, "i", width))
        if kind == "bits":
            return self.bits(count, width)
        if style == "floats" and kind == "f":
            return self.floats(count, {16: sf.F16, 32: sf.F32, 64: sf.F64}[width])
        return self.mixture(count, kind, width)

    def mask(self) -> int:
        """An EXEC mask: often full, sometimes empty, a single lane, a prefix, or random."""
        choice = self.random.integers(0, 10)
        if choice < 4:
            return 0xFFFFFFFF
        if choice == 4:
            return 0
        if choice == 5:
            return 1 << int(self.random.integers(0, 32))
        if choice == 6:
            return (1 << int(self.random.integers(1, 32))) - 1
        return int(self.bits(1, 32)[0])
