"""llama.cpp's log, read while something that may fail is called."""
import contextlib
import ctypes
import re
import threading
from typing import Any, Iterator, List, Optional

import llama_cpp

_WARN, _ERROR = 3, 4  # enum ggml_log_level as of ggml 0.25: NONE, DEBUG, INFO, WARN, ERROR, CONT
_CONT = 5
_lock = threading.RLock()


class Log:
    """The warnings and errors that were logged; if a context was made, its number of graph splits, and what became of "auto"."""

    def __init__(self) -> None:
        self.text = ""
        self.splits = 0  # the most that a batch of the context has; 0: none was made
        self.flash_attn: Optional[bool] = None  # whether it is on, if that was left to llama.cpp
        self._level = 0

    def add(self, level: int, text: str) -> None:
        if level != _CONT:
            self._level = level
        if found := re.search(r": graph.*nodes = .*splits = (\d+)(?: / (\d+))?", text):
            self.splits = max(int(number) for number in found.groups() if number)
        if found := re.search(r": Flash Attention (enabled|not supported, set to disabled)", text):
            self.flash_attn = found[1] == "enabled"
        if self._level in (_WARN, _ERROR):
            self.text += text

    def reason(self) -> str:
        """The lines without repetition, short enough for an exception's message."""
        lines: List[str] = []
        for line in self.text.splitlines():
            if line.strip() and line.strip() not in lines:
                lines.append(line.strip())
        return "; ".join(lines[-6:])


@contextlib.contextmanager
def captured(quiet: bool = False) -> Iterator[Log]:
    """Collects what llama.cpp and ggml log meanwhile; unless `quiet`, it also goes where it went before."""
    log = Log()
    previous = llama_cpp.llama_log_callback()
    user_data = ctypes.c_void_p()
    with _lock:
        llama_cpp.llama_log_get(ctypes.byref(previous), ctypes.byref(user_data))

        @llama_cpp.llama_log_callback
        def listen(level: int, text: bytes, _: Any) -> None:
            log.add(level, text.decode("utf-8", "replace"))
            if previous and not quiet:
                previous(level, text, user_data)

        llama_cpp.llama_log_set(listen, ctypes.c_void_p(0))
        try:
            yield log
        finally:
            llama_cpp.llama_log_set(previous, user_data)
