"""Where things are: llama.cpp's libraries, the pinned sources."""
import functools
import importlib.util
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def ggml_folder() -> pathlib.Path:
    """The folder of libggml.so inside the installed llama_cpp package."""
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None:
        raise ModuleNotFoundError("llama_cpp is not installed; run `make build`")
    return pathlib.Path(next(iter(spec.submodule_search_locations))) / "lib"


@functools.cache
def llama_cpp_source() -> pathlib.Path:
    """The pinned llama.cpp sources."""
    command = [sys.executable, str(ROOT / "scripts" / "fetch_sources.py")]
    return pathlib.Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
