"""Where the built libraries are: STRATA_LIBRARY_DIR (a build tree's lib/), else the installed strata_hip package."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path


def library_dir() -> Path:
    """The directory that holds libstrata-emulator.so and libggml-strata-hip.so.

    Raises RuntimeError, saying where it has looked.
    """
    given = os.environ.get("STRATA_LIBRARY_DIR")
    if given:
        return Path(given)
    package = importlib.util.find_spec("strata_hip")
    for place in (package.submodule_search_locations or []) if package else []:
        if (Path(place) / "lib" / "libstrata-emulator.so").exists():
            return Path(place) / "lib"
    raise RuntimeError("libstrata-emulator.so was not found: run `make build`, or set STRATA_LIBRARY_DIR to a build tree's lib directory")


def emulator_library() -> Path:
    """libstrata-emulator.so."""
    return library_dir() / "libstrata-emulator.so"
