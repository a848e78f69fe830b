"""A private instance of the emulator for tests that break it: faults and resets must not reach anybody else's device."""

import shutil

import pytest

from support.hip import Hip
from support.libraries import emulator_library


@pytest.fixture(scope="session")
def private_emulator(tmp_path_factory) -> Hip:
    # The loader knows a library by its file, so a copy is an instance with its own memory, streams and faults.
    copy = tmp_path_factory.mktemp("emulator") / "libstrata-emulator-private.so"
    shutil.copy(emulator_library(), copy)
    return Hip(copy)


@pytest.fixture
def hip(private_emulator):
    """The private emulator in a fresh state."""
    private_emulator.call("hipDeviceReset")
    private_emulator.raw.hipGetLastError()
    yield private_emulator
    private_emulator.call("hipDeviceReset")
