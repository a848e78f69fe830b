"""Loads, stores and atomics of global memory, LDS and scratch, and scalar loads, modelled by hand.

Addresses are made by `prepare`: every lane gets a place of its own (16 bytes apart) where an order between lanes would matter.
"""

from __future__ import annotations

import functools
import re
import struct

from . import pcode
from .assembler import LDS_BYTES
from .case import Case
from .inputs import Source
from .values import Cell, Int, Register
from .wave import LANES, MASK32, Wave

MEMORY = 1024
LOADS = {"u8": (1, False), "i8": (1, True), "u16": (2, False), "i16": (2, True), "b32": (4, False), "b64": (8, False),
         "b96": (12, False), "b128": (16, False)}  # fmt: skip
STORES = {"b8": 1, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16}
D16_LOADS = {"u8": (1, False), "i8": (1, True), "b16": (2, False)}


def cases() -> list[Case]:
    return _global_and_flat() + _atomics() + _lds() + _lds_atomics() + _scalar_loads() + _scratch() + _flat_apertures() + _buffers()


def registers(first: int, count: int) -> str:
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def extend(value: int, size: int, signed: bool) -> int:
    if signed and value >> (8 * size - 1):
        value -= 1 << 8 * size
    return value & MASK32


def load(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def store(data: bytearray, at: int, size: int, value: int) -> None:
    data[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def vector(w: Wave, first: int, lane: int, dwords: int) -> int:
    return sum(w.v[first + n][lane] << 32 * n for n in range(dwords))


def set_vector(w: Wave, first: int, lane: int, dwords: int, value: int) -> None:
    for n in range(dwords):
        w.v[first + n][lane] = value >> 32 * n & MASK32


# --- where lanes point: v[2:3] is a 64-bit address, v2 an offset; s[4:5] a base -------------------------------------------

OFFSETS = (0, 16, -32, 400)


def slots(source: Source, count: int = 32) -> list[int]:
    return [int(x) * 16 for x in source.random.permutation(count)]


def point_with_vectors(w: Wave, source: Source, distance: int, unaligned: bool = False) -> None:
    """v[2:3] such that v[2:3] + distance is the lane's slot; lanes that are off point nowhere."""
    for lane, slot in enumerate(slots(source)):
        address = w.memory_base + slot - distance + (int(source.random.integers(0, 4)) if unaligned else 0)
        if not w.active(lane):
            address = 0x10
        w.v[2][lane], w.v[3][lane] = address & MASK32, address >> 32


def point_with_scalar(w: Wave, source: Source, distance: int) -> None:
    base = w.memory_base - 64
    w.s[4], w.s[5] = base & MASK32, base >> 32
    for lane, slot in enumerate(slots(source)):
        w.v[2][lane] = (slot + 64 - distance) & MASK32 if w.active(lane) else 0xFFFFFFF0


def place(w: Wave, lane: int, distance: int, scalar: bool) -> int:
    """The byte of w.memory that the lane addresses."""
    if scalar:
        return (w.s[4] | w.s[5] << 32) + w.v[2][lane] + distance - w.memory_base
    return (w.v[2][lane] | w.v[3][lane] << 32) + distance - w.memory_base


def _addressing(space: str) -> list[tuple[str, str, int, bool]]:
    """(address operand, text after the data, offset, scalar base) of each form of `space`."""
    result = []
    for offset in OFFSETS:
        if space == "flat" and offset < 0:
            continue
        suffix = f" offset:{offset}" if offset else ""
        result.append(("v[2:3]", ("" if space == "flat" else ", off") + suffix, offset, False))
        if space == "global":
            result.append(("v2", f", s[4:5]{suffix}", min(offset, 64) if offset > 64 else offset, True))
    return [(a, t.replace("offset:400", f"offset:{o}"), o, s) for a, t, o, s in result]


def _pointer(offset: int, scalar: bool):
    if scalar:
        return lambda w, source: point_with_scalar(w, source, offset)
    return lambda w, source: point_with_vectors(w, source, offset)


def _global_and_flat() -> list[Case]:
    result = []
    for space in ("global", "flat"):
        for address, after, offset, scalar in _addressing(space):
            options = {"memory": MEMORY, "prepare": _pointer(offset, scalar)}
            for kind, (size, signed) in LOADS.items():
                dwords = max(1, size // 4)

                def load_model(w: Wave, size=size, signed=signed, dwords=dwords, offset=offset, scalar=scalar) -> None:
                    values = {lane: load(w.memory, place(w, lane, offset, scalar), size) for lane in w.lanes()}
                    for lane, value in values.items():
                        set_vector(w, 4, lane, dwords, extend(value, size, signed) if size < 4 else value)

                name = f"{space}_load_{kind}"
                result.append(_case(name, f"{name} {registers(4, dwords)}, {address}{after}", load_model, **options))
            for kind, size in STORES.items():
                dwords = max(1, size // 4)

                def store_model(w: Wave, size=size, dwords=dwords, offset=offset, scalar=scalar) -> None:
                    for lane in w.lanes():
                        store(w.memory, place(w, lane, offset, scalar), size, vector(w, 4, lane, dwords))

                name = f"{space}_store_{kind}"
                result.append(_case(name, _store_text(name, address, registers(4, dwords), after), store_model, **options))
            for kind, (size, signed) in D16_LOADS.items():
                for high in (False, True):

                    def half_model(w: Wave, size=size, signed=signed, high=high, offset=offset, scalar=scalar) -> None:
                        for lane in w.lanes():
                            value = extend(load(w.memory, place(w, lane, offset, scalar), size), size, signed) & 0xFFFF
                            old = w.v[4][lane]
                            w.v[4][lane] = old & 0xFFFF | value << 16 if high else old & 0xFFFF0000 | value

                    name = f"{space}_load_d16{'_hi' if high else ''}_{kind}"
                    result.append(_case(name, f"{name} v4, {address}{after}", half_model, **options))
            for kind, size in (("b8", 1), ("b16", 2)):

                def high_store_model(w: Wave, size=size, offset=offset, scalar=scalar) -> None:
                    for lane in w.lanes():
                        store(w.memory, place(w, lane, offset, scalar), size, w.v[4][lane] >> 16)

                name = f"{space}_store_d16_hi_{kind}"
                result.append(_case(name, _store_text(name, address, "v4", after), high_store_model, **options))
        # a load over its own address, and an unaligned one

        def in_place(w: Wave) -> None:
            values = {lane: load(w.memory, place(w, lane, 0, False), 8) for lane in w.lanes()}
            for lane, value in values.items():
                set_vector(w, 2, lane, 2, value)

        off = "" if space == "flat" else ", off"
        options = {"memory": MEMORY, "prepare": lambda w, source: point_with_vectors(w, source, 0, unaligned=True)}
        result.append(_case(f"{space}_load_b64", f"{space}_load_b64 v[2:3], v[2:3]{off}", in_place, **options))
    return result


def _store_text(name: str, address: str, data: str, after: str) -> str:
    return f"{name} {address}, {data}{after}"


# --- atomics: their pseudo-code on a cell that stands for MEM[ADDR] --------------------------------------------------------


@functools.cache
def _atomic_function(encoding: str, name: str):
    text = pcode.texts()[encoding, name]
    text = text.replace("MEM[ADDR]", "S0").replace("RETURN_DATA", "D0").replace("DATA2", "S2").replace("DATA", "S1")
    generator = pcode.Generator(text)
    generator.statements()
    space = {"v": pcode.values, "sf": pcode.sf, "functions": pcode.functions.FUNCTIONS, "constants": {}}
    literals = "".join(f"{k} = {e}\n" for e, k in generator.literals.items())
    exec(f"{literals}def run(r):\n" + "\n".join(generator.lines), space)
    return space["run"]


def atomic(encoding: str, name: str, old: int, data: int, data2: int, width: int) -> tuple[int, int]:
    """(new contents of memory, returned value)."""
    wide = 2 * width if "cmpswap" in name else width
    cells = {"S0": Register(old, width), "S1": Cell(Int(data, wide)), "S2": Cell(Int(data2, width)), "D0": Register(0, width)}
    _atomic_function(encoding, name)(cells)
    return cells["S0"].bits, cells["D0"].bits


ATOMIC = re.compile(r"(swap|cmpswap|add|sub|min|max|and|or|xor|inc|dec)_(b|u|i|f)(32|64)$")


def _atomics() -> list[Case]:
    result = []
    for encoding, space in (("GLOBALOp", "global"), ("FLATOp", "flat")):
        for (where, name), _ in pcode.texts().items():
            if where != encoding or "_atomic_" not in name or not ATOMIC.search(name):
                continue
            width = int(name[-2:])
            dwords = width // 32
            data_dwords = dwords * (2 if "cmpswap" in name else 1)
            for returns in (False, True):
                for address, after, offset, scalar in _addressing(space)[:2]:

                    def model(
                        w: Wave, width=width, dwords=dwords, kind=(encoding, name, data_dwords, returns), where=(offset, scalar)
                    ) -> None:
                        encoding, name, count, returns = kind
                        for lane in w.lanes():
                            at = place(w, lane, *where)
                            old = load(w.memory, at, width // 8)
                            new, back = atomic(encoding, name, old, vector(w, 4, lane, count), 0, width)
                            store(w.memory, at, width // 8, new)
                            if returns:
                                set_vector(w, 0, lane, dwords, back)

                    text = f"{name} {registers(0, dwords) + ', ' if returns else ''}{address}, {registers(4, data_dwords)}{after}"
                    pointer = _pointer(offset, scalar)

                    def prepare(w: Wave, source: Source, pointer=pointer, name=name, width=width, where=(offset, scalar)) -> None:
                        pointer(w, source)
                        if "cmpswap" in name:  # half of the compares succeed
                            for lane in w.lanes()[::2]:
                                compared = vector(w, 4 + width // 32, lane, width // 32)
                                store(w.memory, place(w, lane, *where), width // 8, compared)

                    kinds = {4: ("f", 32)} if "_f32" in name else {4: ("bits", 32)}
                    result.append(_case(name, text + (" glc" if returns else ""), model, memory=MEMORY, prepare=prepare, vgprs=kinds,
                                        style="floats"))  # fmt: skip
    return [c for c in result if "_f32" not in c.mnemonics[0]] + [_float_atomic(c) for c in result if "_f32" in c.mnemonics[0]]


def _float_atomic(case: Case) -> Case:
    """Memory of a float atomic holds numbers."""
    inner = case.prepare

    def prepare(w: Wave, source: Source) -> None:
        inner(w, source)
        w.memory[:] = struct.pack(f"<{MEMORY // 4}I", *(int(x) for x in source.values(MEMORY // 4, "f", 32, "floats")))

    case.prepare = prepare
    return case


# --- LDS --------------------------------------------------------------------------------------------------------------------


def _lds_offsets(w: Wave, source: Source) -> None:
    for lane, slot in enumerate(slots(source, 32)):
        w.v[2][lane] = slot if w.active(lane) else 0xFFFFFF00


def _lds_paced(unit: int):
    """Addresses for the two-address forms: a multiple of the unit, 64 bytes a lane at most."""

    def prepare(w: Wave, source: Source) -> None:
        for lane, slot in enumerate(source.random.permutation(32)):
            w.v[2][lane] = int(slot) * unit if w.active(lane) else 0xFFFFFF00

    return prepare


def _lds() -> list[Case]:
    result = []
    for offset in (0, 4, 500):
        suffix = f" offset:{offset}" if offset else ""
        options = {"lds": True, "prepare": _lds_offsets}
        for kind, (size, signed) in LOADS.items():
            dwords = max(1, size // 4)
            aligned = offset // size * size if kind in ("b64", "b128") else offset
            text_offset = f" offset:{aligned}" if aligned else ""

            def load_model(w: Wave, size=size, signed=signed, dwords=dwords, offset=aligned) -> None:
                for lane in w.lanes():
                    value = load(w.lds, w.v[2][lane] + offset, size)
                    set_vector(w, 4, lane, dwords, extend(value, size, signed) if size < 4 else value)

            name = f"ds_load_{kind}"
            result.append(_case(name, f"{name} {registers(4, dwords)}, v2{text_offset}", load_model, **options))
        for kind, size in STORES.items():
            dwords = max(1, size // 4)
            aligned = offset // size * size if kind in ("b64", "b128") else offset
            text_offset = f" offset:{aligned}" if aligned else ""

            def store_model(w: Wave, size=size, dwords=dwords, offset=aligned) -> None:
                for lane in w.lanes():
                    store(w.lds, w.v[2][lane] + offset, size, vector(w, 4, lane, dwords))

            name = f"ds_store_{kind}"
            result.append(_case(name, f"{name} v2, {registers(4, dwords)}{text_offset}", store_model, **options))
        for kind, (size, signed) in {"u8": (1, False), "i8": (1, True), "u16": (2, False)}.items():
            for high in (False, True):

                def half_model(w: Wave, size=size, signed=signed, high=high, offset=offset) -> None:
                    for lane in w.lanes():
                        value = extend(load(w.lds, w.v[2][lane] + offset, size), size, signed) & 0xFFFF
                        old = w.v[4][lane]
                        w.v[4][lane] = old & 0xFFFF | value << 16 if high else old & 0xFFFF0000 | value

                name = f"ds_load_{kind}_d16{'_hi' if high else ''}"
                result.append(_case(name, f"{name} v4, v2{suffix}", half_model, **options))
        for kind, size in (("b8", 1), ("b16", 2)):

            def high_store_model(w: Wave, size=size, offset=offset) -> None:
                for lane in w.lanes():
                    store(w.lds, w.v[2][lane] + offset, size, w.v[4][lane] >> 16)

            name = f"ds_store_{kind}_d16_hi"
            result.append(_case(name, f"{name} v2, v4{suffix}", high_store_model, **options))
    for width in (32, 64):
        size, dwords = width // 8, width // 32
        for stride in ("", "_stride64"):
            unit = size * (64 if stride else 1)
            for first, second in ((0, 1), (1, 0), (3, 40)) if not stride else ((0, 1), (1, 0)):

                def load_two(w: Wave, size=size, dwords=dwords, places=(first * unit, second * unit)) -> None:
                    for lane in w.lanes():
                        values = [load(w.lds, w.v[2][lane] + at, size) for at in places]
                        for n, value in enumerate(values):
                            set_vector(w, 4 + n * dwords, lane, dwords, value)

                def store_two(w: Wave, size=size, dwords=dwords, places=(first * unit, second * unit)) -> None:
                    for lane in w.lanes():
                        for n, at in enumerate(places):
                            store(w.lds, w.v[2][lane] + at, size, vector(w, 4 + 2 * n, lane, dwords))

                offsets = (f" offset0:{first}" if first else "") + (f" offset1:{second}" if second else "")
                name = f"ds_load_2addr{stride}_b{width}"
                options = {"lds": True, "prepare": _lds_paced(size)}
                result.append(_case(name, f"{name} {registers(4, 2 * dwords)}, v2{offsets}", load_two, **options))
                name = f"ds_store_2addr{stride}_b{width}"
                # two lanes may write one place: keep the order out of it with lanes that are far apart

                def apart(w: Wave, source: Source, size=size, first=first, second=second, unit=unit) -> None:
                    distance = abs(first - second) * unit
                    taken: set[int] = set()
                    limit = LDS_BYTES - max(first, second) * unit - size
                    for lane in range(LANES):
                        w.v[2][lane] = 0xFFFFFF00
                        if not w.active(lane):
                            continue
                        for at in source.random.permutation(limit // size + 1):
                            at = int(at) * size
                            if not {at, at + distance} & taken:
                                taken |= {at, at + distance}
                                w.v[2][lane] = at
                                break
                        else:
                            w.exec &= ~(1 << lane)

                options = {"lds": True, "prepare": apart}
                data = f"{registers(4, dwords)}, {registers(6, dwords)}"
                result.append(_case(name, f"{name} v2, {data}{offsets}", store_two, **options))
    return result


LDS_ATOMIC = re.compile(r"ds_(add|sub|rsub|inc|dec|min|max|and|or|xor|storexchg|cmpstore)_(rtn_)?([buif])(32|64)$")


def _lds_atomics() -> list[Case]:
    result = []
    for where, name in pcode.texts():
        match = LDS_ATOMIC.match(name)
        if where != "DSOp" or not match:
            continue
        width = int(match.group(4))
        dwords = width // 32
        returns = bool(match.group(2))
        compare = "cmpstore" in name
        for offset in (0, 8):

            def model(w: Wave, name=name, width=width, dwords=dwords, returns=returns, offset=offset) -> None:
                for lane in w.lanes():
                    at = w.v[2][lane] + offset
                    new, back = atomic(
                        "DSOp", name, load(w.lds, at, width // 8), vector(w, 4, lane, dwords), vector(w, 6, lane, dwords), width
                    )
                    store(w.lds, at, width // 8, new)
                    if returns:
                        set_vector(w, 0, lane, dwords, back)

            data = registers(4, dwords) + (f", {registers(6, dwords)}" if compare else "")
            operands = f"{registers(0, dwords)}, v2, {data}" if returns else f"v2, {data}"

            is_float = match.group(3) == "f"

            def prepare(w: Wave, source: Source, compare=compare, width=width, offset=offset, is_float=is_float) -> None:
                if is_float:
                    values = source.values(LDS_BYTES // 4, "f", 32, "floats")
                    w.lds[:] = struct.pack(f"<{LDS_BYTES // 4}I", *(int(x) for x in values))
                _lds_offsets(w, source)
                if compare:  # half of the compares succeed
                    for lane in w.lanes()[::2]:
                        set_vector(w, 6, lane, width // 32, load(w.lds, w.v[2][lane] + offset, width // 8))

            kinds = {4: ("f", 32)} if is_float else {}
            suffix = f" offset:{offset}" if offset else ""
            result.append(_case(name, f"{name} {operands}{suffix}", model, lds=True, prepare=prepare, vgprs=kinds, style="floats"))
    return [c for c in result if not c.mnemonics[0].endswith("_f64")]


# --- scalar loads -------------------------------------------------------------------------------------------------------------


def _scalar_loads() -> list[Case]:
    result = []
    for bits in (32, 64, 128, 256, 512):
        count = bits // 32
        first = 8
        destination = f"s{first}" if count == 1 else f"s[{first}:{first + count - 1}]"
        for text, distance in (("0x0", lambda w: 0), ("0x40", lambda w: 64), ("-0x10", lambda w: -16), ("s6", lambda w: w.s[6]),
                               ("s6 offset:0x20", lambda w: w.s[6] + 32), ("null", lambda w: 0)):  # fmt: skip

            def model(w: Wave, first=first, count=count, distance=distance) -> None:
                at = (w.s[4] | w.s[5] << 32) + distance(w) - w.memory_base
                w.s[first : first + count] = struct.unpack_from(f"<{count}I", w.memory, at)

            def prepare(w: Wave, source: Source) -> None:
                base = w.memory_base + 64 * int(source.random.integers(1, 8))
                w.s[4], w.s[5] = base & MASK32, base >> 32
                w.s[6] = 4 * int(source.random.integers(0, 100))

            name = f"s_load_b{bits}"
            result.append(_case(name, f"{name} {destination}, s[4:5], {text}", model, memory=MEMORY, prepare=prepare, registers=1))
    return result


# --- scratch: what is stored comes back, a lane's own -------------------------------------------------------------------------


def _scratch() -> list[Case]:
    result = []
    for kind, size in STORES.items():
        dwords = max(1, size // 4)
        load_kind = {"b8": "u8", "b16": "u16"}.get(kind, kind)
        data, back = registers(4, dwords), registers(0, dwords)
        addresses = [
            ("off, {d}, off offset:32", "{d}, off, off offset:32"),
            ("off, {d}, s4", "{d}, off, s4"),
            ("v3, {d}, off offset:4", "{d}, v3, off offset:4"),
            ("v3, {d}, s4 offset:8", "{d}, v3, s4 offset:8"),
        ]
        for store_text, load_text in addresses:

            def model(w: Wave, size=size, dwords=dwords) -> None:
                for lane in w.lanes():
                    value = vector(w, 4, lane, dwords) & ((1 << 8 * size) - 1)
                    set_vector(w, 0, lane, dwords, value)

            def prepare(w: Wave, source: Source) -> None:
                w.s[4] = 16 * int(source.random.integers(0, 8))
                for lane in range(LANES):
                    w.v[3][lane] = 16 * int(source.random.integers(0, 8))

            code = [f"scratch_store_{kind} {store_text.format(d=data)}", "s_waitcnt_vscnt null, 0x0",
                    f"scratch_load_{load_kind} {load_text.format(d=back)}"]  # fmt: skip
            result.append(Case((f"scratch_store_{kind}", f"scratch_load_{load_kind}"), code, model, waves=4, scratch=512, prepare=prepare))
    for kind in ("i8", "i16"):
        size = int(kind[1:]) // 8

        def signed_model(w: Wave, size=size) -> None:
            for lane in w.lanes():
                w.v[0][lane] = extend(w.v[4][lane] & ((1 << 8 * size) - 1), size, True)

        code = ["scratch_store_b32 off, v4, off offset:16", f"scratch_load_{kind} v0, off, off offset:16"]
        result.append(Case((f"scratch_load_{kind}",), code, signed_model, waves=3, scratch=512))
    for kind, (size, signed) in D16_LOADS.items():
        for high in (False, True):

            def half_model(w: Wave, size=size, signed=signed, high=high) -> None:
                for lane in w.lanes():
                    value = extend(w.v[4][lane] & ((1 << 8 * size) - 1), size, signed) & 0xFFFF
                    old = w.v[0][lane]
                    w.v[0][lane] = old & 0xFFFF | value << 16 if high else old & 0xFFFF0000 | value

            name = f"scratch_load_d16{'_hi' if high else ''}_{kind}"
            code = ["scratch_store_b32 off, v4, off offset:16", f"{name} v0, off, off offset:16"]
            result.append(Case((name,), code, half_model, waves=3, scratch=512))
    for kind, size in (("b8", 1), ("b16", 2)):

        def high_model(w: Wave, size=size) -> None:
            mask = (1 << 8 * size) - 1
            for lane in w.lanes():
                w.v[0][lane] = w.v[5][lane] & ~mask & MASK32 | w.v[4][lane] >> 16 & mask

        name = f"scratch_store_d16_hi_{kind}"
        code = ["scratch_store_b32 off, v5, off offset:16", f"{name} off, v4, off offset:16", "scratch_load_b32 v0, off, off offset:16"]
        result.append(Case((name,), code, high_model, waves=3, scratch=512))
    return result


# --- flat addresses that lie in LDS or scratch ----------------------------------------------------------------------------------


def _flat_apertures() -> list[Case]:
    def lds_load(w: Wave) -> None:
        for lane in w.lanes():
            set_vector(w, 4, lane, 2, load(w.lds, w.v[2][lane], 8))

    def lds_store(w: Wave) -> None:
        for lane in w.lanes():
            store(w.lds, w.v[2][lane], 4, w.v[4][lane])

    def hide_aperture(model):
        def run(w: Wave) -> None:
            model(w)
            for lane in w.lanes():
                w.v[3][lane] = 0
            w.s[14] = w.s[15] = 0

        return run

    enter = ["s_mov_b64 s[14:15], src_shared_base", "v_mov_b32_e32 v3, s15"]
    leave = ["s_waitcnt vmcnt(0) lgkmcnt(0)", "v_mov_b32_e32 v3, 0", "s_mov_b64 s[14:15], 0"]
    result = [
        Case(("flat_load_b64",), enter + ["flat_load_b64 v[4:5], v[2:3]"] + leave, hide_aperture(lds_load), lds=True, prepare=_lds_offsets),
        Case(("flat_store_b32",), enter + ["flat_store_b32 v[2:3], v4"] + leave, hide_aperture(lds_store), lds=True, prepare=_lds_offsets),
    ]

    def scratch(w: Wave) -> None:
        for lane in w.lanes():
            w.v[0][lane] = w.v[4][lane]
            w.v[3][lane] = 0
        w.s[14] = w.s[15] = 0

    def small(w: Wave, source: Source) -> None:
        for lane in range(LANES):
            w.v[2][lane] = 4 * int(source.random.integers(0, 64))

    enter = ["s_mov_b64 s[14:15], src_private_base", "v_mov_b32_e32 v3, s15"]
    code = enter + ["flat_store_b32 v[2:3], v4", "s_waitcnt_vscnt null, 0x0", "scratch_load_b32 v0, v2, off"] + leave
    result.append(Case(("flat_store_b32", "scratch_load_b32"), code, scratch, scratch=512, prepare=small))
    code = enter + ["scratch_store_b32 v2, v4, off", "s_waitcnt_vscnt null, 0x0", "flat_load_b32 v0, v[2:3]"] + leave
    result.append(Case(("flat_load_b32", "scratch_store_b32"), code, scratch, scratch=512, prepare=small))
    return result


# --- buffers: a descriptor in s[4:7] over the wave's memory, offsets beyond its size read 0 and are not written ------------------


def _buffers() -> list[Case]:
    records = 768

    def describe(w: Wave, source: Source) -> None:
        w.s[4] = w.memory_base & MASK32
        w.s[5] = w.memory_base >> 32 & 0xFFFF  # stride 0
        w.s[6] = records
        w.s[7] = 0x31016FAC  # raw buffer: OOB_SELECT 3
        w.s[12] = 32
        for lane, slot in enumerate(slots(source, 52)[:LANES]):
            w.v[2][lane] = slot

    def at(w: Wave, lane: int, offset: int, offen: bool) -> int:
        return (w.v[2][lane] if offen else 0) + offset

    result = []
    for kind, (size, signed) in LOADS.items():
        dwords = max(1, size // 4)
        for operands, extra, offen in (
            ("v2, s[4:7], 0 offen", 0, True),
            ("v2, s[4:7], s12 offen offset:16", 48, True),
            ("off, s[4:7], 0 offset:64", 64, False),
        ):

            def load_model(w: Wave, size=size, signed=signed, dwords=dwords, extra=extra, offen=offen) -> None:
                for lane in w.lanes():
                    where = at(w, lane, extra, offen)
                    value = load(w.memory, where, size) if where < records else 0
                    set_vector(w, 4, lane, dwords, extend(value, size, signed) if size < 4 else value)

            name = f"buffer_load_{kind}"
            result.append(
                _case(name, f"{name} {registers(4, dwords)}, {operands}", load_model, memory=MEMORY, prepare=_inside(describe, records))
            )
    for kind, size in STORES.items():
        dwords = max(1, size // 4)

        def store_model(w: Wave, size=size, dwords=dwords) -> None:
            for lane in w.lanes():
                where = at(w, lane, 16, True)
                if where < records:
                    store(w.memory, where, size, vector(w, 4, lane, dwords))

        name = f"buffer_store_{kind}"
        text = f"{name} {registers(4, dwords)}, v2, s[4:7], 0 offen offset:16"
        result.append(_case(name, text, store_model, memory=MEMORY, prepare=_inside(describe, records)))
    return result


def _inside(describe, records: int):
    """Lanes are inside the buffer or wholly outside: an access across its end is not pinned."""

    def prepare(w: Wave, source: Source) -> None:
        describe(w, source)
        for lane in range(LANES):
            if w.v[2][lane] + 48 + 16 > records:
                w.v[2][lane] = 0x10000

    return prepare


def _case(mnemonic: str, text: str, model, **options) -> Case:
    return Case(mnemonics=(mnemonic,), code=[text], model=model, **({"waves": 3} | options))
