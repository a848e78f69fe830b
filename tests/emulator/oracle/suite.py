"""All instruction tests: which mnemonic is tested by which cases."""

from __future__ import annotations

import functools
import pathlib
import re
from collections.abc import Iterator

from . import models_control, models_crosslane, models_memory, models_sequence, models_vopd, models_wmma, scalar_cases, vector_cases
from .assembler import encodable
from .case import Case, Group, grouped

HAND_WRITTEN = (models_control, models_crosslane, models_memory, models_sequence, models_vopd, models_wmma)

STOCK_MNEMONICS = pathlib.Path(__file__).parents[1] / "stock_mnemonics.txt"
STOCK_HEADER = """\
# The mnemonics of all kernels of stock ggml-hip (llama-cpp-python 0.3.36, clang 19, gfx1151), the halves of VOPD pairs apart,
# without the suffixes of encodings. Made by: python tests/emulator/test_stock.py, from what tests/bench/peer builds.
"""


def normalise(mnemonic: str) -> str:
    """Without the encoding's suffix: v_add_f32_e64_dpp is v_add_f32."""
    return re.sub(r"(_e32|_e64)?(_dpp|_sdwa)?$", "", mnemonic)


def _all_cases() -> Iterator[tuple[str, Case]]:
    """(what it is listed under, case), including forms that the target does not have."""
    for module in (vector_cases, scalar_cases):
        for name in module.mnemonics():
            instructions = module.forms(name)
            for case in module.cases_of(name, instructions):
                yield name, case
    for module in HAND_WRITTEN:
        for case in module.cases():
            yield case.mnemonics[0], case


@functools.cache
def stock_mnemonics() -> frozenset[str]:
    """What the kernels of stock ggml-hip are made of: stock_mnemonics.txt, which says how it was made."""
    return frozenset(line for line in STOCK_MNEMONICS.read_text().splitlines() if line and not line.startswith("#"))


@functools.cache
def groups() -> dict[str, list[Group]]:
    """Mnemonic -> the groups that test it first of all. The assembler drops forms that the encodings do not have."""
    listed = list(_all_cases())
    lines = [line for _, case in listed for line in case.code]
    accepted = iter(encodable(lines))
    cases: dict[str, list[Case]] = {}
    for name, case in listed:
        if all([next(accepted) for _ in case.code]):
            cases.setdefault(name, []).append(case)
    return {name: grouped(name, members) for name, members in cases.items()}


@functools.cache
def tested() -> frozenset[str]:
    """Every mnemonic that has a test."""
    return frozenset(m for members in groups().values() for group in members for case in group.cases for m in case.mnemonics)
