"""matplotlib, which is optional."""
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


def save(figure: Any, path: str) -> None:
    """Writes a figure to a picture file. Raises StrataError."""
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise StrataError(f"{path}: {error}") from None
    pyplot().close(figure)
