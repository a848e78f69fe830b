"""The oracle itself, against facts worked out by hand and against numpy's arithmetic."""

import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import functions, pcode
from oracle import softfloat as sf
from oracle.lanes import Dpp
from oracle.models_crosslane import swizzle_source
from oracle.values import Cell, Float, Int, Register

settings.register_profile("no deadline", deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is not a failure
settings.load_profile("no deadline")

FORMATS = {sf.F16: np.float16, sf.F32: np.float32, sf.F64: np.float64}


def f32(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def f16(value: float) -> int:
    return int(np.float16(value).view(np.uint16))


def result(mnemonic: str, *sources: int, d0: int = 0, width: int = 32, **cells) -> int:
    """D0 after `mnemonic` ran on 32-bit sources (or (value, width) pairs)."""
    registers = {f"S{n}": Cell(Int(*(s if isinstance(s, tuple) else (s, 32)))) for n, s in enumerate(sources)}
    registers |= {"D0": Register(d0, width), "D1": Register(0, 32), "SCC": Register(0, 1), "VCC": Register(0, 64), "laneId": 0}
    registers |= {name: Cell(value) for name, value in cells.items()}
    pcode.run(mnemonic, registers)
    return registers["D0"].bits


NAN, INF = 0x7FC00000, 0x7F800000


@pytest.mark.parametrize(
    ("mnemonic", "sources", "expected"),
    [
        ("v_add_f32", (f32(1.5), f32(2.25)), f32(3.75)),
        ("v_add_f32", (f32(1.0), f32(-1.0)), f32(0.0)),
        ("v_add_f32", (0x80000000, 0x80000000), 0x80000000),
        ("v_fma_f32", (0x3F800001, 0x3F800001, 0xBF800002), 0x28800000),  # (1 + 2^-23)^2 - (1 + 2^-22) = 2^-46
        ("v_min_f32", (0x80000000, 0), 0x80000000),  # -0 < +0
        ("v_max_f32", (0x80000000, 0), 0),
        ("v_min_f32", (NAN, f32(3)), f32(3)),
        ("v_max_f32", (f32(3), NAN), f32(3)),
        ("v_min_f32", (0x7F800001, f32(3)), 0x7FC00001),  # a signalling NaN comes out quiet
        ("v_med3_f32", (f32(5), f32(-1), f32(2)), f32(2)),
        ("v_med3_f32", (f32(-7), f32(9), f32(9)), f32(9)),
        ("v_med3_i32", (5, 0xFFFFFFFF, 2), 2),
        ("v_cvt_i32_f32", (f32(-2.9),), 0xFFFFFFFE),
        ("v_cvt_i32_f32", (f32(3e9),), 0x7FFFFFFF),
        ("v_cvt_i32_f32", (f32(-3e9),), 0x80000000),
        ("v_cvt_i32_f32", (NAN,), 0),
        ("v_cvt_u32_f32", (f32(-1.0),), 0),
        ("v_cvt_u32_f32", (INF,), 0xFFFFFFFF),
        ("v_cvt_f16_f32", (f32(65520.0),), 0x7C00),  # rounds to infinity
        ("v_cvt_f16_f32", (f32(65519.0),), 0x7BFF),
        ("v_cvt_f16_f32", (f32(2.0**-25),), 0),  # a tie with zero, which is even
        ("v_cvt_f16_f32", (f32(1.0 + 2.0**-11),), 0x3C00),  # tie to even
        ("v_cvt_pk_rtz_f16_f32", (f32(65535.0), f32(-1.9999)), 0xBFFF7BFF),
        ("v_cvt_f32_ubyte2", (0x00AB0000,), f32(171.0)),
        ("v_perm_b32", (0x03020100, 0x07060504, 0x00010203), 0x04050607),  # bytes 0-3 are S1's, 4-7 S0's
        ("v_perm_b32", (0x03020180, 0x07060504, 0x0C0D0407), 0x00FF8003),
        ("v_perm_b32", (0x00800000, 0x80000000, 0x0B0A0908), 0x0000FF00),  # the signs of bytes 7, 5, 3, 1
        ("v_bfe_i32", (0x000000F0, 4, 4), 0xFFFFFFFF),
        ("v_bfe_u32", (0x000000F0, 4, 4), 0x0000000F),
        ("v_bfe_u32", (0xFFFFFFFF, 4, 0), 0),
        ("v_alignbit_b32", (0x00000001, 0x80000000, 31), 0x00000003),
        ("v_mad_u32_u24", (0xFF000002, 3, 4), 10),  # the top bytes do not count
        ("v_mul_hi_u32", (0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFE),
        ("v_mul_hi_i32", (0xFFFFFFFF, 2), 0xFFFFFFFF),
        ("v_lshlrev_b32", (33, 1), 2),  # the count is taken modulo 32
        ("v_ashrrev_i32", (4, 0x80000000), 0xF8000000),
        ("v_sad_u8", (0x010203FF, 0x04030200, 10), 10 + 3 + 1 + 1 + 255),
        ("v_ldexp_f32", (f32(1.5), 0xFFFFFFFF), f32(0.75)),
        ("v_ldexp_f32", (f32(1.0), 200), INF),
        ("v_ldexp_f32", (f32(2.0**-100), 200), f32(2.0**100)),  # though 2^200 is no f32
        ("v_clz_i32_u32", (0x00010000,), 15),
        ("v_clz_i32_u32", (0,), 0xFFFFFFFF),
        ("v_bfrev_b32", (0x00000003,), 0xC0000000),
        ("v_bcnt_u32_b32", (0xF0F0, 5), 13),
        ("v_xor3_b32", (1, 2, 4), 7),
        ("v_lshl_add_u32", (3, 4, 5), 53),
        ("v_pk_fma_f16", (f16(2) << 16 | f16(3), f16(5) << 16 | f16(7), f16(1) << 16 | f16(0.5)), f16(11) << 16 | f16(21.5)),
        ("v_dot2_f32_f16", (f16(2) << 16 | f16(3), f16(5) << 16 | f16(7), f32(0.25)), f32(31.25)),
        ("v_dot4_u32_u8", (0x01020304, 0x05060708, 1), 1 + 5 + 12 + 21 + 32),
        ("v_trunc_f32", (f32(-1.9),), f32(-1.0)),
        ("v_floor_f32", (f32(-1.1),), f32(-2.0)),
        ("v_ceil_f32", (f32(-0.5),), 0x80000000),
        ("v_sub_nc_u32", (1, 2), 0xFFFFFFFF),
        ("s_bfe_i32", (0x0F00, 0x00040008), 0xFFFFFFFF),
        ("s_absdiff_i32", (3, 0xFFFFFFFE), 5),
        ("s_pack_lh_b32_b16", (0x11112222, 0x33334444), 0x33332222),
    ],
)
def test_fact(mnemonic, sources, expected):
    assert result(mnemonic, *sources) == expected


def test_dot4_signs():
    bits, ones = 0xFF010203, 0x01010101
    assert result("v_dot4_i32_iu8", bits, ones, 0, NEG=Int(3, 3)) == (-1 + 1 + 2 + 3)
    assert result("v_dot4_i32_iu8", bits, ones, 0, NEG=Int(0, 3)) == 255 + 1 + 2 + 3
    assert result("v_dot4_i32_iu8", ones, bits, 0, NEG=Int(2, 3)) == 5


def test_sixteen_bit_results_keep_the_other_half():
    assert result("v_cvt_f16_f32", f32(1.0), d0=0xABCD0000) == 0xABCD3C00
    assert (
        result("v_fma_mixhi_f16", f32(1.0), f32(2.0), f32(0.5), d0=0x1234ABCD, OPSEL=Int(0, 3), OPSEL_HI=Int(0, 3))
        == f16(2.5) << 16 | 0xABCD
    )


def test_mad_u64_carries():
    registers = {"S0": Cell(Int(0xFFFFFFFF, 32)), "S1": Cell(Int(0xFFFFFFFF, 32)), "S2": Cell(Int((1 << 64) - 1, 64)),
                 "D0": Register(0, 64), "D1": Register(0, 32)}  # fmt: skip
    pcode.run("v_mad_u64_u32", registers)
    total = 0xFFFFFFFF * 0xFFFFFFFF + (1 << 64) - 1
    assert (registers["D1"].bits & 1) << 64 | registers["D0"].bits == total


def test_cmp_class():
    classes = {0x7F800001: 0, NAN: 1, 0xFF800000: 2, f32(-1): 3, 0x80000001: 4, 0x80000000: 5, 0: 6, 1: 7, f32(1): 8, INF: 9}
    for bits, number in classes.items():
        for mask in range(10):
            assert result("v_cmp_class_f32", bits, 1 << mask, width=64) & 1 == (mask == number)


def test_rndne_of_the_pseudo_code_is_replaced():
    """floor(x + 0.5) of an odd number above 2^23 is wrong; the model must not take it."""
    from oracle.vector import OVERRIDES

    cells = {"S0": Cell(Int(f32(8388609.0), 32)), "D0": Register(0, 32)}
    OVERRIDES["v_rndne_f32"](cells)
    assert cells["D0"].bits == f32(8388609.0)


def test_dpp_sources():
    assert [Dpp("row_shr:1").source(lane) for lane in (0, 1, 15, 16, 17)] == [None, 0, 14, None, 16]
    assert [Dpp("row_shl:2").source(lane) for lane in (0, 13, 14)] == [2, 15, None]
    assert [Dpp("row_ror:1").source(lane) for lane in (0, 1, 16)] == [15, 0, 31]
    assert [Dpp("row_half_mirror").source(lane) for lane in (0, 7, 8, 17)] == [7, 0, 15, 22]
    assert [Dpp("row_xmask:3").source(lane) for lane in (0, 5, 16)] == [3, 6, 19]
    assert [Dpp("quad_perm:[3,2,1,0]").source(lane) for lane in (0, 1, 30)] == [3, 2, 29]


def test_swizzle_sources():
    assert [swizzle_source(0x8000 | 0b00011011, lane) for lane in range(4)] == [3, 2, 1, 0]
    assert swizzle_source(0x041F, 6) == 7  # xor 1
    assert swizzle_source(0x0000, 31) == 0


# --- the soft floats against the host's, which numpy rounds as IEEE says --------------------------------------------------


def close(ours: int, theirs, f: sf.Format) -> bool:
    bits = int(theirs.view({16: np.uint16, 32: np.uint32, 64: np.uint64}[f.width]))
    return sf.is_nan(ours, f) and sf.is_nan(bits, f) or ours == bits


def number(bits: int, f: sf.Format):
    return np.array([bits], {16: np.uint16, 32: np.uint32, 64: np.uint64}[f.width]).view(FORMATS[f])[0]


@pytest.mark.parametrize("f", FORMATS, ids=lambda f: f.name)
@given(data=st.data())
def test_arithmetic(f, data):
    bits = st.integers(0, (1 << f.width) - 1) | st.integers(f.bias - 3, f.bias + 3).map(lambda e: e << f.mantissa)
    a, b = data.draw(bits), data.draw(bits)
    x, y = number(a, f), number(b, f)
    with np.errstate(all="ignore"):
        assert close(sf.add(a, b, f), x + y, f)
        assert close(sf.multiply(a, b, f), x * y, f)
        assert close(sf.divide(a, b, f), x / y, f)
        assert close(sf.square_root(a, f), np.sqrt(x), f)
        assert close(sf.truncate(a, f), np.trunc(x), f)
        assert close(sf.floor(a, f), np.floor(x), f)
        assert close(sf.round_half_even(a, f), np.rint(x), f)
        if f is not sf.F64:  # the product is exact in double; a sum that is not exact in long double is left out
            wide = np.longdouble(x) * np.longdouble(y)
            assert close(sf.fma(a, b, 0, f), (wide + 0).astype(FORMATS[f]), f) or sf.is_zero(sf.fma(a, b, 0, f), f)


@given(st.integers(0, (1 << 32) - 1), st.sampled_from([sf.F16, sf.F64]))
def test_conversion_of_f32(bits, target):
    with np.errstate(all="ignore"):
        assert close(sf.convert(bits, sf.F32, target), number(bits, sf.F32).astype(FORMATS[target]), target)


@given(st.integers(0, (1 << 64) - 1))
def test_conversion_of_f64(bits):
    with np.errstate(all="ignore"):
        assert close(sf.convert(bits, sf.F64, sf.F32), number(bits, sf.F64).astype(np.float32), sf.F32)


@given(st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1))
def test_fma_is_rounded_once(a, b, c):
    """Against rational arithmetic."""
    from fractions import Fraction

    f = sf.F32
    if any(sf.exponent_field(x, f) == f.exponent_max for x in (a, b, c)):
        return
    exact = sum(Fraction(m) * Fraction(2) ** e for m, e in [_product(sf.decode(a, f), sf.decode(b, f)), sf.decode(c, f)])
    rounded = sf.fma(a, b, c, f)
    if sf.is_infinite(rounded, f):
        assert abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103
        return
    value = Fraction(*map(int, number(rounded, f).astype(np.float64).as_integer_ratio()))
    for neighbour in (rounded - 1, rounded + 1):
        if not sf.is_nan(neighbour & 0xFFFFFFFF, f) and not sf.is_infinite(neighbour & 0xFFFFFFFF, f) and rounded & 0x7FFFFFFF:
            other = Fraction(*map(int, number(neighbour & 0xFFFFFFFF, f).astype(np.float64).as_integer_ratio()))
            assert abs(exact - value) <= abs(exact - other)


def _product(x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int]:
    return x[0] * y[0], x[1] + y[1]


@pytest.mark.parametrize("x", [0.0, 0.125, 0.25, 0.5, -0.75, 1000.25, 0.1, -3.7, 1e-9])
def test_turns(x):
    bits = f32(x)
    exact = float(np.float32(x))
    for function, reference in ((functions.sin_turns, np.sin), (functions.cos_turns, np.cos)):
        ours = float(number(function(Float(bits, sf.F32)).bits, sf.F32))
        assert ours == pytest.approx(reference(2 * np.pi * (exact - np.floor(exact))), abs=1e-6)
    assert functions.sin_turns(Float(f32(0.5), sf.F32)).bits & 0x7FFFFFFF == 0
    assert functions.cos_turns(Float(f32(0.25), sf.F32)).bits & 0x7FFFFFFF == 0


def test_every_alu_instruction_has_readable_pseudo_code():
    """What is not compiled is prose, and needs a model by hand: this pins the list."""
    unreadable = set()
    for encoding, name in pcode.texts():
        if encoding in pcode.ENCODINGS:
            try:
                pcode.source_of(name)
            except pcode.PseudoCodeError:
                unreadable.add(name)
    families = ("wmma", "permlane", "readlane", "writelane", "readfirstlane", "movrel", "swaprel", "getpc", "setpc", "swappc", "rfe",
                "call", "getreg", "setreg", "version", "waitcnt", "sin_", "cos_", "frexp_mant", "trig_preop")  # fmt: skip
    assert not [name for name in unreadable if not any(part in name for part in families)]
