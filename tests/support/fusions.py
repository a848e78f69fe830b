"""Graphs with fusions on and off, in memory that is laid out in different ways.

    results, applied = compute(build, inputs, memory="scheduled")     # applied: {"rms_norm_mul": 1}
    expected, _ = compute(build, inputs, fused=False)
"""
import collections
import contextlib
import json

import numpy as np

from .ggml import counter, device, ffi, lib, plugin
from .ops import Graph, Quantized, new_rng

MEMORY = ("apart", "packed", "scheduled")
"""Every tensor has memory of its own; as ggml's allocator packs a graph it knows nothing more of; as its scheduler does, after it has
asked the backend what belongs together."""


def _entry(name: str, signature: str):
    registry = lib.ggml_backend_dev_backend_reg(device())
    address = lib.ggml_backend_reg_get_proc_address(registry, f"ggml_backend_fusion_{name}".encode())
    assert address != ffi.NULL, name
    return ffi.cast(signature, address)


@contextlib.contextmanager
def fusions(on: bool):
    """Switches all fusions of the process as llama.cpp's test-fusion does."""
    handle = _entry("get", "void * (*)(ggml_backend_dev_t)")(device())
    set_enabled = _entry("set_enabled", "void (*)(void *, bool)")
    set_enabled(handle, on)
    try:
        yield
    finally:
        set_enabled(handle, True)


def names() -> list[str]:
    """The labels of all fusions, as test-fusion sees them."""
    handle = _entry("get", "void * (*)(ggml_backend_dev_t)")(device())
    stats = _entry("stats_get", "int (*)(void *, const char **, uint64_t *, int)")
    count = stats(handle, ffi.NULL, ffi.NULL, 0)
    labels, values = ffi.new("const char *[]", count), ffi.new("uint64_t[]", count)
    assert stats(handle, labels, values, count) == count
    return [ffi.string(label).decode() for label in labels]


def switches() -> dict[str, bool]:
    """The switches that the plugin knows, and whether each is on."""
    return json.loads(ffi.string(plugin().strata_hip_device_json()))["switches"]


@contextlib.contextmanager
def counted():
    """Yields a Counter that holds afterwards how often each fusion was applied."""
    before = {name: counter("fusion." + name) for name in names()}
    result = collections.Counter()
    yield result
    result.update({name: counter("fusion." + name) - value for name, value in before.items() if counter("fusion." + name) > value})


def compute(build, inputs, memory: str = "apart", fused: bool = True, backend=None):
    """([the bytes of each output], how often each fusion was applied) of what build(graph, *tensors) returns, a tuple of tensors.
    Whatever is not written stays NaN."""
    with fusions(fused), Graph() as g:
        if backend is not None:
            g.backend = backend
        outputs = build(g, *[g.input(data) for data in inputs])
        with counted() as applied:
            with {"apart": _apart, "packed": packed, "scheduled": _scheduled}[memory](g, outputs):
                results = [g.raw(tensor).tobytes() for tensor in outputs]
    return results, applied


def _start(g: Graph, outputs, run) -> None:
    owners = {id: tensor for tensor in outputs for id in [(tensor.view_src or tensor).buffer]}
    for buffer in owners:
        lib.ggml_backend_buffer_clear(buffer, 0xFF)
    for tensor, data in g._inputs:
        g.set(tensor, data)
    assert run() == lib.GGML_STATUS_SUCCESS


@contextlib.contextmanager
def _apart(g: Graph, outputs):
    for tensor in outputs:  # what is read here has to be written, also where no node reads it
        lib.ggml_set_output(tensor)
    g.run(*outputs)
    yield


@contextlib.contextmanager
def packed(g: Graph, outputs):
    """Computes a graph as ggml's allocator packs it, in memory that was NaN before. Results can be read inside of the block."""
    for tensor in outputs:
        lib.ggml_set_output(tensor)
    graph = g.graph(*outputs)
    allocator = lib.ggml_gallocr_new(lib.ggml_backend_get_default_buffer_type(g.backend))
    try:
        assert lib.ggml_gallocr_alloc_graph(allocator, graph)
        _start(g, outputs, lambda: lib.ggml_backend_graph_compute(g.backend, graph))
        yield
    finally:
        lib.ggml_gallocr_free(allocator)


@contextlib.contextmanager
def _scheduled(g: Graph, outputs):
    for tensor in outputs:
        lib.ggml_set_output(tensor)
    graph = g.graph(*outputs)
    cpu = lib.ggml_backend_init_by_name(b"CPU", ffi.NULL)
    scheduler = lib.ggml_backend_sched_new([g.backend, cpu], ffi.NULL, 2, 1024, False, False)
    try:
        for tensor, _ in g._inputs:
            lib.ggml_backend_sched_set_tensor_backend(scheduler, tensor, g.backend)
        assert lib.ggml_backend_sched_alloc_graph(scheduler, graph)
        _start(g, outputs, lambda: lib.ggml_backend_sched_graph_compute(scheduler, graph))
        yield
    finally:
        lib.ggml_backend_sched_free(scheduler)
        lib.ggml_backend_free(cpu)


# Makers of inputs: functions of a random generator.

def normal(*shape, dtype=np.float32):
    return lambda rng: rng.standard_normal(shape).astype(dtype)


def quantized(kind, *shape):
    return lambda rng: Quantized(rng.standard_normal(shape), kind)


def made(makers) -> list:
    """Fresh inputs."""
    rng = new_rng()
    return [make(rng) for make in makers]


def check_bits(build, inputs, expected, memory):
    """A graph gives with fusions the bytes that it gives without, where it has none; and the fusions that are applied are the expected ones,
    but in "packed" memory, where what the allocator did may forbid them."""
    wanted, applied = compute(build, inputs, fused=False)
    assert not applied
    got, applied = compute(build, inputs, memory)
    assert got == wanted
    if memory != "packed":
        assert applied == expected


def check_refused_over(build, inputs, operand, name):
    """The allocator gave the last output the memory of an input: the fusion of this name is refused, and the bytes of all outputs are those without."""
    def run(fused):
        with fusions(fused), Graph() as g:
            tensors = [g.input(data) for data in inputs]
            outputs = build(g, *tensors)
            graph = g.graph(*outputs)
            g.allocate()
            outputs[-1].data = tensors[operand].data
            for tensor, data in zip(tensors, inputs):
                g.set(tensor, data)
            with counted() as applied:
                assert lib.ggml_backend_graph_compute(g.backend, graph) == lib.GGML_STATUS_SUCCESS
            return [g.raw(tensor).tobytes() for tensor in outputs], applied

    wanted, _ = run(False)
    got, applied = run(True)
    assert got == wanted and name not in applied
