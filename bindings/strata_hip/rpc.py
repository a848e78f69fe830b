"""`strata-hip rpc-server`: llama.cpp's own RPC server, which offers this machine's device to llama.cpp on another."""
from typing import List, Optional

from . import child
from .errors import StrataError
from .tools import tools

PROGRAM = "ggml-rpc-server"


def run(arguments: List[str], runtime: Optional[str] = None) -> int:
    """Runs ggml-rpc-server until it ends, with our device unless its arguments name others.

    runtime: as for plugin.load(). Returns the exit code. Raises DeviceError if there is no such device, StrataError if the program is not
    there or cannot open its port."""
    devices = child.value_of(("-d", "--device"), None, arguments)
    environment = child.environment(devices, runtime)
    program, = tools(PROGRAM)
    chosen = ["--device", child.DEVICE] if devices is None else []
    code = child.run([str(program), *chosen, *arguments], environment, _ready)
    if code == 0:  # it has no way to end well
        raise StrataError(f"{PROGRAM} ended; the lines above say why")
    return code


def _ready(process: int) -> Optional[str]:
    """What it listens on."""
    return next(iter(child.listening(process)), None)
