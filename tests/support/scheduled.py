"""Graphs of ggml's scheduler: they have a uid, and their inputs come from the host. Only those can be recognised when they come again."""
from typing import Any, Callable, List, Optional

import numpy as np

from . import ggml
from .ggml import ffi, lib


def scaled_sum(ctx: Any, x: Any, b: Any) -> List[Any]:
    """scale(x, 2) + b"""
    scaled = lib.ggml_scale(ctx, x, 2.0)
    return [scaled, lib.ggml_add(ctx, scaled, b)]


class Scheduled:
    """A graph of two f32 inputs of `size` elements, or the second of `size_b`. `build(ctx, x, b)` gives all its nodes; the last one is the result."""

    def __init__(self, size: int, build: Callable[..., List[Any]] = scaled_sum, size_b: Optional[int] = None):
        self.size = size
        cpu = ggml.backend("CPU")
        self.scheduler = lib.ggml_backend_sched_new([ggml.backend(), cpu], ffi.NULL, 2, 512, False, False)
        self.memory = ffi.new("char[]", 1 << 19)
        self.ctx = lib.ggml_init({"mem_size": len(self.memory), "mem_buffer": self.memory, "no_alloc": True})
        self.x = lib.ggml_new_tensor_1d(self.ctx, ggml.TYPES["f32"], size)
        self.b = lib.ggml_new_tensor_1d(self.ctx, ggml.TYPES["f32"], size_b or size)
        for tensor in (self.x, self.b):
            lib.ggml_set_input(tensor)
        nodes = build(self.ctx, self.x, self.b)
        self.y = nodes[-1]
        lib.ggml_set_output(self.y)
        for tensor in nodes:
            lib.ggml_backend_sched_set_tensor_backend(self.scheduler, tensor, ggml.backend())
        self.graph = lib.ggml_new_graph_custom(self.ctx, 256, False)
        lib.ggml_build_forward_expand(self.graph, self.y)
        assert lib.ggml_backend_sched_alloc_graph(self.scheduler, self.graph)

    def set(self, x: np.ndarray, b: np.ndarray) -> None:
        for tensor, data in ((self.x, x), (self.b, b)):
            lib.ggml_backend_tensor_set(tensor, ffi.cast("void *", data.ctypes.data), 0, data.nbytes)

    def start(self) -> int:
        """Gives the graph to the device; the status."""
        return lib.ggml_backend_sched_graph_compute_async(self.scheduler, self.graph)

    def get(self) -> np.ndarray:
        y = np.empty(lib.ggml_nelements(self.y), np.float32)
        lib.ggml_backend_tensor_get(self.y, ffi.cast("void *", y.ctypes.data), 0, y.nbytes)
        return y

    def compute(self, x: np.ndarray, b: np.ndarray) -> np.ndarray:
        self.set(x, b)
        assert lib.ggml_backend_sched_graph_compute(self.scheduler, self.graph) == lib.GGML_STATUS_SUCCESS
        return self.get()

    def close(self):
        lib.ggml_backend_sched_free(self.scheduler)
        lib.ggml_free(self.ctx)
