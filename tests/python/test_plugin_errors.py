"""HIP calls that fail: each failure is named, becomes a status or a value that is no number, and the process lives on.
The failing library is a fake one, since no GPU fails on demand."""
import pytest

from support import fakes
from support.process import run_python


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return fakes.fake_hip(tmp_path_factory.mktemp("fake"))


def run(library, code: str, **environment) -> str:
    """Runs code with `lib`, `ffi`, `ggml`, `np`, `Graph`, and fail(function, error) to make a function fail from then on."""
    prelude = """
import os
import ctypes
import numpy as np
from support import ggml
from support.ggml import ffi, lib
from support.ops import Graph, PluginError
setenv = ctypes.CDLL(None).setenv
def fail(function, error):
    setenv(b"FAKE_HIP_FAIL", f"{function}:{error}".encode(), 1)
def works():
    setenv(b"FAKE_HIP_FAIL", b"", 1)
"""
    return run_python(prelude + code, STRATA_RUNTIME="hip", STRATA_HIP_LIBRARY=library, FAKE_HIP_ARCHS="gfx1151", **environment).stdout


def test_buffer_allocation(library):
    text = run(library, """
ggml.plugin()
fail("hipMalloc", 2)
print(lib.ggml_backend_alloc_buffer(ggml.backend(), 97 << 30) == ffi.NULL, ggml.last_error())
works()
buffer = lib.ggml_backend_alloc_buffer(ggml.backend(), 1000)
print(buffer != ffi.NULL)
""")
    assert text.startswith("True hipMalloc of 97.0 GiB (buffer) on STRATA0 (Fake Radeon, gfx1151) failed: hipErrorOutOfMemory (out of memory). "
                           "3.0 GiB of 4.0 GiB are free. ")
    assert "ttm.pages_limit" in text and text.endswith("True\n")


def test_pinned_host_allocation(library):
    text = run(library, """
kind = lib.ggml_backend_dev_host_buffer_type(ggml.device())
fail("hipHostMalloc", 2)
print(lib.ggml_backend_buft_alloc_buffer(kind, 5000) == ffi.NULL, ggml.last_error())
""")
    assert text.startswith("True hipHostMalloc of 4.9 KiB (pinned host buffer) on STRATA0")


def test_backend_creation(library):
    text = run(library, """
device = ggml.device()
fail("hipStreamCreateWithFlags", 2)
print(lib.ggml_backend_dev_init(device, ffi.NULL) == ffi.NULL, ggml.last_error())
works()
print(lib.ggml_backend_dev_init(device, ffi.NULL) != ffi.NULL)
""")
    assert text.startswith("True hipStreamCreateWithFlags on STRATA0") and text.endswith("True\n")


@pytest.mark.parametrize("function", ["hipMemcpyAsync", "hipStreamSynchronize", "hipEventSynchronize", "hipSetDevice"])
def test_a_failed_read_is_no_number(library, function):
    text = run(library, f"""
with Graph() as g:
    x = g.input(np.ones(100, np.float32))
    g.allocate()
    before = ggml.counter("errors")
    fail({function!r}, 700)
    values = g.get(x)
    print(np.isnan(values).all(), ggml.counter("errors") > before, ggml.last_error())
    works()
""")
    assert text.startswith(f"True True {function}") and "STRATA0" in text and "hipErrorIllegalAddress" in text


def test_a_failed_asynchronous_read_is_no_number(library):
    text = run(library, """
with Graph() as g:
    x = g.input(np.ones(100, np.float32))
    g.allocate()
    fail("hipMemcpyAsync", 700)
    values = np.zeros(100, np.float32)
    lib.ggml_backend_tensor_get_async(g.backend, x, ffi.cast("void *", values.ctypes.data), 0, 400)
    print(np.isnan(values).all(), ggml.last_error())
    works()
""")
    assert text.startswith("True hipMemcpyAsync of 400 bytes (device to host) on STRATA0")


def test_a_failed_launch_names_kernel_and_node(library):
    text = run(library, """
with Graph() as g:
    x = g.input(np.ones(100, np.float32))
    y = g.scale(x, 2.0)
    lib.ggml_set_name(y, b"doubled")
    graph = g.graph(y)
    g.allocate()
    fail("hipModuleLaunchKernel", 700)
    print(lib.ggml_backend_graph_compute(g.backend, graph) == lib.GGML_STATUS_FAILED, ggml.last_error())
    works()
    print(lib.ggml_backend_graph_compute(g.backend, graph) == lib.GGML_STATUS_SUCCESS)
""")
    assert text.startswith("True scale/") and "for node doubled (SCALE), grid" in text and "hipModuleLaunchKernel on STRATA0" in text
    assert text.endswith("True\n")


@pytest.mark.parametrize("function, part", [("hipModuleLoadData", "code object scale for gfx1151"), ("hipModuleGetFunction", "kernel scale/")])
def test_a_code_object_that_does_not_load(library, function, part):
    text = run(library, f"""
with Graph() as g:
    y = g.scale(g.input(np.ones(100, np.float32)), 2.0)
    graph = g.graph(y)
    g.allocate()
    fail({function!r}, 999)
    print(lib.ggml_backend_graph_compute(g.backend, graph) == lib.GGML_STATUS_FAILED, ggml.last_error())
""")
    assert text.startswith(f"True {function}") and part in text and "hipErrorUnknown" in text


def test_after_a_fault_the_backend_refuses_to_go_on(library):
    """A fault shows at the next synchronisation; results after it are lost, so later graphs may not seem to succeed."""
    text = run(library, """
with Graph() as g:
    y = g.scale(g.input(np.ones(100, np.float32)), 2.0)
    graph = g.graph(y)
    g.allocate()
    fail("hipStreamSynchronize", 700)
    lib.ggml_backend_synchronize(g.backend)
    print(ggml.last_error())
    works()
    print(lib.ggml_backend_graph_compute(g.backend, graph) == lib.GGML_STATUS_FAILED, ggml.last_error())
""")
    assert text.startswith("hipStreamSynchronize on STRATA0") and "True work given to this backend earlier has failed" in text


def test_a_read_waits_for_a_launch_that_another_read_met_half_way(library):
    """One thread launches while another waits for all queues. A read that comes after both must wait for the launch."""
    text = run(library, """
with Graph() as g:
    x = g.input(np.ones(100, np.float32))
    graph = g.graph(g.scale(x, 2.0))
    g.allocate()
    hip = ctypes.CDLL(os.environ["STRATA_HIP_LIBRARY"])
    running = ctypes.c_void_p.in_dll(hip, "fake_hip_running")
    @ctypes.CFUNCTYPE(None)
    def meanwhile():
        g.get(x)
    ctypes.c_void_p.in_dll(hip, "fake_hip_before_launch").value = ctypes.cast(meanwhile, ctypes.c_void_p).value
    assert lib.ggml_backend_graph_compute_async(g.backend, graph) == lib.GGML_STATUS_SUCCESS
    print(running.value is not None)
    g.get(x)
    print(running.value)
""")
    assert text.split() == ["True", "None"]


def test_a_failure_belongs_to_the_thread_that_met_it(library):
    text = run(library, """
import threading
device = ggml.device()
plugin = ggml.plugin()
def fails():
    lib.ggml_backend_alloc_buffer(ggml.backend(), 97 << 30)
    print(plugin.strata_hip_thread_errors(), ggml.last_error()[:9])
fail("hipMalloc", 2)
thread = threading.Thread(target=fails)
thread.start()
thread.join()
print(plugin.strata_hip_thread_errors(), ggml.counter("errors"), ggml.last_error()[:9])
fail("hipStreamCreateWithFlags", 2)
print(lib.ggml_backend_dev_init(device, ffi.NULL) == ffi.NULL, plugin.strata_hip_thread_errors(), ggml.last_error()[:9])
""")
    assert text == "1 hipMalloc\n0 1 hipMalloc\nTrue 1 hipStream\n"
