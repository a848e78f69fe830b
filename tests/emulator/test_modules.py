"""Loading of code objects: what is found in good ones, and readable refusals of bad ones."""

import ctypes
import mmap
import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.compile import assemble, compile_hip
from support.hip import HipError
from support.kernels import basic_kernels
from support.process import run_python

ELF_HEADER = 64
PROGRAM_HEADER = 56
E_MACHINE, E_FLAGS, E_PHOFF, E_PHNUM = 18, 48, 32, 56


def refusal(hip, image: bytes) -> HipError:
    with pytest.raises(HipError) as error:
        hip.load(image)
    return error.value


def patched(image: bytes, offset: int, value: bytes) -> bytes:
    return image[:offset] + value + image[offset + len(value):]


def test_functions_are_found_by_name(hip):
    module = hip.load(basic_kernels())
    assert len({hip.function(module, name) for name in ("store", "spin", "copy", "nothing")}) == 4
    with pytest.raises(HipError, match="no kernel named stor ") as error:
        hip.function(module, "stor")
    assert error.value.name == "hipErrorNotFound"


def test_the_standard_call_finds_the_end_by_itself(hip):
    module = ctypes.c_void_p()
    hip.call("hipModuleLoadData", ctypes.byref(module), basic_kernels())
    hip.launch(hip.function(module.value, "nothing"), 1, 32)
    hip.synchronize()


def test_an_unloaded_module_is_gone(hip):
    module = hip.load(basic_kernels())
    function = hip.function(module, "nothing")
    hip.call("hipModuleUnload", module)
    for action in (lambda: hip.launch(function, 1, 1), lambda: hip.call("hipModuleUnload", module),
                   lambda: hip.function(module, "nothing")):
        with pytest.raises(HipError) as error:
            action()
        assert error.value.name == "hipErrorInvalidHandle"


def test_unloading_gives_the_memory_back(hip):
    image = compile_hip("""
        #include "strata/device.h"
        __attribute__((device)) unsigned table[4 << 20];
        STRATA_KERNEL(32) void use(unsigned * p) { *p = table[*p]; table[*p] = 1; }
    """)
    done = run_python(f"""
import ctypes
from support.hip import emulator
hip = emulator()
def free():
    a, b = ctypes.c_size_t(), ctypes.c_size_t()
    hip.call("hipMemGetInfo", ctypes.byref(a), ctypes.byref(b))
    return a.value
module = hip.load({image!r})
assert free() < (48 << 20), free()
hip.call("hipModuleUnload", module)
assert free() == 64 << 20
""", STRATA_EMULATOR_MEMORY="64M")
    assert done.returncode == 0, done.stderr


def test_another_gpus_code_is_refused_by_name(hip):
    source = '#include "strata/device.h"\nSTRATA_KERNEL(32) void k() {}'
    for target in ("gfx1100", "gfx1201", "gfx942"):
        error = refusal(hip, compile_hip(source, target=target))
        assert error.name == "hipErrorNoBinaryForGpu"
        assert target in error.message and "gfx1151" in error.message
    error = refusal(hip, patched(basic_kernels(), E_FLAGS, b"\xff\x00\x00\x00"))
    assert error.name == "hipErrorNoBinaryForGpu" and "0xff" in error.message
    error = refusal(hip, patched(basic_kernels(), E_MACHINE, b"\x3e\x00"))
    assert error.name == "hipErrorNoBinaryForGpu" and "62" in error.message


def test_wave64_is_refused(hip):
    image = compile_hip('#include "strata/device.h"\nSTRATA_KERNEL(64) void wide() {}', flags=("-mwavefrontsize64",))
    assert "wide is compiled for wave64" in refusal(hip, image).message


def test_other_files_are_refused(hip):
    for image, reason in ((b"", "empty"), (b"\x7fEL", "no ELF"), (b"\x7fELF", "ends after 4 bytes"), (b"#!/bin/sh\n" * 20, "no ELF"),
                          (b"__CLANG_OFFLOAD_BUNDLE__" + bytes(100), "offload bundle"), (b"CCOB" + bytes(100), "offload bundle"),
                          (b"\x7fELF\x01\x01" + bytes(100), "64-bit")):
        error = refusal(hip, image)
        assert error.name == "hipErrorInvalidImage" and reason in error.message


def test_relocations_are_refused_by_name(hip):
    image = compile_hip("""
        #include "strata/device.h"
        __attribute__((device, visibility("default"))) int value = 3;
        __attribute__((device, visibility("default"))) int * pointer = &value;
        STRATA_KERNEL(32) void k(int * out) { *out = *pointer; }
    """)
    error = refusal(hip, image)
    assert error.name == "hipErrorInvalidImage" and "R_AMDGPU_" in error.message


def test_an_unlinked_object_is_refused(hip):
    assert "is it linked" in refusal(hip, assemble(".text\ns_endpgm\n", flags=("-c",))).message


def test_every_truncation_is_refused(hip):
    image = basic_kernels()
    needed = max(offset + size for offset, size in segments(image))
    for length in list(range(0, 700, 7)) + list(range(700, needed, 61)) + [needed - 1]:
        assert refusal(hip, image[:length]).name == "hipErrorInvalidImage"
    hip.load(image[:needed])  # section headers are for debuggers


def segments(image: bytes):
    start, = struct.unpack_from("<Q", image, E_PHOFF)
    count, = struct.unpack_from("<H", image, E_PHNUM)
    for i in range(count):
        offset, = struct.unpack_from("<Q", image, start + i * PROGRAM_HEADER + 8)
        size, = struct.unpack_from("<Q", image, start + i * PROGRAM_HEADER + 32)
        yield offset, size


def test_an_image_at_the_end_of_readable_memory(hip):
    """hipModuleLoadData does not know where the image ends; memory that is missing there must not end the process."""
    image = basic_kernels()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    view = ctypes.c_char.from_buffer(pages)
    start = ctypes.addressof(view)
    assert libc.mprotect(start + mmap.PAGESIZE, mmap.PAGESIZE, 0) == 0
    try:
        for kept in (1, 63, 64, 100, 600, 2000):
            at = start + mmap.PAGESIZE - kept
            ctypes.memmove(at, image, kept)
            module = ctypes.c_void_p()
            with pytest.raises(HipError) as error:
                hip.call("hipModuleLoadData", ctypes.byref(module), at)
            assert error.value.name == "hipErrorInvalidImage"
    finally:
        libc.mprotect(start + mmap.PAGESIZE, mmap.PAGESIZE, 3)
        del view
        pages.close()


FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def load_and_drop(hip, image: bytes) -> None:
    """Whatever the bytes are: a module, or one of the loader's errors with a message."""
    try:
        hip.call("hipModuleUnload", hip.load(image))
    except HipError as error:
        assert error.name in ("hipErrorInvalidImage", "hipErrorNoBinaryForGpu", "hipErrorOutOfMemory"), error
        assert error.message


@FUZZ
@given(st.binary(max_size=4096))
def test_random_bytes(hip, image):
    load_and_drop(hip, image)


@FUZZ
@given(st.binary(max_size=2048))
def test_random_bytes_after_a_good_header(hip, rest):
    load_and_drop(hip, basic_kernels()[:ELF_HEADER] + rest)


@FUZZ
@given(st.data())
def test_damaged_code_objects(hip, data):
    image = bytearray(basic_kernels())
    for _ in range(data.draw(st.integers(1, 4))):
        offset = data.draw(st.integers(0, len(image) - 1) | st.integers(0, 0x600))
        value = data.draw(st.binary(min_size=1, max_size=8) | st.sampled_from([b"\xff" * 8, b"\0" * 8, b"\0\0\0\x80", b"\xff\xff\xff\x7f"]))
        image[offset:offset + len(value)] = value
    load_and_drop(hip, bytes(image[:data.draw(st.just(len(image)) | st.integers(0, len(image)))]))
