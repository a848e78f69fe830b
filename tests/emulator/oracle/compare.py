"""Compares what a kernel left in the registers with what the model says."""

from __future__ import annotations

import numpy as np

from . import softfloat as sf
from .case import Case, Observed
from .wave import Loose, Wave


def right(expected: int, seen: int, loose: list[tuple[int, Loose]], alternatives: list[int]) -> bool:
    """Whether the bits of a register are acceptable. `loose` lists (lowest bit, Loose) of the floats in it."""
    if expected == seen:
        return True
    if any(right(other, seen, loose, []) for other in alternatives):
        return True
    for low, entry in loose:
        f = entry.format
        mask = (1 << f.width) - 1
        a, b = expected >> low & mask, seen >> low & mask
        if entry.accepts(b) if hasattr(entry, "accepts") else _float_right(a, b, entry):
            seen = seen & ~(mask << low) | a << low
    return expected == seen


def _float_right(expected: int, seen: int, entry: Loose) -> bool:
    f = entry.format
    if sf.is_nan(expected, f) or sf.is_nan(seen, f):
        return sf.is_nan(expected, f) and sf.is_nan(seen, f) and (entry.any_nan or not sf.is_signalling(seen, f))
    if entry.flushes and sf.is_denormal(expected, f) and seen == expected & f.sign_bit:
        return True
    return sf.sign(expected, f) == sf.sign(seen, f) and abs(sf.order_key(expected, f) - sf.order_key(seen, f)) <= entry.ulps


def differences(case: Case, before: Wave, after: Wave, seen: Observed, memory: bytes) -> list[str]:
    """Readable differences between the model (`after`) and the emulator; empty if it is right."""
    found = []
    for register, lane in zip(*np.nonzero(np.array(after.v, dtype=np.uint32) != seen.v)):
        expected, actual = after.v[register][lane], int(seen.v[register][lane])
        loose, wide = _loose(after, register, lane)
        if wide:
            whole = after.v[wide - 1][lane] | after.v[wide][lane] << 32
            both = int(seen.v[wide - 1][lane]) | int(seen.v[wide][lane]) << 32
            if right(whole, both, loose, []):
                continue
        elif right(expected, actual, loose, after.alternatives.get((register, lane), [])):
            continue
        found.append(f"v{register} lane {lane}: {actual:#010x}, expected {expected:#010x} ({_context(case, before, lane)})")
    for register, (expected, actual) in enumerate(zip(after.s, seen.s)):
        if not right(expected, actual, after.loose.get(("s", register), []), after.alternatives.get(("s", register), [])):
            found.append(f"s{register}: {actual:#x}, expected {expected:#x} (s={[hex(x) for x in before.s]}, scc={before.scc})")
    for name in ("vcc", "exec", "m0", "scc"):
        expected, actual = getattr(after, name), getattr(seen, name)
        if expected != actual:
            lane = (expected ^ actual).bit_length() - 1
            lanes = f", highest lane {lane}: {_context(case, before, lane)}" if name in ("vcc", "exec") else ""
            found.append(f"{name}: {actual:#x}, expected {expected:#x} (before: {getattr(before, name):#x}, exec {before.exec:#x}{lanes})")
    if bytes(after.lds) != seen.lds:
        found.append(f"LDS differs at byte {_first_difference(after.lds, seen.lds)}")
    if bytes(after.memory) != memory:
        found.append(f"memory differs at byte {_first_difference(after.memory, memory)}")
    return found


def _loose(wave: Wave, register: int, lane: int) -> tuple[list, int]:
    """The tolerance of a register, and the number of the upper register if it is half of an f64."""
    here = wave.loose.get((register, lane), [])
    if here and here[0][1].format is sf.F64:
        return here, register + 1
    below = wave.loose.get((register - 1, lane), [])
    if below and below[0][1].format is sf.F64:
        return below, register
    return here, 0


def _context(case: Case, before: Wave, lane: int) -> str:
    registers = " ".join(f"v{n}={before.v[n][lane]:#x}" for n in range(min(case.registers, 10)))
    scalars = " ".join(f"s{n}={before.s[n]:#x}" for n in (4, 5, 6, 7)) if any("s" in line.split(" ", 1)[-1] for line in case.code) else ""
    return f"{registers} {scalars}".strip()


def _first_difference(a: bytes, b: bytes) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def predict(case: Case, waves: list[Wave]) -> list[Wave]:
    """The model's result for each wave."""
    result = []
    for wave in waves:
        after = wave.copy()
        case.model(after)
        result.append(after)
    return result
