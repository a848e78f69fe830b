"""Every mnemonic in our code objects is known to the emulator, and tested by test_instructions.py."""

import ctypes
import os
from pathlib import Path

import pytest
from oracle import coverage, suite
from support.libraries import library_dir


def code_object_dir() -> Path:
    """The build's code objects: STRATA_CODE_OBJECTS_DIR, else the directory beside the libraries."""
    given = os.environ.get("STRATA_CODE_OBJECTS_DIR")
    return Path(given) if given else library_dir().parent / "code_objects"


def code_objects() -> list[Path]:
    return sorted(code_object_dir().glob("*.gfx1151.co"))


def known_mnemonics(hip, code_object: Path) -> dict[str, bool]:
    """The emulator's own view of a code object: mnemonic -> whether it executes it."""
    function = hip.raw.strata_emulator_mnemonics
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    data = code_object.read_bytes()
    size = function(data, len(data), None, 0)
    assert size > 0, f"{code_object.name} is not read as a code object"
    buffer = ctypes.create_string_buffer(size + 1)
    function(data, len(data), buffer, size + 1)
    pairs = [line.split("\t") for line in buffer.value.decode().splitlines()]
    return {suite.normalise(name): known == "1" for name, known in pairs}


def test_code_objects_are_found():
    assert code_objects(), f"no code objects in {code_object_dir()}: build the target device_code, or set STRATA_CODE_OBJECTS_DIR"


@pytest.mark.parametrize("code_object", code_objects(), ids=lambda path: path.name)
def test_every_mnemonic_is_tested(code_object):
    used = coverage.mnemonics(code_object)
    assert used
    untested = sorted(name for name in used if name not in suite.tested())
    assert not untested, f"{code_object.name} uses instructions without a test: {', '.join(untested)}"


@pytest.mark.parametrize("code_object", code_objects(), ids=lambda path: path.name)
def test_every_mnemonic_is_emulated(code_object, private_emulator):
    known = known_mnemonics(private_emulator, code_object)
    missing = sorted(name for name in coverage.mnemonics(code_object) if not known.get(name, False))
    assert not missing, f"{code_object.name} uses instructions that the emulator does not know: {', '.join(missing)}"


def test_every_mnemonic_of_the_stock_backend_is_tested():
    """Those of all the kernels that stock ggml-hip has for this chip, whether it is built here or not. A trap ends its wave, and the
    barrier of a grid wants a grid of one: those are tested by test_compiled_code.py."""
    assert len(suite.stock_mnemonics()) > 350
    untested = sorted(suite.stock_mnemonics() - suite.tested() - {"s_trap", "ds_gws_barrier"})
    assert not untested, f"instructions of stock ggml-hip without a test: {', '.join(untested)}"
