"""Sequences that compilers emit, which must give the IEEE result: what the single instructions' documents leave open must fit together."""

from __future__ import annotations

from . import softfloat as sf
from .case import Case
from .wave import MASK32, Loose, Wave


def cases() -> list[Case]:
    return [_division(sf.F32), _division(sf.F64)]


def _division(f: sf.Format) -> Case:
    """v0 = v2 / v4 as LLVM divides, correctly rounded, with denormals and overflow, over the whole range."""
    t, wide = f.name, f is sf.F64

    def r(n: int) -> str:
        return f"v[{n}:{n + 1}]" if wide else f"v{n}"

    result, numerator, denominator, d, n, reciprocal, error, q = (r(2 * k) for k in range(8))
    code = [
        f"v_div_scale_{t} {d}, null, {denominator}, {denominator}, {numerator}",
        f"v_div_scale_{t} {n}, vcc_lo, {numerator}, {denominator}, {numerator}",
        f"v_rcp_{t} {reciprocal}, {d}",
        f"v_fma_{t} {error}, -{d}, {reciprocal}, 1.0",
        f"v_fma_{t} {reciprocal}, {error}, {reciprocal}, {reciprocal}",
        f"v_fma_{t} {error}, -{d}, {reciprocal}, 1.0",
        f"v_fma_{t} {reciprocal}, {error}, {reciprocal}, {reciprocal}",
        f"v_mul_{t} {q}, {n}, {reciprocal}",
        f"v_fma_{t} {error}, -{d}, {q}, {n}",
        f"v_fma_{t} {q}, {error}, {reciprocal}, {q}",
        f"v_fma_{t} {error}, -{d}, {q}, {n}",
        f"v_div_fmas_{t} {result}, {error}, {reciprocal}, {q}",
        f"v_div_fixup_{t} {result}, {result}, {denominator}, {numerator}",
    ]
    code += [f"v_mov_b32_e32 v{k}, 0" for k in range(6, 16)] + ["s_mov_b32 vcc_lo, 0"]

    def model(w: Wave) -> None:
        for lane in w.lanes():
            a, b = (w.v[k][lane] | (w.v[k + 1][lane] << 32 if wide else 0) for k in (2, 4))
            quotient = sf.divide(a, b, f)
            w.v[0][lane] = quotient & MASK32
            if wide:
                w.v[1][lane] = quotient >> 32
            w.loose[0, lane] = [(0, Loose(f))]
            for k in range(6, 16):
                w.v[k][lane] = 0
        w.vcc = 0

    kinds = {2: ("f", f.width), 4: ("f", f.width)}
    names = tuple(f"v_{name}_{t}" for name in ("div_fixup", "div_scale", "div_fmas", "rcp"))
    return Case(mnemonics=names, code=code, model=model, registers=16, waves=60, vgprs=kinds)
