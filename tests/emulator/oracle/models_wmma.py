"""v_wmma_*_16x16x16 in wave32, modelled by hand.

A: lane l holds row l % 16 (lanes 16-31 repeat lanes 0-15), its 16 elements in the packed registers. B: the same with columns.
C and D, 32 bits: register i of lane l is row 2 * i + l / 16, column l % 16. 16-bit C and D: the same, in the half that op_sel chooses.
The sums are exact for integers. The order of a float sum is not documented, so floats are compared within a bound of the rounding
of 17 terms, and exactly where every partial sum is a representable integer.
"""

from __future__ import annotations

import numpy as np

from . import softfloat as sf
from .case import Case
from .inputs import Source
from .wave import LANES, MASK32, Wave

D, A, B, C = 0, 8, 16, 24


def cases() -> list[Case]:
    return _integer() + _float()


def elements(w: Wave, first: int, count: int, width: int) -> np.ndarray:
    """[16][16] unsigned elements: one row (of A) or column (of B) a lane."""
    per_register = 32 // width
    result = np.zeros((16, 16), dtype=np.int64)
    for lane in range(16):
        for k in range(16):
            result[lane, k] = w.v[first + k // per_register][lane] >> width * (k % per_register) & ((1 << width) - 1)
    return result


def repeat_halves(w: Wave, *ranges: tuple[int, int]) -> None:
    """Lanes 16-31 of A and B must repeat lanes 0-15."""
    for first, count in ranges:
        for register in range(first, first + count):
            w.v[register][16:] = w.v[register][:16]


def _integer() -> list[Case]:
    result = []
    for width, registers in ((8, 4), (4, 2)):
        name = f"v_wmma_i32_16x16x16_iu{width}"
        for negative in range(4):
            for clamp in (False, True):
                for destination in (D, C):

                    def model(w: Wave, width=width, registers=registers, negative=negative, clamp=clamp, destination=destination) -> None:
                        a, b = elements(w, A, registers, width), elements(w, B, registers, width)
                        half = 1 << (width - 1)
                        if negative & 1:
                            a = (a ^ half) - half
                        if negative & 2:
                            b = (b ^ half) - half
                        product = a @ b.T
                        for i in range(8):
                            for lane in range(LANES):
                                c = w.v[C + i][lane]
                                total = int(product[2 * i + lane // 16, lane % 16]) + (c - (1 << 32) if c >> 31 else c)
                                if clamp:
                                    total = max(-(1 << 31), min((1 << 31) - 1, total))
                                w.v[destination + i][lane] = total & MASK32

                    def prepare(w: Wave, source: Source, registers=registers) -> None:
                        repeat_halves(w, (A, registers), (B, registers))
                        for i in range(8):  # accumulators near the limits, so that clamp shows
                            for lane in range(LANES):
                                if source.random.integers(0, 3) == 0:
                                    w.v[C + i][lane] = 0x7FFFFFFF - int(source.random.integers(0, 1000))
                                elif source.random.integers(0, 2) == 0:
                                    w.v[C + i][lane] = 0x80000000 + int(source.random.integers(0, 1000))

                    signs = f" neg_lo:[{negative & 1},{negative >> 1},0]" if negative else ""
                    text = (
                        f"{name} v[{destination}:{destination + 7}], v[{A}:{A + registers - 1}], v[{B}:{B + registers - 1}], v[{C}:{C + 7}]"
                    )
                    result.append(_case(name, text + signs + (" clamp" if clamp else ""), model, prepare))
        text = f"{name} v[{D}:{D + 7}], v[{A}:{A + registers - 1}], v[{B}:{B + registers - 1}], 0 neg_lo:[1,1,0]"

        def zero_model(w: Wave, width=width, registers=registers) -> None:
            half = 1 << (width - 1)
            a, b = ((elements(w, first, registers, width) ^ half) - half for first in (A, B))
            product = a @ b.T
            for i in range(8):
                for lane in range(LANES):
                    w.v[D + i][lane] = int(product[2 * i + lane // 16, lane % 16]) & MASK32

        result.append(
            _case(name, text, zero_model, lambda w, source, registers=registers: repeat_halves(w, (A, registers), (B, registers)))
        )
    return result


class Bounded:
    """A tolerance with an absolute bound, for compare.right: the exact sum and how far rounding may lead from it."""

    def __init__(self, f: sf.Format, exact: float, bound: float):
        self.format = f
        self.exact = exact
        self.bound = bound

    def accepts(self, bits: int) -> bool:
        value = to_float(bits, self.format)
        return np.isfinite(value) and abs(value - self.exact) <= self.bound


def to_float(bits: int, f: sf.Format) -> float:
    if f is sf.BF16:
        return float(np.uint32(bits << 16).view(np.float32))
    return float(np.uint16(bits).view(np.float16)) if f is sf.F16 else float(np.uint32(bits).view(np.float32))


def from_float(value: float, f: sf.Format) -> int:
    numerator, denominator = float(value).as_integer_ratio()
    return sf.from_scaled(numerator, 1 - denominator.bit_length(), f)


def _float() -> list[Case]:
    result = []
    for name, inner, outer in (
        ("v_wmma_f32_16x16x16_f16", sf.F16, sf.F32),
        ("v_wmma_f32_16x16x16_bf16", sf.BF16, sf.F32),
        ("v_wmma_f16_16x16x16_f16", sf.F16, sf.F16),
        ("v_wmma_bf16_16x16x16_bf16", sf.BF16, sf.BF16),
    ):
        for integers in (False, True):
            for high in (False, True) if outer.width == 16 else (False,):
                for destination in (D, C):
                    # how a constant reads as bf16 is not documented
                    for constant in (False, True) if destination == D and not high and outer is not sf.BF16 else (False,):
                        model, prepare = _float_model(inner, outer, integers, high, destination, constant)
                        accumulator = "1.0" if constant else f"v[{C}:{C + 7}]"
                        text = f"{name} v[{destination}:{destination + 7}], v[{A}:{A + 7}], v[{B}:{B + 7}], {accumulator}"
                        result.append(_case(name, text + (" op_sel:[0,0,1]" if high else ""), model, prepare))
        if outer is sf.F32:
            model, prepare = _float_model(inner, outer, False, False, D, False, neg_accumulator=True)
            text = f"{name} v[{D}:{D + 7}], v[{A}:{A + 7}], v[{B}:{B + 7}], v[{C}:{C + 7}] neg_lo:[0,0,1]"
            result.append(_case(name, text, model, prepare))
    return result


def _float_model(inner, outer, integers: bool, high: bool, destination: int, constant: bool, neg_accumulator: bool = False):
    shift = 16 if high else 0

    def model(w: Wave) -> None:
        a, b = (np.vectorize(lambda x: to_float(int(x), inner))(elements(w, first, 8, 16)) for first in (A, B))
        product, magnitude = a @ b.T, np.abs(a) @ np.abs(b).T
        for i in range(8):
            for lane in range(LANES):
                c = 1.0 if constant else to_float(w.v[C + i][lane] >> shift & ((1 << outer.width) - 1), outer)
                if neg_accumulator:
                    c = -c
                row, column = 2 * i + lane // 16, lane % 16
                exact = float(product[row, column]) + c
                bits = from_float(exact, outer)
                old = w.v[destination + i][lane]
                w.v[destination + i][lane] = bits if outer.width == 32 else old & ~(0xFFFF << shift) | bits << shift
                if not integers:
                    # products are exact in f32; up to 17 roundings of partial sums, and one to the result's format
                    largest = float(magnitude[row, column]) + abs(c)
                    bound = 17 * largest * 2.0**-24 + abs(exact) * 2.0 ** -(outer.mantissa + 1)
                    if outer.width == 16:  # hardware may round every step to the narrow format
                        bound = 17 * largest * 2.0 ** -(outer.mantissa + 1)
                    w.loose[destination + i, lane] = [(shift, Bounded(outer, exact, bound))]

    def prepare(w: Wave, source: Source) -> None:
        limit = {sf.F16: 12, sf.BF16: 3}[inner if outer.width == 32 else outer]
        for register in range(8):
            for lane in range(16):
                for first in (A, B):
                    if integers:
                        values = [from_float(int(x), inner) for x in source.random.integers(-limit, limit + 1, 2)]
                    else:
                        values = [from_float(x, sf.F32) for x in source.random.standard_normal(2)]
                        values = [sf.convert(x, sf.F32, inner) for x in values]
                    w.v[first + register][lane] = values[0] | values[1] << 16
        repeat_halves(w, (A, 8), (B, 8))
        for i in range(8):
            for lane in range(LANES):
                x = float(source.random.integers(-100, 101)) if integers else float(source.random.standard_normal() * 4)
                bits = from_float(x, sf.F32) if outer.width == 32 else sf.convert(from_float(x, sf.F32), sf.F32, outer)
                other = int(source.random.integers(0, 1 << 16))
                w.v[C + i][lane] = bits if outer.width == 32 else (bits << 16 | other if high else other << 16 | bits)

    return model, prepare


def _case(name: str, text: str, model, prepare) -> Case:
    return Case(mnemonics=(name,), code=[text], model=model, registers=32, waves=2, prepare=prepare, full_exec=True)
