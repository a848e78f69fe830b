"""What a check of the doctor says."""
import dataclasses
import enum


class Level(enum.Enum):
    """How bad it is. Only BAD makes the command's exit code 1."""
    OK = "ok"
    WARN = "warn"  # works, but slower than it could, or it could not be looked at
    BAD = "bad"    # does not work, or not rightly


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the report."""
    check: str         # what was looked at: "GPU"
    level: Level
    found: str         # what is there
    meaning: str = ""  # what follows from it; empty if nothing does
    remedy: str = ""   # what to do; empty if there is nothing to do


def ok(check: str, found: str, meaning: str = "") -> Finding:
    return Finding(check, Level.OK, found, meaning)


def warn(check: str, found: str, meaning: str, remedy: str = "") -> Finding:
    return Finding(check, Level.WARN, found, meaning, remedy)


def bad(check: str, found: str, meaning: str, remedy: str) -> Finding:
    return Finding(check, Level.BAD, found, meaning, remedy)
