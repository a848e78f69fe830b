"""Programs of the pinned llama.cpp: where they are."""
import os
import pathlib
import subprocess
import sys
from typing import List

from .errors import StrataError

PRELOAD = "strata-preload"          # has a program load ggml's backends before its main(): scripts/tools/preload.cpp
RPC_BACKEND = "ggml-rpc"            # what the programs beside it need for --rpc
SHARED_LIBRARIES = (PRELOAD, RPC_BACKEND)
PACKED = pathlib.Path(__file__).resolve().parent / "bin"  # in a wheel


def tools(*names: str) -> List[pathlib.Path]:
    """The paths of programs and libraries of llama.cpp: from $STRATA_TOOLS if it is set, else those that the wheel brought, else built by
    scripts/build_tools.py of the source tree. Raises StrataError if one is not there and cannot be built."""
    def inside(folder: pathlib.Path) -> List[pathlib.Path]:
        return [folder / (f"lib{name}.so" if name in SHARED_LIBRARIES else name) for name in names]

    if folder := os.environ.get("STRATA_TOOLS"):
        paths = inside(pathlib.Path(folder))
        if missing := [path.name for path in paths if not path.exists()]:
            raise StrataError(f"STRATA_TOOLS={folder} does not hold {', '.join(missing)}: scripts/build_tools.py of the source tree builds "
                              "it and prints its path")
        return paths
    if all(path.exists() for path in inside(PACKED)):
        return inside(PACKED)
    for tree in (pathlib.Path(__file__).resolve().parents[2], pathlib.Path(sys.prefix).parent):
        script = tree / "scripts" / "build_tools.py"
        if script.exists():
            result = subprocess.run([sys.executable, str(script), *names], stdout=subprocess.PIPE, text=True)
            if result.returncode != 0:
                raise StrataError(f"{', '.join(names)} could not be built")
            return [pathlib.Path(line) for line in result.stdout.splitlines()]
    raise StrataError(f"{names[0]} is neither in {PACKED}, where wheels have it, nor is there a source tree that compiles it: use "
                      ".venv/bin/strata-hip there, or name the folder in STRATA_TOOLS that scripts/build_tools.py printed")
