"""`strata-hip sanitize -- CMD`: a program on the emulator under its sanitizer (docs/emulator.md)."""
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import List

from .errors import StrataError

KINDS = ("memory", "init", "race", "wait", "host", "align")


def run(command: List[str], kinds: str) -> int:
    """Runs the command with the emulator and these kinds (a comma list, or "all"). Returns the command's exit code if that is not 0,
    1 if anything was reported, else 0. Reports of all its processes count. Raises StrataError for a command that cannot be run, or that succeeds
    without having opened the emulator."""
    with tempfile.TemporaryDirectory(prefix="strata-sanitize-") as folder:
        reports = pathlib.Path(folder) / "reports"
        environment = dict(os.environ, STRATA_SANITIZE=kinds, STRATA_SANITIZE_REPORTS=str(reports))
        environment.setdefault("STRATA_RUNTIME", "emulator")
        try:
            code = subprocess.run(command, env=environment).returncode
        except OSError as error:
            raise StrataError(f"{command[0]}: {error.strerror}") from None
        watched = reports.exists()
        count = reports.read_text(errors="replace").count("strata-sanitizer: ") if watched else 0
    if not watched and not code:
        raise StrataError(f"{command[0]} ran nothing on the emulator: nothing was checked")
    print(f"strata-hip sanitize: {count} report{'' if count == 1 else 's'} ({kinds})", file=sys.stderr)
    if code:
        print(f"strata-hip sanitize: {command[0]} ended with {code}", file=sys.stderr)
    return code if code > 0 else 1 if code or count else 0
