"""Launch lists as HIP graphs: when they are captured, when not, and that nothing but the number of calls changes."""
import json
import threading

import numpy as np
import pytest

from support import fakes, ggml
from support.ggml import ffi, lib
from support.ops import new_rng
from support.process import run_python
from support.scheduled import Scheduled

COUNTERS = ("graphs_planned", "graphs_replayed", "graphs_captured", "graph_launches", "launches")
K = 64
CAPTURED_AT = 2  # the run, from 0 on, that is the first to be one


class Counted:
    """How much the counters have grown since it was made."""

    def __init__(self):
        self.before = self._now()

    @staticmethod
    def _now():
        return np.array([ggml.counter(name) for name in COUNTERS], np.int64)

    def __getitem__(self, name: str) -> int:
        return int((self._now() - self.before)[COUNTERS.index(name)])


def chain(length: int):
    """x * 1.0001 ** length + b"""
    def build(ctx, x, b):
        nodes = []
        for _ in range(length):
            x = lib.ggml_scale(ctx, x, 1.0001)
            nodes.append(x)
        return [*nodes, lib.ggml_add(ctx, x, b)]
    return build


def chain_values(x: np.ndarray, b: np.ndarray, length: int) -> np.ndarray:
    for _ in range(length):
        x = x * np.float32(1.0001)
    return x + b


def product(ctx, x, b):
    """2 * x, a matrix of one row, times b, a matrix of columns as long"""
    result = lib.ggml_mul_mat(ctx, x, lib.ggml_reshape_2d(ctx, b, K, b.ne[0] // K))
    return [result, lib.ggml_scale(ctx, result, 2.0)]


def test_a_list_becomes_a_graph_at_its_second_replay():
    rng = new_rng()
    scheduled = Scheduled(3000)
    counted = Counted()
    for run in range(6):
        x, b = rng.standard_normal((2, 3000), dtype=np.float32)
        np.testing.assert_array_equal(scheduled.compute(x, b), x * np.float32(2) + b)
        assert counted["graphs_captured"] == (run >= CAPTURED_AT)
        assert counted["graph_launches"] == max(0, run - CAPTURED_AT + 1)
        assert counted["launches"] == 2 * (run + 1), "the kernels of a graph count as those of a list"
    scheduled.close()
    assert counted["graphs_planned"] == 1 and counted["graphs_replayed"] == 5


def test_two_graphs_in_turn_have_one_each_and_a_dropped_plan_none():
    rng = new_rng()
    graphs = [Scheduled(64 + i) for i in range(12)]  # more than plans are kept

    def compute(scheduled):
        x, b = rng.standard_normal((2, scheduled.size), dtype=np.float32)
        np.testing.assert_array_equal(scheduled.compute(x, b), x * np.float32(2) + b)

    counted = Counted()
    for _ in range(4):
        for scheduled in graphs[:2]:
            compute(scheduled)
    assert counted["graphs_captured"] == 2 and counted["graph_launches"] == 4
    for scheduled in graphs[2:]:
        compute(scheduled)
    for run in range(4):
        compute(graphs[0])
        assert counted["graphs_captured"] == 2 + (run >= CAPTURED_AT)
    assert counted["graphs_planned"] == 13
    for scheduled in graphs:
        scheduled.close()


@pytest.mark.parametrize("columns,captured", [(1, True), (32, True), (33, False), (256, False)])
def test_prefill_is_not_captured(columns, captured):
    rng = new_rng()
    scheduled = Scheduled(K, product, K * columns)
    counted = Counted()
    for _ in range(5):
        x, b = rng.standard_normal(K, dtype=np.float32), rng.standard_normal(K * columns, dtype=np.float32)
        np.testing.assert_allclose(scheduled.compute(x, b), 2 * (b.reshape(columns, K).astype(np.float64) @ x), atol=1e-4)
    scheduled.close()
    assert counted["graphs_captured"] == captured and counted["graphs_replayed"] == 4


def test_host_writes_wait_for_a_graph():
    """The host writes new inputs right after an asynchronous launch, which must see the old ones."""
    rng = new_rng()
    scheduled = Scheduled(100_000, chain(40))
    nan = np.full(scheduled.size, np.nan, np.float32)
    counted = Counted()
    for _ in range(5):
        x, b = rng.standard_normal((2, scheduled.size), dtype=np.float32)
        scheduled.set(x, b)
        assert scheduled.start() == lib.GGML_STATUS_SUCCESS
        scheduled.set(nan, nan)
        np.testing.assert_array_equal(scheduled.get(), chain_values(x, b, 40))
    assert counted["graph_launches"] == 3
    scheduled.close()


def test_synchronize_and_events_wait_for_a_graph():
    rng = new_rng()
    scheduled = Scheduled(100_000, chain(40))
    second = lib.ggml_backend_dev_init(ggml.device(), ffi.NULL)
    event = lib.ggml_backend_event_new(ggml.device())
    counted = Counted()
    for run in range(6):
        x, b = rng.standard_normal((2, scheduled.size), dtype=np.float32)
        scheduled.set(x, b)
        assert scheduled.start() == lib.GGML_STATUS_SUCCESS
        back = np.zeros_like(x)
        waits = ggml.backend()
        if run % 2 == 0:  # another backend reads the result after an event, without any host wait in between
            lib.ggml_backend_event_record(event, ggml.backend())
            lib.ggml_backend_event_wait(second, event)
            waits = second
        lib.ggml_backend_tensor_get_async(waits, scheduled.y, ffi.cast("void *", back.ctypes.data), 0, back.nbytes)
        lib.ggml_backend_synchronize(waits)
        np.testing.assert_array_equal(back, chain_values(x, b, 40))
    assert counted["graph_launches"] == 4
    lib.ggml_backend_event_synchronize(event)
    lib.ggml_backend_event_free(event)
    lib.ggml_backend_free(second)
    scheduled.close()


def test_a_graph_that_runs_keeps_its_memory():
    """The buffer is freed, and so is the plan, while the graph is on its way."""
    rng = new_rng()
    errors = ggml.counter("errors")
    scheduled = Scheduled(100_000, chain(60))
    for _ in range(3):
        x, b = rng.standard_normal((2, scheduled.size), dtype=np.float32)
        scheduled.set(x, b)
        assert scheduled.start() == lib.GGML_STATUS_SUCCESS
    scheduled.close()
    lib.ggml_backend_synchronize(ggml.backend())
    own = lib.ggml_backend_dev_init(ggml.device(), ffi.NULL)
    lib.ggml_backend_free(own)
    assert ggml.counter("errors") == errors


def test_other_threads_may_wait_while_a_graph_is_captured():
    """A stream that is captured cannot be waited for; transfers of other threads do that at any time."""
    rng = new_rng()
    stop, errors = threading.Event(), ggml.counter("errors")
    other = Scheduled(100)

    def transfer():
        data = np.ones(100, np.float32)
        while not stop.is_set():
            other.set(data, data)

    thread = threading.Thread(target=transfer)
    thread.start()
    counted = Counted()
    try:
        for _ in range(10):
            scheduled = Scheduled(500, chain(100))
            x, b = rng.standard_normal((2, 500), dtype=np.float32)
            for _ in range(4):
                np.testing.assert_array_equal(scheduled.compute(x, b), chain_values(x, b, 100))
            scheduled.close()
    finally:
        stop.set()
        thread.join()
    other.close()
    assert counted["graphs_captured"] == 10 and ggml.counter("errors") == errors


RUNS = """
import numpy as np
from support import ggml
from support.scheduled import Scheduled
scheduled = Scheduled(100)
for i in range(5):
    x = np.full(100, i, np.float32)
    y = scheduled.compute(x, x)
    assert COMPUTES is False or (y == 3 * i).all(), y
print(*(ggml.counter(name) for name in ("graphs_captured", "graph_launches", "launches", "errors")))
"""
EMULATED, FAKED = RUNS.replace("COMPUTES", "True"), RUNS.replace("COMPUTES", "False")


def test_calls_as_the_device_sees_them(tmp_path):
    file = tmp_path / "counts.json"
    run_python(EMULATED, STRATA_COUNT=str(file))
    counts = json.loads(file.read_text())
    assert counts["graphs"] == {"": {"instantiated": 1, "launched": 3}} and len(counts["launches"]) == 10


@pytest.mark.parametrize("variable", [{"STRATA_DISABLE": "graphs"}, {"STRATA_SYNC": "1"}])
def test_switched_off(variable):
    assert run_python(EMULATED, **variable).stdout == "0 0 10 0\n"


@pytest.mark.parametrize("call", ["hipStreamBeginCapture", "hipStreamEndCapture", "hipGraphInstantiate", "capture"])
def test_where_capture_fails_launches_go_on(tmp_path, call):
    """It is said once, and not tried again."""
    done = run_python(EMULATED, STRATA_EMULATOR_LIBRARY=fakes.faulty_device(tmp_path), FAULT_CALL=call)
    assert done.stdout == "0 0 10 0\n"
    name = "hipModuleLaunchKernel" if call == "capture" else call
    (line,) = [line for line in done.stderr.splitlines() if "without a HIP graph" in line]
    assert line.startswith(f"strata-hip: kernels are launched one by one, without a HIP graph: {name} on STRATA0") and "hipErrorNotSupported" in line


def test_a_graph_that_cannot_be_launched_is_an_error(tmp_path):
    with pytest.raises(AssertionError, match="hipGraphLaunch .STRATA_DISABLE=graphs launches kernels one by one. on STRATA0") as error:
        run_python(EMULATED, STRATA_EMULATOR_LIBRARY=fakes.faulty_device(tmp_path), FAULT_CALL="hipGraphLaunch")
    assert "GGML_STATUS_SUCCESS" in str(error.value)


def test_a_library_without_graphs(tmp_path):
    """As an old libamdhip64: its kernels are launched one by one, and nobody needs to be told."""
    done = run_python(FAKED, STRATA_RUNTIME="hip", STRATA_HIP_LIBRARY=fakes.fake_hip(tmp_path), FAKE_HIP_ARCHS="gfx1151")
    assert done.stdout == "0 0 10 0\n" and "graph" not in done.stderr


FAULT = """
import numpy as np
from support import ggml
from support.ggml import lib
from support.scheduled import Scheduled

def gather(ctx, x, b):
    table, rows = lib.ggml_reshape_2d(ctx, x, 10, 10), lib.ggml_cast(ctx, b, lib.GGML_TYPE_I32)
    picked = lib.ggml_get_rows(ctx, table, lib.ggml_view_1d(ctx, rows, 10, 0))
    return [rows, picked, lib.ggml_scale(ctx, lib.ggml_reshape_1d(ctx, picked, 100), 2.0)]

scheduled = Scheduled(100, gather)
x, good, bad = np.arange(100, dtype=np.float32), np.ones(100, np.float32), np.full(100, 1e9, np.float32)
for i in range(4):
    assert (scheduled.compute(x, good)[:10] == 2 * x[10:20]).all()
scheduled.set(x, bad)
lib.ggml_backend_sched_graph_compute(scheduled.scheduler, scheduled.graph)
error = ggml.last_error()
print(ggml.counter("graph_launches"), np.isnan(scheduled.get()).all(), error)
"""


def test_a_fault_in_a_graph_is_named():
    text = run_python(FAULT).stdout
    assert text.startswith("3 True ")
    for part in ("kernel get_f32", "STRATA0", "hipErrorIllegalAddress", "STRATA_SYNC=1"):
        assert part in text, part
    assert "(GET_ROWS)" in run_python(FAULT, STRATA_SYNC="1").stdout


def test_the_sanitizer_sees_into_a_graph(tmp_path):
    """Nothing to report: it follows what the host does to the memory of a graph's commands (emulator/test_sanitizer_host.py)."""
    reports = tmp_path / "reports"
    assert run_python(EMULATED, STRATA_SANITIZE="all", STRATA_SANITIZE_REPORTS=reports).stdout == "1 3 10 0\n"
    assert not reports.exists() or not reports.read_text()
