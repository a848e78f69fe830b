"""Branches, calls, waits and other instructions of control, modelled by hand."""

from __future__ import annotations

from collections.abc import Callable

from .case import Case
from .inputs import Source
from .wave import Wave

BRANCHES: dict[str, Callable[[Wave], bool]] = {
    "s_branch": lambda w: True,
    "s_cbranch_scc0": lambda w: not w.scc,
    "s_cbranch_scc1": lambda w: bool(w.scc),
    "s_cbranch_vccz": lambda w: w.vcc == 0,
    "s_cbranch_vccnz": lambda w: w.vcc != 0,
    "s_cbranch_execz": lambda w: w.exec == 0,
    "s_cbranch_execnz": lambda w: w.exec != 0,
}
WITHOUT_EFFECT = [
    "s_nop 0", "s_nop 7", "s_sleep 1", "s_clause 0x1", "s_delay_alu instid0(VALU_DEP_1)", "s_waitcnt vmcnt(0) expcnt(0) lgkmcnt(0)",
    "s_waitcnt_vscnt null, 0x0", "s_waitcnt_vmcnt null, 0x0", "s_waitcnt_lgkmcnt null, 0x0", "s_waitcnt_expcnt null, 0x0", "s_barrier",
    "buffer_gl0_inv", "buffer_gl1_inv", "s_set_inst_prefetch_distance 0x1", "s_inst_prefetch 0x2", "s_icache_inv", "s_dcache_inv",
    "s_waitcnt_depctr 0xfffd", "s_setprio 1", "v_nop", "s_wait_idle", "s_sethalt 0", "s_ttracedata_imm 0x1",
    "s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)",
]  # fmt: skip


def cases() -> list[Case]:
    return _branches() + _calls() + _idle() + _masks() + _compare_k()


def _branches() -> list[Case]:
    result = []
    for mnemonic, taken in BRANCHES.items():
        for backwards in (False, True):
            # s0 tells which way was taken: s_movk_i32 changes no flag
            if backwards:
                code = ["s_branch 2f", "1:", "s_movk_i32 s0, 0x11", "s_branch 3f", "2:", f"{mnemonic} 1b", "s_movk_i32 s0, 0x22", "3:"]
            else:
                code = [f"{mnemonic} 1f", "s_movk_i32 s0, 0x22", "s_branch 2f", "1:", "s_movk_i32 s0, 0x11", "2:"]

            def model(w: Wave, taken=taken) -> None:
                w.s[0] = 0x11 if taken(w) else 0x22

            def prepare(w: Wave, source: Source) -> None:
                if source.random.integers(0, 2):
                    w.vcc = 0
                if source.random.integers(0, 3) == 0:
                    w.exec = 0

            result.append(_case((mnemonic,), code, model, prepare=prepare, waves=16))
    return result


def _calls() -> list[Case]:
    def called(w: Wave) -> None:
        w.s[0], w.s[1] = 0x11, 0x22
        w.s[8] = w.s[9] = w.s[10] = w.s[11] = 0

    # the address of a label: s_getpc gives the address of the next instruction; -> s0 = 0x11 in the callee, s1 = 0x22 after it
    target = ["s_getpc_b64 s[8:9]", "1:", "s_add_u32 s8, s8, 3f-1b", "s_addc_u32 s9, s9, 0"]
    clear = ["s_mov_b64 s[8:9], 0", "s_mov_b64 s[10:11], 0"]

    def scc_clear(w: Wave) -> None:
        called(w)
        w.scc = 0

    swap = target + [
        "s_swappc_b64 s[10:11], s[8:9]",
        "s_movk_i32 s1, 0x22",
        "s_branch 4f",
        "3:",
        "s_movk_i32 s0, 0x11",
        "s_setpc_b64 s[10:11]",
        "4:",
    ]
    call = ["s_call_b64 s[10:11], 3f", "s_movk_i32 s1, 0x22", "s_branch 4f", "3:", "s_movk_i32 s0, 0x11", "s_setpc_b64 s[10:11]", "4:"]

    def distance(w: Wave) -> None:
        w.s[0], w.scc = 8, 0  # two instructions of 4 bytes lie between the two addresses
        w.s[8] = w.s[9] = w.s[10] = w.s[11] = 0

    getpc = ["s_getpc_b64 s[8:9]", "s_nop 0", "s_getpc_b64 s[10:11]", "s_sub_u32 s0, s10, s8"]
    return [
        _case(("s_getpc_b64", "s_swappc_b64", "s_setpc_b64"), swap + clear, scc_clear),
        _case(("s_call_b64", "s_setpc_b64"), call + clear, called),
        _case(("s_getpc_b64",), getpc + clear, distance),
    ]


def _idle() -> list[Case]:
    return [_case((text.split()[0],), [text], lambda w: None, waves=2) for text in WITHOUT_EFFECT]


def _masks() -> list[Case]:
    """s_endpgm ends the wave: what would follow does not run. The wave stores its registers first, so the code lies behind a branch."""

    def model(w: Wave) -> None:
        w.s[0] = 0x11

    code = ["s_movk_i32 s0, 0x11", "s_branch 1f", "s_endpgm", "s_code_end", "s_trap 2", "1:"]
    return [_case(("s_endpgm",), code, model)]


def _compare_k() -> list[Case]:
    """s_cmpk_*: the pseudo-code is written for SIMM16 with a 64-bit sign extension."""
    result = []
    relations = {"eq": lambda a, b: a == b, "lg": lambda a, b: a != b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
                 "lt": lambda a, b: a < b, "le": lambda a, b: a <= b}  # fmt: skip
    for name, relation in relations.items():
        for kind in ("i32", "u32"):
            for k in (0, 5, 0x7FFF, 0x8000, 0xFFFB):

                def model(w: Wave, relation=relation, kind=kind, k=k) -> None:
                    a, b = w.s[4], k
                    if kind == "i32":
                        a, b = a - (1 << 32) * (a >> 31), b - (1 << 16) * (b >> 15)
                    w.scc = int(relation(a, b))

                def prepare(w: Wave, source: Source, k=k) -> None:
                    choice = source.random.integers(0, 4)
                    if choice < 3:
                        extended = k | 0xFFFF0000 if k >> 15 and source.random.integers(0, 2) else k
                        w.s[4] = (extended + int(choice) - 1) & 0xFFFFFFFF

                result.append(_case((f"s_cmpk_{name}_{kind}",), [f"s_cmpk_{name}_{kind} s4, {k:#x}"], model, prepare=prepare, waves=8))
    return result


def _case(mnemonics: tuple[str, ...], code: list[str], model, **options) -> Case:
    return Case(mnemonics=mnemonics, code=code, model=model, registers=1, **({"waves": 4} | options))
