"""Where the package's own files are. Imports nothing heavy."""
import os
import pathlib


def library_folder() -> pathlib.Path:
    """The folder of the plugin and the emulator: $STRATA_LIBRARY_DIR, or lib/ in the installed package."""
    folder = os.environ.get("STRATA_LIBRARY_DIR")
    return pathlib.Path(folder) if folder else pathlib.Path(__file__).resolve().parent / "lib"
