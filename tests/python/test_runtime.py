"""strata_hip.runtime, .compiler and .code_object on the emulator, and docs/python.md, which is executed as it stands."""
import ctypes
import gc
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from strata_hip import compiler, runtime
from strata_hip.errors import ArgumentError, CompileError, DeviceError, DeviceMemoryError
from support import fakes
from support.assembly import kernel_image
from support.libraries import library_dir
from support.paths import ROOT
from support.process import python_path, run_python
from support.shipped import embedded_code_objects, shipped_kernels

SOURCE = """
#include "strata/device.h"
using namespace strata;
struct span { uint32_t * data; uint16_t first, count; };

STRATA_KERNEL(64) void scale(float * y, const float * x, float factor, uint32_t n) {
    const uint32_t i = block_x() * 64 + thread_x();
    if (i < n) y[i] = factor * x[i];
}
/// What each argument is, as integers.
STRATA_KERNEL(1) void values(int64_t * out, span s, double d, half h, int8_t b, int64_t q, const void * p) {
    out[0] = s.first; out[1] = s.count; out[2] = static_cast<int64_t>(d * 16); out[3] = static_cast<int64_t>(static_cast<float>(h) * 16);
    out[4] = b; out[5] = q; out[6] = reinterpret_cast<int64_t>(p); out[7] = reinterpret_cast<int64_t>(s.data);
}
/// The place of every work-item in the grid, through LDS that the launch adds.
extern "C" __attribute__((shared)) uint32_t dynamic[];
STRATA_KERNEL(1024) void places(uint32_t * out) {
    const uint32_t item = (thread_z() * 2 + thread_y()) * 3 + thread_x();
    dynamic[item] = (block_z() * 100 + block_y() * 10 + block_x()) * 1000 + item;
    barrier();
    out[((block_z() * 3 + block_y()) * 2 + block_x()) * 12 + item] = dynamic[11 - item];
}
/// A wait for the streams' tests.
STRATA_KERNEL(32) void spin(uint32_t * out, uint32_t count) {
    uint32_t x = 1;
    for (uint32_t i = 0; i < count; ++i) { x = x * 1664525u + 1013904223u; asm volatile("" : "+s"(x)); }
    if (thread_x() == 0) out[0] = x | 1;
}
"""
X = np.arange(100, dtype=np.float32)


@pytest.fixture(scope="module")
def image() -> bytes:
    return compiler.compile_hip(SOURCE)


@pytest.fixture
def gpu():
    with runtime.open("emulator") as opened:
        yield opened


@pytest.fixture
def module(gpu, image):
    return gpu.load(image)


def test_device(gpu):
    device = gpu.device
    assert device in gpu.devices() and device.index == 0 and device.arch == "gfx1151" and device.compute_units == 40
    assert gpu.emulated and "emulated" in device.name and 0 < gpu.memory_free <= device.memory
    with pytest.raises(DeviceError, match="there is no device 1, but 0: AMD"):
        runtime.open("emulator", 1)


def test_kernels_are_listed(module, image, tmp_path, gpu):
    assert set(module) == set(module.kernels) == {"scale", "values", "places", "spin"}
    info = module.kernels["scale"]
    assert [(a.offset, a.size, a.pointer) for a in info.arguments] == [(0, 8, True), (8, 8, True), (16, 4, False), (20, 4, False)]
    assert (info.max_block, info.wave_size, info.lds, info.scratch, info.vgpr_spills, info.required_block) == (64, 32, 0, 0, 0, None)
    assert [a.size for a in module.kernels["values"].arguments] == [8, 16, 8, 2, 1, 8, 8]
    file = tmp_path / "code.co"
    file.write_bytes(image)
    assert gpu.load(file).kernels == gpu.load(str(file)).kernels == runtime.read_kernels(image)


def test_shipped_code_objects_are_read():
    found = {name for each in embedded_code_objects() for name in runtime.read_kernels(each)}
    assert found == set(shipped_kernels())


def test_launch(gpu, module):
    x, y = gpu.upload(X), gpu.empty(X.shape)
    module["scale"].launch(2, 64, y, x, 2.5, len(X))
    np.testing.assert_array_equal(y.download(), X * 2.5)
    module["scale"].launch((2,), (64, 1), y.pointer + 40, x.pointer, np.float32(-1), np.uint32(90))
    np.testing.assert_array_equal(y.download(), np.concatenate([X[:10] * 2.5, -X[:90]]))


def test_grid_block_and_lds(gpu, module):
    out = gpu.empty(4 * 3 * 2 * 12, np.uint32)
    module["places"].launch((2, 3, 4), (3, 2, 2), out, lds=48)
    z, y, x, item = np.meshgrid(range(4), range(3), range(2), range(12), indexing="ij")
    np.testing.assert_array_equal(out.download().reshape(z.shape), (z * 100 + y * 10 + x) * 1000 + 11 - item)


class Span(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("first", ctypes.c_uint16), ("count", ctypes.c_uint16)]


SPAN = np.dtype([("data", "u8"), ("first", "u2"), ("count", "u2")], align=True)


@pytest.mark.parametrize("struct", [Span(1 << 40, 3, 65535), bytes(Span(1 << 40, 3, 65535)), np.array([(1 << 40, 3, 65535)], SPAN)[0]],
                         ids=["ctypes", "bytes", "numpy"])
@pytest.mark.parametrize("rest", [(0.5, 0.25, -5, -2**62, None), (np.float64(0.5), np.float16(0.25), np.int8(-5), np.int64(-2**62), 0)])
def test_every_kind_of_argument(gpu, module, struct, rest):
    out = gpu.empty(8, np.int64)
    module["values"].launch(1, 1, out, struct, *rest)
    assert out.download().tolist() == [3, 65535, 8, 4, -5, -2**62, 0, 1 << 40]


@pytest.mark.parametrize("arguments,message", [
    ((1, 2.0, 3), "takes 4 arguments, 3 are given"),
    ((None, X, 2.0, 1), r"argument 1 .* host memory: Runtime.upload"),
    ((None, None, np.float64(2), 1), "argument 2 .* has 4 bytes, 8 are given"),
    ((None, None, 2.0, 2**32), "argument 3 .* has 4 bytes, which do not hold 4294967296"),
    ((None, None, 2.0, "4"), "argument 3 .* cannot be made from '4'"),
    ((None, 1.5, 2.0, 4), "argument 1 .* cannot be made from 1.5"),
    ((None, None, None, 4), "argument 2 .* cannot be made from None")])
def test_arguments_that_do_not_fit(module, arguments, message):
    with pytest.raises(ArgumentError, match=message):
        module["scale"].launch(1, 64, *arguments)


def test_launches_that_hip_refuses(gpu, module):
    x = gpu.upload(X)
    with pytest.raises(runtime.HipError, match="at most 64. Grid and block count from 1") as error:
        module["scale"].launch(1, 65, x, x, 1.0, 1)
    assert (error.value.call, error.value.name) == ("hipModuleLaunchKernel", "hipErrorInvalidConfiguration")
    for grid in ((1, 1, 1, 1), -1, 2**32, ()):
        with pytest.raises(ArgumentError, match="grid="):
            module["scale"].launch(grid, 64, x, x, 1.0, 1)


def test_arrays(gpu):
    for values in (X, np.arange(6, dtype=np.int16).reshape(2, 3).T, np.float64(3), np.zeros((0, 4), np.float32), np.array([True, False])):
        array = gpu.upload(values)
        assert (array.shape, array.dtype, array.nbytes) == (values.shape, values.dtype, values.nbytes)
        np.testing.assert_array_equal(array.download(), values)
    array = gpu.empty((2, 3), np.uint8)
    array.fill(7)
    np.testing.assert_array_equal(array.download(), np.full((2, 3), 7))
    array.upload(np.arange(6, dtype=np.uint8).reshape(2, 3))
    assert array.download()[1].tolist() == [3, 4, 5]
    for wrong in (np.zeros((3, 2), np.uint8), np.zeros((2, 3), np.int8)):
        with pytest.raises(ArgumentError, match="do not fit an array"):
            array.upload(wrong)
    with pytest.raises(ArgumentError, match="Python objects"):
        gpu.upload(np.array([None]))
    with pytest.raises(ArgumentError, match="cannot be"):
        gpu.empty((2, -1))


def test_no_memory(gpu):
    with pytest.raises(DeviceMemoryError, match=r"hipErrorOutOfMemory \(2\): .* are free .*Close what is not needed") as error:
        gpu.empty(2**50)
    assert isinstance(error.value, runtime.HipError) and error.value.name == "hipErrorOutOfMemory"


def test_streams_and_events(gpu, module):
    with gpu.stream() as first, gpu.stream() as second:
        begin, end, out = gpu.event(), gpu.event(), gpu.empty(1, np.uint32)
        copy = gpu.empty(1, np.uint32)
        begin.record(first)
        module["spin"].launch(1, 32, out, 200_000, stream=first)
        end.record(first)
        assert not (first.done and end.done) or out.download()[0]  # it may have been quick
        second.wait(end)
        gpu.call("hipMemcpyAsync", copy.pointer, out.pointer, 4, 3, second.handle)
        assert copy.download(second)[0] & 1
        assert begin.done and end.done and first.done
        end.synchronize()
        assert end.milliseconds_since(begin) > 0


def test_host_copies_wait_for_streams(gpu, module):
    out = gpu.empty(1, np.uint32)
    out.upload(np.zeros(1, np.uint32))
    with gpu.stream() as stream:
        module["spin"].launch(1, 32, out, 200_000, stream=stream)
        assert out.download()[0] & 1
        module["spin"].launch(1, 32, out, 200_000, stream=stream)
        out.upload(np.zeros(1, np.uint32))
        assert out.download(stream)[0] == 0


NOTHING_LEAKS = """
import gc, sys
import numpy as np
import pytest
from strata_hip import runtime
from strata_hip.errors import DeviceError

X = np.arange(100, dtype=np.float32)
image = open(IMAGE, "rb").read()
with runtime.open("emulator") as watcher:
    before = watcher.memory_free
    with runtime.open("emulator") as gpu:
        kept = [gpu.upload(X), gpu.load(image), gpu.stream(), gpu.event()]
        assert watcher.memory_free < before
        with gpu.empty(1 << 20) as array:
            inside = watcher.memory_free
        assert watcher.memory_free >= inside + (4 << 20)
        forgotten = gpu.empty(1 << 20)
        inside = watcher.memory_free
        del forgotten
        gc.collect()
        assert watcher.memory_free >= inside + (4 << 20)
    assert watcher.memory_free == before
    for each in (*kept, array):
        with pytest.raises(DeviceError, match="has been closed"):
            _ = each.handle
        each.close()
    with pytest.raises(DeviceError, match="this runtime has been closed"):
        gpu.empty(1)
    gpu.close()
print("nothing leaks")
"""


def test_nothing_leaks(image, tmp_path):
    """On a device whose size does not go with what the host has free at the moment."""
    file = tmp_path / "image.co"
    file.write_bytes(image)
    assert run_python(NOTHING_LEAKS.replace("IMAGE", repr(str(file))), STRATA_EMULATOR_MEMORY="256M").stdout == "nothing leaks\n"


def test_what_is_forgotten_while_it_runs(gpu, image):
    """Module, kernel and array of a launch that has just been queued."""
    out = gpu.empty(1, np.uint32)
    with gpu.stream() as stream:
        gpu.load(image)["spin"].launch(1, 32, out, 200_000, stream=stream)
        gpu.load(image)["spin"].launch(1, 32, gpu.empty(1, np.uint32), 200_000, stream=stream)
        gc.collect()
        assert out.download(stream)[0] & 1


def test_closed_modules_launch_nothing(gpu, image):
    with gpu.load(image) as module:
        kernel = module["scale"]
    with pytest.raises(DeviceError, match="this Module has been closed"):
        kernel.launch(1, 64, None, None, 1.0, 0)


@pytest.mark.parametrize("data,message", [
    (b"", "are no code object"), (b"\x7fELF", "are no code object"), (b"__CLANG_OFFLOAD_BUNDLE__", "--no-gpu-bundle-output")])
def test_what_is_no_code_object(gpu, data, message, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        gpu.load(data)
    with pytest.raises(ArgumentError, match="gone.co: No such file"):
        gpu.load(tmp_path / "gone.co")
    with pytest.raises(ArgumentError, match="no metadata of AMDGPU kernels"):
        gpu.load(sys.executable)


def test_broken_code_objects_raise_nothing_else(image):
    """Cut anywhere, and with bytes changed."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        broken = bytearray(image[:rng.integers(0, len(image))] if rng.random() < 0.5 else image)
        for at in rng.integers(0, max(len(broken), 1), 8):
            broken[at:at + 1] = bytes(rng.integers(0, 256, 1, np.uint8))
        try:
            runtime.read_kernels(bytes(broken))
        except ArgumentError as error:
            assert str(error)


def test_another_arch(gpu):
    with pytest.raises(runtime.HipError, match="Compile the code object for this device's arch"):
        gpu.load(compiler.compile_hip(SOURCE, arch="gfx1100"))


def test_kernels_by_name(module):
    with pytest.raises(ArgumentError, match="no kernel 'scala', but scale, .*extern"):
        module["scala"]


def test_assembler_code(gpu):
    out = gpu.empty(1, np.uint32)
    body = "s_load_b64 s[4:5], s[0:1], 0x0\n v_mov_b32 v1, 42\n v_mov_b32 v2, 0\n s_waitcnt lgkmcnt(0)\n global_store_b32 v2, v1, s[4:5]"
    gpu.load(kernel_image(body, pointers=1))["probe"].launch(1, 1, out)
    assert out.download()[0] == 42


def test_compile_errors(monkeypatch, tmp_path):
    with pytest.raises(CompileError, match="unknown type name 'nonsense'"):
        compiler.compile_hip("nonsense")
    compiler.find_clang.cache_clear()
    monkeypatch.setenv("STRATA_CLANG", str(tmp_path / "gone"))
    with pytest.raises(CompileError, match="no clang.*gone.*apt-get install"):
        compiler.compile_hip(SOURCE)
    monkeypatch.undo()
    compiler.find_clang.cache_clear()


def test_other_libraries(tmp_path):
    for path, reason in ((tmp_path / "gone.so", "cannot open"), (ROOT / "README.md", "invalid ELF"), ("libc.so.6", "hipInit")):
        with pytest.raises(DeviceError, match=f"not a HIP library.*{reason}"):
            runtime.Runtime(path)


def test_a_hip_library_of_a_gpu(tmp_path):
    """AMD's has none of the emulator's own functions; a stand-in shows that none is needed."""
    library = fakes.fake_hip(tmp_path)
    run_python(f"""
import os
import numpy as np
from strata_hip import compiler, errors, runtime
gpu = runtime.open("hip", 1)
assert [each.arch for each in gpu.devices()] == ["gfx1151", "gfx1151"] and not gpu.emulated
assert (gpu.device.index, gpu.device.name, gpu.device.memory, gpu.memory_free) == (1, "Fake Radeon", 4 << 30, 3 << 30)
x = gpu.upload(np.arange(5))
module = gpu.load(compiler.compile_hip({SOURCE!r}))
with gpu.stream() as stream:
    module["scale"].launch(1, 64, x, x, 1.0, 5, stream=stream)
    assert x.download(stream).tolist() == [0, 1, 2, 3, 4]
for call, code, text in (("hipMalloc", 2, r"hipErrorOutOfMemory (2): out of memory. Close what"),
                         ("hipDeviceSynchronize", 700, "hipErrorIllegalAddress (700): something. A kernel failed")):
    os.environ["FAKE_HIP_FAIL"] = f"{{call}}:{{code}}"
    try:
        gpu.empty(3) if call == "hipMalloc" else gpu.synchronize()
        raise SystemExit(f"{{call}} does not fail")
    except runtime.HipError as error:
        assert f"{{call}} failed: {{text}}" in str(error) and isinstance(error, errors.DeviceMemoryError) == (code == 2), error
""", STRATA_HIP_LIBRARY=library, FAKE_HIP_ARCHS="gfx1151,gfx1151", STRATA_RUNTIME=None)


def test_a_fault_is_told_to_who_waits():
    run_python(f"""
import numpy as np
from strata_hip import compiler, runtime
gpu = runtime.open("emulator")
x = gpu.upload(np.zeros(100, np.float32))
gpu.load(compiler.compile_hip({SOURCE!r}))["scale"].launch(2, 64, x, x, 1.0, 128)
for action in (gpu.synchronize, x.download, lambda: gpu.empty(1), gpu.close):
    try:
        action()
        raise SystemExit(f"{{action}} does not fail")
    except runtime.HipError as error:
        assert error.name == "hipErrorIllegalAddress" and "in a new process" in str(error), error
        assert "global_load_b32" in str(error) and "scale" in str(error), error
""")


# docs/python.md

def blocks() -> list[tuple[str, str, str]]:
    """(language, file, text) of each fenced block."""
    text = (ROOT / "docs" / "python.md").read_text()
    return re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_documentation_does_what_it_says(tmp_path):
    environment = dict(os.environ, PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"], PYTHONPATH=python_path(),
                       STRATA_LIBRARY_DIR=str(library_dir().resolve()))
    environment.pop("STRATA_RUNTIME", None)
    printed = ""
    for language, file, text in blocks():
        if file:
            (tmp_path / file).write_text(text)
            continue
        if language == "text":
            assert printed == text
            continue
        command = ["bash", "-e", "-c", text] if language == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        printed = done.stdout


def test_the_documentation_has_its_parts():
    languages = [language for language, _, _ in blocks()]
    assert languages.count("python") >= 5 and languages.count("sh") >= 3 and languages.count("text") >= 6
