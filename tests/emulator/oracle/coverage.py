"""Which mnemonics code objects use."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

from .assembler import tool
from .suite import normalise

# What the disassembler prints for bytes that never run: padding after the last kernel.
NOT_EXECUTED = {"s_code_end", "v_illegal", "..."}


def mnemonics(code_object: Path) -> Counter[str]:
    """Normalised mnemonic -> count, the halves of VOPD apart."""
    command = [tool("llvm-objdump"), "-d", "--mcpu=gfx1151", "--no-show-raw-insn", str(code_object)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: Counter[str] = Counter()
    for line in text.splitlines():
        if not line.startswith("\t"):
            continue
        for half in line.split("//")[0].split("::"):
            name = half.split()[0]
            if name not in NOT_EXECUTED:
                found[normalise(name)] += 1
    return found
