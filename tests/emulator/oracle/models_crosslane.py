"""Instructions that move data between lanes or between vector and scalar registers, modelled by hand."""

from __future__ import annotations

from .case import Case
from .inputs import Source
from .wave import LANES, Wave

PERMUTE_SELECTS = [(0x76543210, 0xFEDCBA98), (0x00000000, 0xFFFFFFFF), (0x01234567, 0x89ABCDEF), (0x13570246, 0xECA8FDB9)]


def cases() -> list[Case]:
    return _read_write_lane() + _permlane() + _permute() + _swizzle() + _swap() + _movrel()


def _read_write_lane() -> list[Case]:
    result = []

    def readfirst(source: int, destination: str):
        def model(w: Wave) -> None:
            lane = (w.exec & -w.exec).bit_length() - 1 if w.exec else 0  # lane 0 if all are off
            _set(w, destination, w.v[source][lane])

        return model

    for destination in ("s3", "vcc_lo", "m0"):
        result.append(_case("v_readfirstlane_b32", f"v_readfirstlane_b32 {destination}, v2", readfirst(2, destination), waves=8))

    def read(destination: str, lane_of):
        def model(w: Wave) -> None:
            _set(w, destination, w.v[2][lane_of(w) & 31])  # EXEC does not matter

        return model

    result.append(_case("v_readlane_b32", "v_readlane_b32 s3, v2, s4", read("s3", lambda w: w.s[4]), waves=8))
    result.append(_case("v_readlane_b32", "v_readlane_b32 vcc_lo, v2, 17", read("vcc_lo", lambda w: 17)))
    result.append(_case("v_readlane_b32", "v_readlane_b32 s4, v2, m0", read("s4", lambda w: w.m0)))

    # VCC_HI is an ordinary SGPR in wave32, and the upper half of a 64-bit VCC
    def upper(w: Wave) -> None:
        w.s[3], w.s[8], w.s[9] = w.v[2][25], w.vcc, w.v[2][25]

    code = ["v_readlane_b32 vcc_hi, v2, 25", "s_mov_b32 s3, vcc_hi", "s_mov_b64 s[8:9], vcc"]
    result.append(Case(("v_readlane_b32", "s_mov_b64"), code, upper))

    def write(value_of, lane_of):
        def model(w: Wave) -> None:
            w.v[2][lane_of(w) & 31] = value_of(w)

        return model

    result.append(_case("v_writelane_b32", "v_writelane_b32 v2, s4, s6", write(lambda w: w.s[4], lambda w: w.s[6]), waves=8))
    result.append(_case("v_writelane_b32", "v_writelane_b32 v2, -3, 31", write(lambda w: 0xFFFFFFFD, lambda w: 31)))
    result.append(_case("v_writelane_b32", "v_writelane_b32 v2, vcc_lo, m0", write(lambda w: w.vcc, lambda w: w.m0)))
    return result


def _permlane() -> list[Case]:
    result = []
    for mnemonic, flip in (("v_permlane16_b32", 0), ("v_permlanex16_b32", 16)):

        def model_of(destination: int, source: int, selects_of, flip: int = flip, fetch_inactive: bool = False, bound: bool = False):
            def model(w: Wave) -> None:
                low, high = selects_of(w)
                selects = low | high << 32
                old = list(w.v[source])
                for lane in w.lanes():
                    where = (lane & 16 ^ flip) + (selects >> 4 * (lane & 15) & 15)
                    if w.active(where) or fetch_inactive:
                        w.v[destination][lane] = old[where]
                    elif bound:
                        w.v[destination][lane] = 0

            return model

        # The documents do not say what an inactive source gives without fetch-inactive; DPP's rule is guessed elsewhere, so with all
        # lanes on, or with op_sel:[1,0] (fetch inactive), nothing is guessed.
        for low, high in PERMUTE_SELECTS:

            def given(w: Wave, low: int = low, high: int = high) -> tuple[int, int]:
                return low, high

            def fill(w: Wave, source: Source, low: int = low, high: int = high) -> None:
                w.s[4], w.s[6] = low, high

            text = f"{mnemonic} v0, v2, s4, s6"
            result.append(_case(mnemonic, text, model_of(0, 2, given), prepare=fill, full_exec=True))
            result.append(_case(mnemonic, text + " op_sel:[1,0]", model_of(0, 2, given, fetch_inactive=True), prepare=fill))
        scalars = lambda w: (w.s[4], w.s[6])  # noqa: E731
        result.append(_case(mnemonic, f"{mnemonic} v2, v2, s4, s6", model_of(2, 2, scalars), full_exec=True))  # in place
        result.append(_case(mnemonic, f"{mnemonic} v2, v2, s4, s6 op_sel:[1,0]", model_of(2, 2, scalars, fetch_inactive=True)))
        literal = lambda w: (0x76543210, 0x76543210)  # noqa: E731
        result.append(_case(mnemonic, f"{mnemonic} v0, v2, 0x76543210, 0x76543210", model_of(0, 2, literal), full_exec=True))
        inline = lambda w: (0xFFFFFFFF, 0)  # noqa: E731
        result.append(_case(mnemonic, f"{mnemonic} v0, v2, -1, 0 op_sel:[1,1]", model_of(0, 2, inline, fetch_inactive=True)))
    result.append(_case("v_permlane64_b32", "v_permlane64_b32 v0, v2", lambda w: None))  # does nothing in wave32
    return result


def _permute() -> list[Case]:
    result = []
    for destination, address, data, offset in ((0, 2, 4, 0), (2, 2, 4, 0), (4, 2, 4, 64), (2, 2, 2, 4), (0, 4, 4, 124)):

        def gather(w: Wave, destination=destination, address=address, data=data, offset=offset) -> None:
            source, where = list(w.v[data]), list(w.v[address])
            for lane in w.lanes():
                other = (where[lane] + offset) // 4 % 32
                w.v[destination][lane] = source[other] if w.active(other) else 0

        def scatter(w: Wave, destination=destination, address=address, data=data, offset=offset) -> None:
            source, where = list(w.v[data]), list(w.v[address])
            moved = [0] * LANES
            for lane in w.lanes():  # the highest lane wins
                moved[(where[lane] + offset) // 4 % 32] = source[lane]
            for lane in w.lanes():
                w.v[destination][lane] = moved[lane]

        suffix = f" offset:{offset}" if offset else ""
        operands = f"v{destination}, v{address}, v{data}{suffix}"
        result.append(_case("ds_bpermute_b32", f"ds_bpermute_b32 {operands}", gather, waves=6))
        result.append(_case("ds_permute_b32", f"ds_permute_b32 {operands}", scatter, waves=6))
    return result


def swizzle_source(offset: int, lane: int) -> int:
    """The lane that ds_swizzle reads: quad mode (bit 15), or bit masks and/or/xor within 32 lanes."""
    if offset & 0x8000:
        return lane & ~3 | offset >> 2 * (lane & 3) & 3
    keep, insert, flip = offset & 31, offset >> 5 & 31, offset >> 10 & 31
    return (lane & keep | insert) ^ flip


def _swizzle() -> list[Case]:
    result = []
    for offset in (0x8000 | 0b10110001, 0x8000 | 0b00011011, 0x1F, 0x041F, 0x401F, 0x7C1F, 0x0018, 0x03E0, 0x2AB5):

        def model(w: Wave, offset: int = offset) -> None:
            source = list(w.v[2])
            for lane in w.lanes():
                other = swizzle_source(offset, lane)
                w.v[0][lane] = source[other] if w.active(other) else 0

        result.append(_case("ds_swizzle_b32", f"ds_swizzle_b32 v0, v2 offset:{offset:#x}", model))
    return result


def _swap() -> list[Case]:
    def swap(w: Wave) -> None:
        for lane in w.lanes():
            w.v[0][lane], w.v[2][lane] = w.v[2][lane], w.v[0][lane]

    return [_case("v_swap_b32", "v_swap_b32 v0, v2", swap)]


def _movrel() -> list[Case]:
    def small(w: Wave, source: Source) -> None:
        w.m0 = int(source.random.integers(0, 5))

    def read(w: Wave) -> None:
        for lane in w.lanes():
            w.v[0][lane] = w.v[2 + w.m0][lane]

    def write(w: Wave) -> None:
        for lane in w.lanes():
            w.v[2 + w.m0][lane] = w.v[0][lane]

    def both(w: Wave) -> None:
        for lane in w.lanes():
            w.v[1 + w.m0][lane] = w.v[3 + w.m0][lane]

    def pair(w: Wave, source: Source) -> None:
        w.m0 = int(source.random.integers(0, 4)) | int(source.random.integers(0, 4)) << 16

    def separate(w: Wave) -> None:
        for lane in w.lanes():
            w.v[0 + (w.m0 >> 16)][lane] = w.v[4 + (w.m0 & 0x3FF)][lane]

    def read_scalar(w: Wave) -> None:
        w.s[0] = w.s[4 + w.m0]

    def write_scalar(w: Wave) -> None:
        w.s[4 + w.m0] = w.s[0]

    return [
        _case("v_movrels_b32", "v_movrels_b32_e32 v0, v2", read, prepare=small),
        _case("v_movreld_b32", "v_movreld_b32_e32 v2, v0", write, prepare=small),
        _case("v_movrelsd_b32", "v_movrelsd_b32_e32 v1, v3", both, prepare=small),
        _case("v_movrelsd_2_b32", "v_movrelsd_2_b32_e32 v0, v4", separate, prepare=pair),
        _case("s_movrels_b32", "s_movrels_b32 s0, s4", read_scalar, prepare=small),
        _case("s_movreld_b32", "s_movreld_b32 s4, s0", write_scalar, prepare=small),
    ]


def _set(w: Wave, name: str, value: int) -> None:
    if name.startswith("s"):
        w.s[int(name[1:])] = value
    else:
        w.set_scalar(name, value)


def _case(mnemonic: str, text: str, model, **options) -> Case:
    return Case(mnemonics=(mnemonic,), code=[text], model=model, **({"waves": 4} | options))
