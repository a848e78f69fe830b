"""STRATA_SANITIZE=host: what a program does to memory that its queued work uses."""
import ctypes
import time

import numpy as np
import pytest

from support.hip import DEVICE_TO_HOST, HOST_TO_DEVICE
from support.instruments import sanitizing
from support.kernels import basic_kernels, copy_args, store_args

ITEMS = 32
RELAXED = 2


started, hip = sanitizing("host")


def pinned(hip, items: int = ITEMS) -> tuple[int, np.ndarray]:
    address = hip.host_malloc(4 * items)
    array = np.frombuffer((ctypes.c_uint32 * items).from_address(address), np.uint32)
    array[:] = 7
    return address, array


def upload(hip, to: int, address: int, stream: int, items: int = ITEMS) -> None:
    hip.call("hipMemcpyAsync", to, address, 4 * items, HOST_TO_DEVICE, stream)


def download(hip, address: int, source: int, stream: int, items: int = ITEMS) -> None:
    hip.call("hipMemcpyAsync", address, source, 4 * items, DEVICE_TO_HOST, stream)


@pytest.mark.parametrize("waits", [True, False])
def test_host_writes_what_a_copy_reads(hip, waits):
    data, stream = hip.malloc(4 * ITEMS), hip.stream()
    address, array = pinned(hip)
    upload(hip, data, address, stream)
    if waits:
        hip.synchronize(stream)
    array[3] = 1
    hip.synchronize(stream)
    reports = hip.reports()
    assert bool(reports) == (not waits), reports
    assert hip.download(data, ITEMS, np.uint32)[3] == (7 if waits else 1)  # the copy comes as late as it may
    for text in reports:
        assert "host: the host writes memory that pending work reads" in text
        assert "accessed by" in text and "the work: hipMemcpyAsync, queued by hipMemcpyAsync called by" in text


@pytest.mark.parametrize("waits", [True, False])
def test_host_reads_what_a_copy_writes(hip, waits):
    data, stream = hip.upload(np.arange(ITEMS, dtype=np.uint32)), hip.stream()
    address, array = pinned(hip)
    download(hip, address, data, stream)
    if waits:
        hip.synchronize(stream)
    seen = int(array[5])
    hip.synchronize(stream)
    reports = hip.reports()
    assert bool(reports) == (not waits), reports
    assert all("the host reads memory that pending work writes" in text for text in reports)
    assert not waits or seen == 5


@pytest.mark.parametrize("waits", [True, False])
def test_kernel_reads_pinned_memory(hip, waits):
    data, stream = hip.malloc(4 * ITEMS), hip.stream()
    address, array = pinned(hip)
    hip.launch(hip.kernel(basic_kernels(), "copy"), 1, 32, copy_args(data, address), stream=stream)
    if waits:
        hip.synchronize(stream)
    array[0] = 1
    hip.synchronize(stream)
    reports = hip.reports()
    assert bool(reports) == (not waits), reports
    assert all("pending work uses" in text and "the work: kernel copy" in text for text in reports)


@pytest.mark.parametrize("waits", [True, False])
def test_kernel_writes_pinned_memory(hip, waits):
    stream = hip.stream()
    address, array = pinned(hip)
    hip.launch(hip.kernel(basic_kernels(), "store"), 1, 32, store_args(address, 0, 100), stream=stream)
    if waits:
        hip.synchronize(stream)
    seen = int(array[2])
    hip.synchronize(stream)
    reports = hip.reports()
    assert seen == (102 if waits else 7)
    assert bool(reports) == (not waits), reports
    assert all("the host read memory before pending work wrote it" in text for text in reports)


def test_reading_with_a_kernel_that_reads(hip):
    data, stream = hip.malloc(4 * ITEMS), hip.stream()
    address, array = pinned(hip)
    hip.launch(hip.kernel(basic_kernels(), "copy"), 1, 32, copy_args(data, address), stream=stream)
    assert array[1] == 7
    hip.synchronize(stream)
    assert hip.reports() == []


def test_another_part_of_the_same_page(hip):
    data, stream = hip.malloc(4 * ITEMS), hip.stream()
    address, array = pinned(hip, 2 * ITEMS)
    upload(hip, data, address, stream)
    array[ITEMS:] = 9
    assert array[ITEMS + 1] == 9 and array[0] == 7
    hip.synchronize(stream)
    assert hip.reports() == []


@pytest.mark.parametrize("kind", ["device", "pinned"])
@pytest.mark.parametrize("waits", [True, False])
def test_freeing_what_is_in_use(hip, kind, waits):
    data, stream = hip.malloc(4 * ITEMS), hip.stream()
    address, _ = pinned(hip)
    upload(hip, data, address, stream)
    if waits:
        hip.synchronize(stream)
    if kind == "device":
        hip.free(data)
    else:
        hip.call("hipHostFree", address)
    reports = hip.reports()
    assert bool(reports) == (not waits), reports
    assert all(("hipFree" if kind == "device" else "hipHostFree") + " of memory that pending work" in text for text in reports)


def test_freeing_what_a_kernel_uses(hip):
    data, stream = hip.malloc(4 * ITEMS), hip.stream()
    hip.launch(hip.kernel(basic_kernels(), "store"), 1, 32, store_args(data), stream=stream)
    hip.free(data)
    (text,) = hip.reports()
    assert "hipFree of memory that pending work uses" in text and "kernel store" in text


def test_pageable_memory(hip):
    """Whole pages of it are watched."""
    items = 1 << 14
    data, stream = hip.upload(np.arange(items, dtype=np.uint32)), hip.stream()
    array = np.zeros(items, np.uint32)
    download(hip, array.ctypes.data, data, stream, items)
    seen = int(array[items // 2])
    hip.synchronize(stream)
    assert seen == 0 or seen == items // 2
    (text,) = hip.reports()
    assert "the host reads memory that pending work writes" in text
    hip.reset()
    data = hip.upload(np.arange(items, dtype=np.uint32))
    download(hip, array.ctypes.data, data, 0, items)
    hip.synchronize()
    assert array[items // 2] == items // 2 and hip.reports() == []


def test_work_is_put_off_until_somebody_waits(hip):
    stream = hip.stream()
    before = hip.counters()[0]
    hip.launch(hip.kernel(basic_kernels(), "nothing"), 1, 32, stream=stream)
    assert hip.counters()[0] == before
    hip.synchronize(stream)
    assert hip.counters()[0] == before + 1


def test_copies_between_streams_that_nothing_orders(hip):
    """A copy to the host does not wait for another stream's kernel, so a missing event shows in the result."""
    data, compute, copies = hip.upload(np.zeros(ITEMS, np.uint32)), hip.stream(), hip.stream()
    address, array = pinned(hip)
    store = hip.kernel(basic_kernels(), "store")
    hip.launch(store, 1, 32, store_args(data, 0, 100), stream=compute)
    download(hip, address, data, copies)
    hip.synchronize(copies)
    assert array[1] == 0
    event = hip.event()
    hip.call("hipEventRecord", event, compute)
    hip.call("hipStreamWaitEvent", copies, event, 0)
    download(hip, address, data, copies)
    hip.synchronize(copies)
    assert array[1] == 101 and hip.reports() == []


def test_queries_make_progress(hip):
    stream, event = hip.stream(), hip.event()
    hip.launch(hip.kernel(basic_kernels(), "nothing"), 1, 32, stream=stream)
    hip.call("hipEventRecord", event, stream)
    limit = time.monotonic() + 60
    while hip.raw.hipEventQuery(event) != 0:
        assert time.monotonic() < limit, "the event was never reached"


class CapturedGraph:
    """What `body(stream)` queues, as a graph to launch."""

    def __init__(self, hip, body):
        self.hip, self.exec = hip, ctypes.c_void_p()
        stream, graph = hip.stream(), ctypes.c_void_p()
        hip.call("hipStreamBeginCapture", stream, RELAXED)
        body(stream)
        hip.call("hipStreamEndCapture", stream, ctypes.byref(graph))
        hip.call("hipGraphInstantiate", ctypes.byref(self.exec), graph, None, None, ctypes.c_size_t(0))
        hip.call("hipGraphDestroy", graph)

    def launch(self, stream: int) -> None:
        self.hip.call("hipGraphLaunch", self.exec, ctypes.c_void_p(stream))


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("launches", [1, 2])
@pytest.mark.parametrize("access", ["writes", "reads"])
def test_work_in_a_graph(hip, waits, launches, access):
    """Each launch of it is work in flight; what is only captured is not."""
    data, other, stream = hip.malloc(4 * ITEMS), hip.malloc(4 * ITEMS), hip.stream()
    address, array = pinned(hip)
    result, results = pinned(hip)

    def body(to):
        upload(hip, data, address, to)
        hip.launch(hip.kernel(basic_kernels(), "copy"), 1, 32, copy_args(other, data), stream=to)
        download(hip, result, other, to)

    graph = CapturedGraph(hip, body)
    array[0] = 3
    assert results[0] == 7 and hip.reports() == []
    for _ in range(launches):
        graph.launch(stream)
    if waits:
        hip.synchronize(stream)
    if access == "writes":
        array[0] = 4
    else:
        assert results[0] == (3 if waits else 7)
    hip.synchronize(stream)
    reports = hip.reports()
    assert len(reports) == (not waits), reports
    for text in reports:
        assert f"host: the host {access} memory that pending work {'reads' if access == 'writes' else 'writes'}" in text
        assert "the work: hipGraphLaunch (hipMemcpyAsync), queued by hipGraphLaunch called by" in text
    assert results[0] == (4 if access == "writes" and not waits else 3)


@pytest.mark.parametrize("launched", [True, False])
def test_freeing_what_a_graph_uses(hip, launched):
    data, stream = hip.malloc(4 * ITEMS), hip.stream()
    graph = CapturedGraph(hip, lambda to: hip.launch(hip.kernel(basic_kernels(), "store"), 1, 32, store_args(data), stream=to))
    if launched:
        graph.launch(stream)
    hip.free(data)
    reports = hip.reports()
    assert len(reports) == launched
    for text in reports:
        assert "hipFree of memory that pending work uses" in text and "hipGraphLaunch (kernel store)" in text


def test_kernels_of_a_graph_write_pinned_memory(hip):
    stream = hip.stream()
    address, array = pinned(hip)
    graph = CapturedGraph(hip, lambda to: hip.launch(hip.kernel(basic_kernels(), "store"), 1, 32, store_args(address, 0, 100), stream=to))
    graph.launch(stream)
    seen = int(array[2])
    hip.synchronize(stream)
    (text,) = hip.reports()
    assert seen == 7 and "the host read memory before pending work wrote it" in text and "hipGraphLaunch (kernel store)" in text
