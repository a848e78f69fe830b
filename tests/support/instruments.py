"""Instances of the emulator with instruments on, beside the one that other tests use."""
from __future__ import annotations

import contextlib
import ctypes
import json
import shutil
import struct
from pathlib import Path

import pytest

from strata_hip import environment

from .assembly import kernel_image
from .hip import Hip, HipError
from .libraries import emulator_library


class Instrumented(Hip):
    """An emulator that was started with the given variables; the loader takes a copy of the file for another library."""

    def __init__(self, folder: Path, **variables: str):
        copy = folder / "libstrata-emulator-instrumented.so"
        shutil.copy(emulator_library(), copy)
        with environment.changed(**variables):
            super().__init__(copy)
            self.raw.strata_emulator_reports.restype = ctypes.c_size_t
            self.raw.strata_emulator_reports.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
            self.free(self.malloc(64))  # the variables are read now

    def reset(self) -> None:
        """All memory and reports are forgotten."""
        self.call("hipDeviceReset")
        self.raw.hipGetLastError()
        self.raw.strata_emulator_forget_reports()

    def reports(self) -> list[str]:
        size = self.raw.strata_emulator_reports(None, 0)
        text = ctypes.create_string_buffer(size + 1)
        self.raw.strata_emulator_reports(text, size + 1)
        return [each for each in text.value.decode().split("\n\n") if each]

    def run(self, body: str, *arguments: int, grid=1, block=32, **kernel) -> list[str]:
        """Runs an assembler kernel on pointers to its end, or to its fault, and returns the reports."""
        image = kernel_image(body, pointers=len(arguments), **kernel)
        self.launch(self.kernel(image, kernel.get("name", "probe")), grid, block, struct.pack(f"<{len(arguments)}Q", *arguments))
        with contextlib.suppress(HipError):
            self.synchronize()
        return self.reports()


class Counting(Instrumented):
    """An emulator that counts."""

    def __init__(self, folder: Path, **variables: str):
        self.file = folder / "counts.json"
        super().__init__(folder, STRATA_COUNT=str(self.file), **variables)
        self.raw.strata_emulator_count_write.restype = None
        self.raw.strata_emulator_count_phase.restype = None

    def counts(self) -> dict:
        """What has been counted so far."""
        self.synchronize()
        self.raw.strata_emulator_count_write()
        return json.loads(self.file.read_text())

    def launches(self) -> list[dict]:
        """What has been counted of every launch so far."""
        return self.counts()["launches"]


def sanitizing(kind: str):
    """The fixtures `started`, an emulator that reports one kind, and `hip`, the same with nothing allocated or reported."""
    @pytest.fixture(scope="module")
    def started(tmp_path_factory):
        return Instrumented(tmp_path_factory.mktemp(kind), STRATA_SANITIZE=kind)

    @pytest.fixture
    def hip(started):
        started.reset()
        yield started
        started.reset()

    return started, hip
