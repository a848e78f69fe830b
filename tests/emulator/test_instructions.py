"""Every instruction against the oracle, on random registers, random EXEC and special values, through the HIP ABI.

A failure prints the instruction, the wave's registers and the seed; STRATA_SEED repeats it.
"""

import os
import secrets

import pytest
from oracle import device, suite

SEED = int(os.environ.get("STRATA_SEED", secrets.randbits(32)))
KERNELS_PER_CODE_OBJECT = 50
SHOWN = 8  # differences


@pytest.fixture(scope="session")
def code_objects() -> dict[str, bytes]:
    """Kernel name -> the code object that holds it."""
    groups = [group for members in suite.groups().values() for group in members]
    result = {}
    for start in range(0, len(groups), KERNELS_PER_CODE_OBJECT):
        part = groups[start : start + KERNELS_PER_CODE_OBJECT]
        result |= dict.fromkeys([group.name for group in part], device.build(part))
    return result


@pytest.mark.parametrize("mnemonic", suite.groups())
def test_instruction(mnemonic, hip, code_objects):
    found, cases = [], 0
    for group in suite.groups()[mnemonic]:
        cases += len(group.cases)
        for differences in device.check(hip, code_objects[group.name], group, SEED).values():
            found += differences
    if found:
        pytest.fail(f"seed {SEED}, {cases} forms, {len(found)} differences:\n" + "\n".join(found[:SHOWN]), pytrace=False)
