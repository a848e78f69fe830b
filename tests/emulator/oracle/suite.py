"""All instruction tests: which mnemonic is tested by which cases."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from . import models_control, models_crosslane, models_memory, models_sequence, models_vopd, models_wmma, scalar_cases, vector_cases
from .assembler import encodable
from .case import Case, Group, grouped

HAND_WRITTEN = (models_control, models_crosslane, models_memory, models_sequence, models_vopd, models_wmma)


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
