"""Graphs on the device: plans and their replay, order of copies against running work, events, several backends, switches."""
import gc
import json
import os
import re
import threading

import numpy as np
import pytest

from support import ggml
from support.ggml import PluginError, ffi, lib
from support.ops import Graph, new_rng, run_op
from support.paths import ROOT
from support.process import run_python
from support.scheduled import Scheduled

COUNTERS = ("graphs_planned", "graphs_replayed", "launches", "nodes")


def counters() -> dict:
    return {name: ggml.counter(name) for name in COUNTERS}


def difference(after: dict, before: dict) -> dict:
    return {name: after[name] - before[name] for name in COUNTERS}


def test_a_graph_with_uid_is_planned_once_and_replayed():
    gc.collect()  # models of other tests that wait for it would be given back in between
    rng = new_rng()
    scheduled = Scheduled(5000)
    before, per_run = counters(), []
    held = None
    for i in range(6):
        x, b = rng.standard_normal((2, 5000), dtype=np.float32)
        start = counters()
        np.testing.assert_array_equal(scheduled.compute(x, b), x * np.float32(2) + b)
        per_run.append(difference(counters(), start)["launches"])
        held = held or ggml.counter("allocated_bytes")
        assert ggml.counter("allocated_bytes") == held
    scheduled.close()
    total = difference(counters(), before)
    assert total["graphs_planned"] == 1 and total["graphs_replayed"] == 5 and total["nodes"] == 2
    assert per_run[0] == 2 and len(set(per_run)) == 1


@pytest.mark.full
def test_memory_stays_flat_over_ten_thousand_replays():
    rng = new_rng()
    scheduled = Scheduled(256)
    x, b = rng.standard_normal((2, 256), dtype=np.float32)
    scheduled.compute(x, b)
    held, resident = ggml.counter("allocated_bytes"), _resident_bytes()
    for _ in range(10_000):
        scheduled.compute(x, b)
    assert ggml.counter("allocated_bytes") == held
    assert _resident_bytes() - resident < 8 << 20
    scheduled.close()


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_many_graphs_in_turn_are_each_right():
    """More graphs than plans are kept."""
    rng = new_rng()
    graphs = [Scheduled(64 + i) for i in range(12)]
    for _ in range(2):
        for scheduled in graphs:
            x, b = rng.standard_normal((2, scheduled.size), dtype=np.float32)
            np.testing.assert_array_equal(scheduled.compute(x, b), x * np.float32(2) + b)
    for scheduled in graphs:
        scheduled.close()


def test_a_graph_without_uid_is_planned_every_time():
    with Graph() as g:
        x = g.input(np.ones(100, np.float32))
        y = g.scale(x, 3.0)
        g.run(y)
        before = counters()
        for _ in range(3):
            np.testing.assert_array_equal(g.run(y), np.full(100, 3, np.float32))
        total = difference(counters(), before)
        assert total["graphs_planned"] == 3 and total["graphs_replayed"] == 0 and total["launches"] == 3


def test_nodes_without_the_compute_flag_are_skipped():
    with Graph() as g:
        x = g.input(np.ones(64, np.float32))
        kept, skipped = g.scale(x, 2.0), g.scale(x, 5.0)
        graph = g.graph(kept, skipped)
        g.allocate()
        skipped.flags &= ~lib.GGML_TENSOR_FLAG_COMPUTE
        before = counters()
        assert lib.ggml_backend_graph_compute(g.backend, graph) == lib.GGML_STATUS_SUCCESS
        assert difference(counters(), before)["launches"] == 1
        np.testing.assert_array_equal(g.get(kept), np.full(64, 2, np.float32))
        assert (g.raw(skipped) == 0xFF).all()


def test_empty_tensors_launch_nothing():
    with Graph() as g:
        x = g.tensor((0, 5))
        y = g.scale(x, 2.0)
        graph = g.graph(y)
        other = g.input(np.ones(3, np.float32))  # something to allocate
        g.allocate()
        assert other.data != ffi.NULL
        before = counters()
        assert lib.ggml_backend_graph_compute(g.backend, graph) == lib.GGML_STATUS_SUCCESS
        assert difference(counters(), before)["launches"] == 0


def test_sources_in_host_memory_are_refused():
    with Graph() as g, Graph("CPU") as host:
        x = host.input(np.ones(64, np.float32))
        host.allocate()
        y = g.scale(x, 2.0)
        graph = g.graph(y)
        g.allocate()
        assert lib.ggml_backend_graph_compute(g.backend, graph) == lib.GGML_STATUS_FAILED
        assert "not in the memory of STRATA0" in ggml.last_error()
        assert (g.raw(y) == 0xFF).all()


def test_an_unsupported_node_is_refused_with_its_reason():
    with Graph() as g:
        x = g.input(np.ones((4, 4), np.float32))
        y = g.sum(g.transpose(x))
        graph = g.graph(y)
        g.allocate()
        assert not g.supported(y)
        assert lib.ggml_backend_graph_compute(g.backend, graph) == lib.GGML_STATUS_FAILED
        assert "SUM" in ggml.last_error() and g.refusal(y) in ggml.last_error()
        with pytest.raises(PluginError, match="refused"):
            g.run(y)


def chain(g: Graph, x, length: int):
    """A long list of launches: x * 1.0001 ** length."""
    for _ in range(length):
        x = g.scale(x, 1.0001)
    return x


def chain_values(x: np.ndarray, length: int) -> np.ndarray:
    for _ in range(length):
        x = x * np.float32(1.0001)
    return x


def test_host_writes_wait_for_the_running_graph():
    """ggml_backend_tensor_set right after an asynchronous graph: the graph must see the old data."""
    rng = new_rng()
    x = rng.standard_normal(200_000, dtype=np.float32)
    with Graph(tensors=128) as g:
        source = g.input(x)
        y = chain(g, source, 40)
        last = g.add(y, source)  # reads the source again at the very end
        graph = g.graph(last)
        g.allocate()
        for _ in range(3):
            g.set(source, x)
            assert lib.ggml_backend_graph_compute_async(g.backend, graph) == lib.GGML_STATUS_SUCCESS
            g.set(source, np.full_like(x, np.nan))
            np.testing.assert_array_equal(g.get(last), chain_values(x, 40) + x)
        # so must a clear
        g.set(source, x)
        assert lib.ggml_backend_graph_compute_async(g.backend, graph) == lib.GGML_STATUS_SUCCESS
        lib.ggml_backend_tensor_memset(source, 0xFF, 0, x.nbytes)
        np.testing.assert_array_equal(g.get(last), chain_values(x, 40) + x)


def test_freeing_a_buffer_waits_for_the_running_graph():
    rng = new_rng()
    x = rng.standard_normal(100_000, dtype=np.float32)
    errors = ggml.counter("errors")
    for _ in range(3):
        with Graph(tensors=64) as g:
            y = chain(g, g.input(x), 30)
            graph = g.graph(y)
            g.allocate()
            assert lib.ggml_backend_graph_compute_async(g.backend, graph) == lib.GGML_STATUS_SUCCESS
    lib.ggml_backend_synchronize(ggml.backend())
    assert ggml.counter("errors") == errors


def new_backend():
    return lib.ggml_backend_dev_init(ggml.device(), ffi.NULL)


def test_events_order_two_backends():
    """The second backend copies the first one's result after an event, without any host wait in between."""
    rng = new_rng()
    x = rng.standard_normal(150_000, dtype=np.float32)
    second = new_backend()
    event = lib.ggml_backend_event_new(ggml.device())
    with Graph(tensors=64) as g:
        source = g.input(x)
        y = chain(g, source, 30)
        graph = g.graph(y)
        target = g.tensor((x.size,))
        g.allocate()
        assert lib.ggml_backend_graph_compute_async(g.backend, graph) == lib.GGML_STATUS_SUCCESS
        lib.ggml_backend_event_record(event, g.backend)
        lib.ggml_backend_event_wait(second, event)
        lib.ggml_backend_tensor_copy_async(second, second, y, target)
        back = np.zeros_like(x)
        lib.ggml_backend_tensor_get_async(second, target, ffi.cast("void *", back.ctypes.data), 0, back.nbytes)
        lib.ggml_backend_synchronize(second)
        np.testing.assert_array_equal(back, chain_values(x, 30))
        lib.ggml_backend_event_synchronize(event)
        lib.ggml_backend_synchronize(g.backend)
    lib.ggml_backend_event_free(event)
    lib.ggml_backend_free(second)


def test_a_copy_between_backends_waits_for_both():
    rng = new_rng()
    x = rng.standard_normal(150_000, dtype=np.float32)
    second = new_backend()
    with Graph(tensors=64) as g:
        source = g.input(x)
        y = chain(g, source, 30)
        graph = g.graph(y)
        target = g.tensor((x.size,))
        g.allocate()
        for _ in range(2):
            assert lib.ggml_backend_graph_compute_async(g.backend, graph) == lib.GGML_STATUS_SUCCESS
            lib.ggml_backend_tensor_copy_async(g.backend, second, y, target)
            # the first backend may not overwrite y before the copy has read it
            nan = np.full_like(x, np.nan)
            lib.ggml_backend_tensor_set_async(g.backend, y, ffi.cast("void *", nan.ctypes.data), 0, nan.nbytes)
            back = np.zeros_like(x)
            lib.ggml_backend_tensor_get_async(second, target, ffi.cast("void *", back.ctypes.data), 0, back.nbytes)
            lib.ggml_backend_synchronize(second)
            np.testing.assert_array_equal(back, chain_values(x, 30))
    lib.ggml_backend_free(second)


def test_two_backends_in_two_threads():
    rng = new_rng()
    inputs = rng.standard_normal((4, 20_000), dtype=np.float32)
    failures = []

    def work(index: int):
        try:
            own = new_backend()
            with Graph(tensors=64) as g:
                g.backend = own
                source = g.input(inputs[index])
                y = chain(g, source, 10)
                graph = g.graph(y)
                g.allocate()
                for _ in range(5):
                    assert lib.ggml_backend_graph_compute(own, graph) == lib.GGML_STATUS_SUCCESS
                    np.testing.assert_array_equal(g.get(y), chain_values(inputs[index], 10))
                    lib.ggml_backend_tensor_memset(y, 0xFF, 0, inputs[index].nbytes)
            lib.ggml_backend_free(own)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


RUN = """
import hashlib
import numpy as np
from support import ggml
from support.ops import Graph
rng = np.random.default_rng(7)
x = rng.standard_normal((50, 300), dtype=np.float32)
with Graph(tensors=64) as g:
    y = g.input(x)
    for i in range(10):
        y = g.add(g.scale(y, 0.9), g.rms_norm(y, 1e-5))
    ggml.lib.ggml_set_name(y, b"the result")
    result = g.run(y)
print(hashlib.sha256(result.tobytes()).hexdigest())
"""


def test_synchronous_launches_and_repetition_give_the_same_bytes():
    asynchronous = run_python(RUN).stdout
    assert len(asynchronous) == 65
    assert run_python(RUN).stdout == asynchronous
    assert run_python(RUN, STRATA_SYNC="1").stdout == asynchronous
    assert run_python(RUN, STRATA_EMULATOR_SYNC="1").stdout == asynchronous
    # settings of other software that change how memory is shared there have no effect here
    assert run_python(RUN, GGML_CUDA_ENABLE_UNIFIED_MEMORY="1", HSA_XNACK="1").stdout == asynchronous


def test_printed_plan_names_nodes_and_kernels():
    text = run_python(RUN, STRATA_PRINT_PLAN="1").stderr
    assert "strata-hip plan: graph uid 0, 30 nodes (30 computed)" in text
    line = next(line for line in text.splitlines() if "the result" in line)
    assert "ADD" in line and "grid" in line and "block" in line
    assert "strata-hip plan" not in run_python(RUN).stderr


def test_disabled_switches_are_listed():
    text = run_python(RUN + """
import json
print(json.loads(ggml.ffi.string(ggml.plugin().strata_hip_device_json()))["switches"])
""", STRATA_DISABLE="wmma,rms_norm_mul").stdout
    assert "'wmma': False" in text and "'rms_norm_mul': False" in text and "'mul_mat_vec': True" in text


def test_every_switch_that_is_asked_for_can_be_set():
    asked = {name for path in (ROOT / "backend").rglob("*.cpp") for name in re.findall(r'disabled(?:\(|\.count\()"(\w+)"', path.read_text())}
    known = json.loads(ffi.string(ggml.plugin().strata_hip_device_json()))["switches"]
    assert {"wmma", "mul_mat_vec", "fusion"} <= asked <= set(known)


def test_a_switch_that_does_not_exist_is_refused():
    with pytest.raises(AssertionError, match="STRATA_DISABLE: nothing is called 'rms_norm_mull'; .* rms_norm_mul,"):
        run_python(RUN, STRATA_DISABLE="wmma,rms_norm_mull")


OUT_OF_MEMORY = """
import numpy as np
from support import ggml
from support.ops import Graph, run_op
lib, ffi = ggml.lib, ggml.ffi
buffer = lib.ggml_backend_alloc_buffer(ggml.backend(), 100 << 20)
print(buffer == ffi.NULL, ggml.last_error())
print(run_op(lambda g, x: g.scale(x, 2.0), np.ones(4, np.float32)))
"""


def test_out_of_device_memory_is_readable_and_harmless():
    text = run_python(OUT_OF_MEMORY, STRATA_EMULATOR_MEMORY="64M").stdout
    assert text.startswith("True ")
    for part in ("hipMalloc of 100.0 MiB (buffer) on STRATA0", "gfx1151", "hipErrorOutOfMemory", "are free", "smaller context", "ttm.pages_limit"):
        assert part in text, part
    assert "[2. 2. 2. 2.]" in text


FAULT = """
import numpy as np
from support import ggml
from support.ops import Graph, PluginError
lib, ffi = ggml.lib, ggml.ffi
with Graph() as g:
    table = g.input(np.ones((10, 64), np.float32))
    rows = g.get_rows(table, g.input(np.array([3, 1_000_000_000], np.int32)))
    lib.ggml_set_name(rows, b"the rows")
    graph = g.graph(rows)
    g.allocate()
    status = lib.ggml_backend_graph_compute(g.backend, graph)
    print(ggml.last_error())
    print("values", np.isnan(g.get(rows)).all())
    print("again", status == lib.GGML_STATUS_FAILED, lib.ggml_backend_graph_compute(g.backend, graph) == lib.GGML_STATUS_FAILED)
"""


@pytest.mark.skipif(os.environ.get("STRATA_RUNTIME", "emulator") != "emulator", reason="provokes a fault")
@pytest.mark.parametrize("synchronous", [False, True])
def test_a_fault_of_a_kernel_is_named_and_survived(synchronous):
    """An index far outside the table: the emulator stops the kernel at the access."""
    text = run_python(FAULT, STRATA_SYNC="1" if synchronous else "").stdout
    for part in ("get_f32_rows", "STRATA0", "hipErrorIllegalAddress", "lane", "new process"):
        assert part in text, part
    assert f"values True\nagain {synchronous} True" in text  # seen at the launch, or at the first wait after it
    if synchronous:
        assert "for node the rows (GET_ROWS)" in text


def test_run_op_reports_refusals():
    with pytest.raises(PluginError, match="SUM"):
        run_op(lambda g, x: g.sum(g.transpose(x)), np.ones((2, 3), np.float32))
