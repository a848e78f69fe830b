"""VOPD: two operations in one instruction. Each half is modelled by the pseudo-code of the single instruction; what is tested here
is that both halves read all their sources before either writes, and that they share a literal and VCC."""

from __future__ import annotations

import itertools

from .case import Case
from .vector import VectorInstruction, execute
from .wave import VCC, Literal, S, V, Wave

X_OPERATIONS = ["fmac_f32", "fmaak_f32", "fmamk_f32", "mul_f32", "add_f32", "sub_f32", "subrev_f32", "mul_dx9_zero_f32", "mov_b32",
                "cndmask_b32", "max_f32", "min_f32", "dot2acc_f32_f16"]  # fmt: skip
Y_OPERATIONS = [*X_OPERATIONS, "add_nc_u32", "lshlrev_b32", "and_b32"]
LITERAL = 0x3FC90FDB


def cases() -> list[Case]:
    result = []
    for x, y in itertools.product(X_OPERATIONS, Y_OPERATIONS):
        result.append(_pair(x, y, (0, V(4), V(10)), (1, V(5), V(11))))
        # each half reads what the other writes
        result.append(_pair(x, y, (0, V(1), V(6)), (1, V(0), V(7))))
        result.append(_pair(x, y, (2, V(3), V(2)), (3, V(2), V(3))))
        if not ("ak_" in x or "mk_" in x or "ak_" in y or "mk_" in y):
            result.append(_pair(x, y, (0, S(4), V(6)), (3, Literal(LITERAL), V(1))))
            result.append(_pair(x, y, (0, Literal(LITERAL), V(6)), (1, Literal(LITERAL), V(7))))
        else:
            result.append(_pair(x, y, (0, S(4), V(6)), (3, S(4), V(1))))
    return result


def _half(operation: str, destination: int, first, second) -> VectorInstruction:
    sources = (first,) if operation == "mov_b32" else (first, second)
    literal = LITERAL if operation.startswith(("fmaak", "fmamk")) else None
    name = "v_dot2acc_f32_f16" if operation.startswith("dot2acc") else f"v_{operation}"
    return VectorInstruction(name, V(destination), sources, literal=literal, carry_in=VCC)


def _text(operation: str, destination: int, first, second) -> str:
    operands = [f"v{destination}", str(first)]
    if operation.startswith("fmamk"):
        operands.append(f"{LITERAL:#x}")
    if operation != "mov_b32":
        operands.append(str(second))
    if operation.startswith("fmaak"):
        operands.append(f"{LITERAL:#x}")
    return f"v_dual_{'dot2acc_f32_f16' if operation.startswith('dot2acc') else operation} {', '.join(operands)}"


def _pair(x: str, y: str, x_operands: tuple, y_operands: tuple) -> Case:
    halves = [_half(x, *x_operands), _half(y, *y_operands)]

    def model(w: Wave) -> None:
        results = []
        for half in halves:
            copy = w.copy()
            execute(half, copy)
            results.append((half.destination.n, copy))
        for register, copy in results:
            w.v[register] = copy.v[register]
            w.loose.update(copy.loose)

    kinds = {n: ("packed f16" if "dot2acc" in x + y and n % 2 else "f", 32) for n in range(12)}
    text = f"{_text(x, *x_operands)} :: {_text(y, *y_operands)}"
    names = (f"v_dual_{x}", f"v_dual_{y}")
    return Case(mnemonics=names, code=[text], model=model, registers=12, waves=2, vgprs=kinds, sgprs={4: ("f", 32), 6: ("f", 32)})
