"""What this build is made from, as the build wrote it down (cmake/build_info.py)."""
import json
from typing import Dict, Optional

from . import __version__
from .locations import library_folder

FILE = "build.json"


def facts() -> Dict[str, Optional[str]]:
    """version, commit (None if it was no git clone; "+changes" at its end if tracked files differed), llama_cpp_python and ggml (versions
    it is made for), compiler, llvm (the emulator's), targets (separated by spaces). Empty where the libraries were not built yet."""
    try:
        return json.loads((library_folder() / FILE).read_text())
    except OSError:
        return {}


def text() -> str:
    """The same for people, a line each."""
    lines = [f"strata-hip {__version__}"]
    if known := facts():
        lines += [
            f"commit    {known['commit'] or 'unknown: not built in a git clone'}",
            f"for       llama-cpp-python {known['llama_cpp_python']} (ggml {known['ggml']})",
            f"compiler  {known['compiler']}",
            f"emulator  decodes with LLVM {known['llvm']}",
            f"targets   {known['targets']}",
        ]
    return "\n".join(lines)
