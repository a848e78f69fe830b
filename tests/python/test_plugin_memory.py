"""Device properties, buffers and copies of the plugin, through ggml's own functions."""
import json

import numpy as np
import pytest

from support import ggml
from support.ggml import TYPES, ffi, lib
from support.ops import Graph, new_rng
from support.process import run_python

MEBI = 1 << 20


def pointer(array: np.ndarray):
    return ffi.cast("void *", array.ctypes.data)


def bytes_of(rng, size: int) -> np.ndarray:
    return rng.integers(0, 256, size, dtype=np.uint8)


@pytest.fixture
def flat():
    """A function that makes an i8 tensor of so many bytes on the device, and its Graph."""
    graphs = []

    def make(size: int):
        g = Graph()
        graphs.append(g)
        tensor = g.tensor((size,), "i8")
        g.allocate()
        return g, tensor

    yield make
    for g in graphs:
        g.__exit__()


def test_properties():
    props = ffi.new("struct ggml_backend_dev_props *")
    device = ggml.device()
    lib.ggml_backend_dev_get_props(device, props)
    assert ffi.string(props.name) == b"STRATA0"
    assert props.type == lib.GGML_BACKEND_DEVICE_TYPE_GPU
    assert 0 < props.memory_free <= props.memory_total
    assert (getattr(props.caps, "async"), props.caps.host_buffer, props.caps.events) == (True, True, True)
    assert not props.caps.buffer_from_host_ptr and not props.caps.mmap_support
    identity = ffi.string(props.device_id).decode()
    assert identity == identity.lower() and len(identity.split(":")) == 3
    described = json.loads(ffi.string(ggml.plugin().strata_hip_device_json()))
    assert described["devices"][0]["description"] == ffi.string(props.description).decode()
    assert described["ggml_version"] == ffi.string(lib.ggml_version()).decode()
    assert ffi.string(lib.ggml_backend_reg_name(lib.ggml_backend_dev_backend_reg(device))) == b"strata-hip"


def test_features_name_arch_and_runtime():
    registry = lib.ggml_backend_dev_backend_reg(ggml.device())
    get = ffi.cast("ggml_backend_get_features_t", lib.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_get_features"))
    features, found = get(registry), {}
    while features.name != ffi.NULL:
        found[ffi.string(features.name).decode()] = ffi.string(features.value).decode()
        features += 1
    described = json.loads(ffi.string(ggml.plugin().strata_hip_device_json()))
    assert found["ARCH"] == "gfx1151" and found["RUNTIME"] == described["runtime"]
    assert lib.ggml_backend_reg_get_proc_address(registry, b"ggml_backend_set_n_threads") == ffi.NULL


REPORT = """
from support import ggml
lib, ffi = ggml.lib, ggml.ffi

def free():
    sizes = ffi.new("size_t[2]")
    lib.ggml_backend_dev_memory(ggml.device(), sizes, sizes + 1)
    return sizes[0]

size = 40 << 20
held, before = ggml.counter("allocated_bytes"), free()
buffer = lib.ggml_backend_alloc_buffer(ggml.backend(), size)
assert before - free() >= size
assert ggml.counter("allocated_bytes") - held == size
lib.ggml_backend_buffer_free(buffer)
assert ggml.counter("allocated_bytes") == held
assert free() == before
print("told right")
"""


def test_allocation_counts_and_memory_report():
    """On a device whose size does not go with what the host has free at the moment."""
    assert run_python(REPORT, STRATA_EMULATOR_MEMORY="256M").stdout == "told right\n"


@pytest.mark.parametrize("size", [1, 255, MEBI - 1, MEBI, MEBI + 1, 9 * MEBI + 12345])
def test_set_and_get_at_every_staging_size(flat, size):
    rng = new_rng()
    g, tensor = flat(size + 64)
    data = bytes_of(rng, size)
    lib.ggml_backend_tensor_set(tensor, pointer(data), 17, size)
    expected = np.full(size + 64, 0xFF, np.uint8)
    expected[17:17 + size] = data
    np.testing.assert_array_equal(g.raw(tensor), expected)
    part = np.zeros(size, np.uint8)
    lib.ggml_backend_tensor_get(tensor, pointer(part), 17, size)
    np.testing.assert_array_equal(part, data)


def test_memset_and_clear(flat):
    g, tensor = flat(5000)
    lib.ggml_backend_buffer_clear(g._buffer, 0x3E)
    lib.ggml_backend_tensor_memset(tensor, 0x11, 100, 777)
    expected = np.full(5000, 0x3E, np.uint8)
    expected[100:877] = 0x11
    np.testing.assert_array_equal(g.raw(tensor), expected)


@pytest.mark.parametrize("width, rows, stride_tensor, stride_data", [
    (64, 37, 64, 64), (3, 1000, 7, 11), (4096, 700, 4100, 5000), (MEBI + 5, 3, MEBI + 9, MEBI + 6), (1, 4000, 2, 1)])
@pytest.mark.parametrize("through_backend", [False, True])
def test_two_dimensional_copies(flat, width, rows, stride_tensor, stride_data, through_backend):
    rng = new_rng()
    g, tensor = flat(stride_tensor * rows + 40)
    source = bytes_of(rng, stride_data * rows)
    if through_backend:
        lib.ggml_backend_tensor_set_2d_async(g.backend, tensor, pointer(source), 13, width, rows, stride_tensor, stride_data)
        kept, source = source.copy(), source
        source[:] = 0  # the call has taken what it needs
    else:
        lib.ggml_backend_tensor_set_2d(tensor, pointer(source), 13, width, rows, stride_tensor, stride_data)
        kept = source
    expected = np.full(stride_tensor * rows + 40, 0xFF, np.uint8)
    for row in range(rows):
        expected[13 + row * stride_tensor:][:width] = kept[row * stride_data:][:width]
    np.testing.assert_array_equal(g.raw(tensor), expected)

    back = np.full(stride_data * rows, 0x55, np.uint8)
    if through_backend:
        lib.ggml_backend_tensor_get_2d_async(g.backend, tensor, pointer(back), 13, width, rows, stride_tensor, stride_data)
        lib.ggml_backend_synchronize(g.backend)
    else:
        lib.ggml_backend_tensor_get_2d(tensor, pointer(back), 13, width, rows, stride_tensor, stride_data)
    wanted = np.full(stride_data * rows, 0x55, np.uint8)
    for row in range(rows):
        wanted[row * stride_data:][:width] = kept[row * stride_data:][:width]
    np.testing.assert_array_equal(back, wanted)


def test_async_set_takes_the_source_at_once(flat):
    rng = new_rng()
    g, tensor = flat(11 * MEBI)
    data = bytes_of(rng, 11 * MEBI)
    kept = data.copy()
    lib.ggml_backend_tensor_set_async(g.backend, tensor, pointer(data), 0, data.size)
    data[:] = 0
    back = np.zeros_like(kept)
    lib.ggml_backend_tensor_get_async(g.backend, tensor, pointer(back), 0, back.size)
    lib.ggml_backend_synchronize(g.backend)
    np.testing.assert_array_equal(back, kept)


def test_copy_between_buffers_and_from_the_host(flat):
    rng = new_rng()
    (g, a), (h, b) = flat(3 * MEBI + 5), flat(3 * MEBI + 5)
    data = bytes_of(rng, 3 * MEBI + 5)
    g.set(a, data)
    lib.ggml_backend_tensor_copy(a, b)
    np.testing.assert_array_equal(h.raw(b), data)
    with Graph("CPU") as cpu:
        host = cpu.input(np.ascontiguousarray(data[::-1]).view(np.int8))
        cpu.allocate()
        lib.ggml_backend_tensor_copy(host, a)
        np.testing.assert_array_equal(g.raw(a), data[::-1])
        lib.ggml_backend_tensor_copy(b, host)
        np.testing.assert_array_equal(cpu.raw(host), data)


def test_host_buffer_type_is_pinned_host_memory():
    kind = lib.ggml_backend_dev_host_buffer_type(ggml.device())
    assert lib.ggml_backend_buft_is_host(kind) and ffi.string(lib.ggml_backend_buft_name(kind)) == b"STRATA0_Host"
    assert not lib.ggml_backend_buft_is_host(lib.ggml_backend_dev_buffer_type(ggml.device()))
    assert not lib.ggml_backend_dev_supports_buft(ggml.device(), kind)
    assert lib.ggml_backend_dev_supports_buft(ggml.device(), lib.ggml_backend_dev_buffer_type(ggml.device()))
    assert not lib.ggml_backend_dev_supports_buft(ggml.device(), lib.ggml_backend_cpu_buffer_type())
    buffer = lib.ggml_backend_buft_alloc_buffer(kind, 3000)
    view = np.frombuffer(ffi.buffer(lib.ggml_backend_buffer_get_base(buffer), 3000), np.uint8)
    lib.ggml_backend_buffer_clear(buffer, 0x77)
    assert (view == 0x77).all()
    lib.ggml_backend_buffer_free(buffer)


def test_tensors_are_aligned_and_inside_their_buffer():
    with Graph() as g:
        tensors = [g.tensor((n,), "i8") for n in (1, 300, 17, 4096)]
        g.allocate()
        base = int(ffi.cast("uintptr_t", lib.ggml_backend_buffer_get_base(g._buffer)))
        offsets = [int(ffi.cast("uintptr_t", tensor.data)) - base for tensor in tensors]
        assert all((base + offset) % 256 == 0 for offset in offsets)
        outside = g.tensor((10,), "i8")
        outside.buffer = g._buffer
        outside.data = ffi.cast("void *", base + lib.ggml_backend_buffer_get_size(g._buffer) - 4)
        memory = ffi.new("char[]", 2048)
        ctx = lib.ggml_init({"mem_size": 2048, "mem_buffer": memory, "no_alloc": True})
        parent = lib.ggml_new_tensor_1d(ctx, TYPES["i8"], 4)
        lib.ggml_backend_tensor_alloc(g._buffer, parent, outside.data)
        parent.ne[0] = 10
        view = lib.ggml_view_1d(ctx, parent, 10, 0)
        parent.ne[0] = 4
        assert lib.ggml_backend_view_init(view) == lib.GGML_STATUS_FAILED
        assert "outside its buffer" in ggml.last_error()
        lib.ggml_free(ctx)


def test_large_models_are_split_into_buffers(monkeypatch):
    monkeypatch.setenv("STRATA_MAX_BUFFER_MB", "2")
    assert lib.ggml_backend_get_max_size(ggml.backend()) == 2 * MEBI
    rng = new_rng()
    with Graph() as g:
        arrays = [bytes_of(rng, MEBI + 1000).view(np.int8) for _ in range(4)]
        tensors = [g.input(array) for array in arrays]
        g.allocate()
        assert len({int(ffi.cast("uintptr_t", tensor.buffer)) for tensor in tensors}) == 4
        for tensor, array in zip(tensors, arrays):
            np.testing.assert_array_equal(g.get(tensor), array)
    for wrong in ("-1", "0", "2 GB", "99999999999999999999"):
        monkeypatch.setenv("STRATA_MAX_BUFFER_MB", wrong)
        assert lib.ggml_backend_get_max_size(ggml.backend()) == 8 << 30
        assert f"STRATA_MAX_BUFFER_MB={wrong} is not a number of MiB" in ggml.last_error()
    monkeypatch.delenv("STRATA_MAX_BUFFER_MB")
    assert lib.ggml_backend_get_max_size(ggml.backend()) == 8 << 30
