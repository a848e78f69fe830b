"""matplotlib, which is optional."""
import os
import pathlib
from typing import Any

from .errors import StrataError


def pyplot() -> Any:
    """matplotlib.pyplot, drawing to files. Raises StrataError if it is not installed."""
    try:
        import matplotlib
    except ImportError:
        raise StrataError("--plot needs matplotlib: pip install 'strata-hip[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as loaded
    return loaded


def check(path: str) -> None:
    """Raises StrataError if no picture can be drawn to this file: rather now than after minutes of measuring."""
    figure = pyplot().figure()
    kinds = figure.canvas.get_supported_filetypes()
    pyplot().close(figure)
    file = pathlib.Path(path)
    if file.suffix[1:].lower() not in kinds:
        raise StrataError(f"{path}: a picture's name ends in one of .{', .'.join(sorted(kinds))}")
    if not os.access(file.parent, os.W_OK) or file.is_dir():
        raise StrataError(f"{path} cannot be written")


def save(figure: Any, path: str) -> None:
    """Writes a figure to a picture file. Raises StrataError."""
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise StrataError(f"{path}: {error}") from None
    pyplot().close(figure)
