"""Cross-lane source selection: DPP16 controls and DPP8."""

from __future__ import annotations

from dataclasses import dataclass

from .wave import LANES, Wave


@dataclass(frozen=True)
class Dpp:
    """A DPP16 modifier. `control` is the assembler's text, for example "row_shr:3" or "quad_perm:[3,1,0,2]"."""

    control: str
    row_mask: int = 0xF
    bank_mask: int = 0xF
    bound_ctrl: bool = False
    fi: bool = False

    def __str__(self) -> str:
        text = f"{self.control} row_mask:{self.row_mask:#x} bank_mask:{self.bank_mask:#x}"
        if self.bound_ctrl:
            text += " bound_ctrl:1"
        if self.fi:
            text += " fi:1"
        return text

    def source(self, lane: int) -> int | None:
        """The lane that `lane` reads, None if it lies outside the row."""
        row, i = lane & ~15, lane & 15
        name, _, argument = self.control.partition(":")
        if name == "quad_perm":
            return lane & ~3 | [int(x) for x in argument.strip("[]").split(",")][lane & 3]
        n = int(argument) if argument else 0
        if name == "row_shl":
            return row + i + n if i + n < 16 else None
        if name == "row_shr":
            return row + i - n if i - n >= 0 else None
        if name == "row_ror":
            return row + (i - n) % 16
        if name == "row_mirror":
            return row + 15 - i
        if name == "row_half_mirror":
            return row + (i & 8) + 7 - (i & 7)
        if name == "row_share":
            return row + n
        if name == "row_xmask":
            return row + (i ^ n)
        raise ValueError(self.control)

    def writes(self, wave: Wave) -> list[int | None]:
        """For every lane the lane whose register it reads, -1 for the value 0, None if the lane is not written."""
        result: list[int | None] = []
        for lane in range(LANES):
            source = self.source(lane)
            if not wave.active(lane) or not self.row_mask >> (lane >> 4) & 1 or not self.bank_mask >> (lane >> 2 & 3) & 1:
                result.append(None)
            elif source is None or not (wave.active(source) or self.fi):
                result.append(-1 if self.bound_ctrl else None)
            else:
                result.append(source)
        return result


@dataclass(frozen=True)
class Dpp8:
    """A DPP8 modifier: each lane reads lane selects[i & 7] of its group of eight."""

    selects: tuple[int, ...]
    fi: bool = False

    def __str__(self) -> str:
        return f"dpp8:[{','.join(map(str, self.selects))}]" + (" fi:1" if self.fi else "")

    def writes(self, wave: Wave) -> list[int | None]:
        result: list[int | None] = []
        for lane in range(LANES):
            source = lane & ~7 | self.selects[lane & 7]
            if not wave.active(lane):
                result.append(None)
            else:
                result.append(source if wave.active(source) or self.fi else -1)
        return result
