"""Graphs of ggml's operators on one device, with numpy arrays in and out: what strata_hip.ops and the tests are made of."""
import contextlib
import functools
import os
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import plugin
from .errors import ArgumentError, DeviceError, DeviceMemoryError
from .ggml import ffi, lib, plugin_functions
from .quantized import Quantized, dequantize, type_number

Input = Union[np.ndarray, Quantized]
"""What a tensor is made from: an array of float32, float16, int8, int16, int32 or int64, or blocks."""

DTYPES: Dict[str, Any] = {"f32": np.float32, "f16": np.float16, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
_NAMES: Dict[Any, str] = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


def device_name(device: Optional[str] = None) -> str:
    """The ggml device that `device` stands for: "hip", "emulator" or None (as for Llama: $STRATA_RUNTIME, otherwise hip) is the first of
    that kind; any other text is ggml's own name of a device, such as "STRATA0", or "CPU", to compare with. Loads the plugin.

    Raises DeviceError: no such device."""
    if device is None or device in plugin.RUNTIMES:
        return str(plugin.load(device).info["devices"][0]["name"])
    plugin.load(None)
    names = [_text(plugin.ggml_base().ggml_backend_dev_name(each)) for each in plugin.all_devices()]
    if device not in names:
        raise DeviceError(f"no device {device!r}, but {', '.join(names)}")
    return device


@functools.cache
def backend(name: str) -> Any:
    """The ggml backend of a device: one a process, shared by all graphs on it."""
    made = lib.ggml_backend_dev_init(lib.ggml_backend_dev_by_name(name.encode()), ffi.NULL)
    if made == ffi.NULL:
        raise DeviceError(_last_error() or f"ggml does not start {name}")
    return made


def type_name(tensor: Any) -> str:
    """ "f32", "q4_K", ... """
    return _text(ffi.string(lib.ggml_type_name(tensor.type)))


class Graph:
    """Tensors, each with memory of its own on one device, and operators over them.

        with Graph("emulator") as g:
            x = g.input(np.ones((4, 8), np.float32))        # numpy's shape (4, 8) is ggml's ne = {8, 4}
            cache = g.input(np.zeros((16, 8), np.float16))
            part = g.view_2d(cache, 8, 4, cache.nb[1], 2 * cache.nb[1])
            g.run(g.cpy(x, part))
            rows = g.get(cache)                              # any tensor can be read after run()

    Methods that are not below are ggml's functions of the pinned ggml.h, without the prefix and with the context filled in:
    g.rms_norm(x, 1e-6) is ggml_rms_norm(ctx, x, 1e-6). ggml checks their arguments with assertions, which end the process; the
    functions of strata_hip.ops check before. A graph is closed by close(), at the end of a with block, or when it is forgotten.

    Attributes: device, ggml's name of the device; backend, its ggml_backend_t; ctx, the ggml_context that holds the tensors."""

    def __init__(self, device: Optional[str] = None, *, tensors: int = 256):
        """device: as for device_name(). tensors: how many there can be. Raises DeviceError."""
        self.device = device_name(device)
        self.backend: Any = backend(self.device)
        self._memory: Any = ffi.new("char[]", lib.ggml_tensor_overhead() * tensors + lib.ggml_graph_overhead_custom(tensors, False) * 2)
        self.ctx: Any = lib.ggml_init({"mem_size": len(self._memory), "mem_buffer": self._memory, "no_alloc": True})
        self._tensors = tensors
        self._inputs: List[Tuple[Any, np.ndarray]] = []
        self._buffer: Any = ffi.NULL

    def close(self) -> None:
        """Frees the tensors."""
        if self.ctx != ffi.NULL:
            lib.ggml_backend_buffer_free(self._buffer)
            lib.ggml_free(self.ctx)
            self._buffer = self.ctx = ffi.NULL

    def __enter__(self) -> "Graph":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # __init__ has failed
            self.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name == "ctx" or not hasattr(lib, "ggml_" + name):
            raise AttributeError(f"neither {type(self).__name__} nor ggml has {name!r}")
        function = getattr(lib, "ggml_" + name)
        return lambda *arguments: function(self.ctx, *arguments)

    def tensor(self, ne: Sequence[int], type: str = "f32") -> Any:
        """A tensor without data; `ne` in ggml's order, innermost first."""
        return lib.ggml_new_tensor(self.ctx, type_number(type), len(ne), [int(n) for n in ne])

    def input(self, data: Input) -> Any:
        """A tensor with this data, which is copied to the device by run(). Raises ArgumentError for an array of another dtype."""
        if isinstance(data, Quantized):
            made = self.tensor(data.shape[::-1], data.type)
            raw = data.raw
        else:
            raw = np.asarray(data)
            if raw.dtype not in _NAMES:
                raise ArgumentError(f"an array of {raw.dtype} is no tensor; ggml has {', '.join(map(str, _NAMES))}")
            made = self.tensor(raw.shape[::-1] or (1,), _NAMES[raw.dtype])
        self._inputs.append((made, np.ascontiguousarray(raw)))
        lib.ggml_set_input(made)
        return made

    def supported(self, tensor: Any) -> bool:
        """What the device says of computing this node."""
        return bool(lib.ggml_backend_supports_op(self.backend, tensor))

    def refusal(self, tensor: Any) -> Optional[str]:
        """Why the device does not compute this node; None if it does."""
        if self.supported(tensor):
            return None
        reason = plugin_functions().strata_hip_refusal(tensor) if _is_ours(self.device) else ffi.NULL
        return f"{self.device} does not compute it" if reason == ffi.NULL else _text(ffi.string(reason))

    def graph(self, *outputs: Any) -> Any:
        """A ggml_cgraph that computes the outputs."""
        graph = lib.ggml_new_graph_custom(self.ctx, self._tensors, False)
        for output in outputs:
            lib.ggml_build_forward_expand(graph, output)
        return graph

    def allocate(self) -> None:
        """Gives all tensors memory and copies the inputs. run() does it by itself. Raises DeviceMemoryError."""
        if self._buffer != ffi.NULL:
            return
        self._buffer = lib.ggml_backend_alloc_ctx_tensors(self.ctx, self.backend)
        if self._buffer == ffi.NULL:
            raise DeviceMemoryError(_last_error() or f"{self.device} has no memory for these tensors")
        self._prepare()
        for tensor, data in self._inputs:
            self.set(tensor, data)

    def _prepare(self) -> None:
        """Called once, with memory allocated and before it is filled."""

    def run(self, *outputs: Any) -> Any:
        """Computes; returns the outputs as arrays (one array for one output). Raises DeviceError if the device refuses or fails."""
        graph = self.graph(*outputs)
        self.allocate()
        for i in range(lib.ggml_graph_n_nodes(graph)):
            node = lib.ggml_graph_node(graph, i)
            if not self.supported(node):
                raise DeviceError(f"{_text(ffi.string(lib.ggml_op_desc(node)))} is refused: {self.refusal(node)}")
        self._compute(graph)
        results = [self.get(output) for output in outputs]
        return results[0] if len(results) == 1 else results

    def _compute(self, graph: Any) -> None:
        ours = plugin.loaded()
        errors = ours.thread_errors if ours else 0
        status = lib.ggml_backend_graph_compute(self.backend, graph)
        # a fault shows after the call has succeeded
        if status != lib.GGML_STATUS_SUCCESS or (ours and ours.thread_errors != errors):
            raise DeviceError(_last_error() or f"{self.device} failed: status {status}")

    def set(self, tensor: Any, data: np.ndarray) -> None:
        """Copies an array's bytes to a contiguous tensor. Raises ArgumentError if it has another size."""
        data = np.ascontiguousarray(data)
        if data.nbytes != lib.ggml_nbytes(tensor):
            raise ArgumentError(f"{data.nbytes} bytes are no data of a tensor of {lib.ggml_nbytes(tensor)}")
        lib.ggml_backend_tensor_set(tensor, ffi.cast("void *", data.ctypes.data), 0, data.nbytes)

    def raw(self, tensor: Any) -> np.ndarray:
        """A tensor's ggml_nbytes bytes."""
        data = np.empty(lib.ggml_nbytes(tensor), np.uint8)
        lib.ggml_backend_tensor_get(tensor, ffi.cast("void *", data.ctypes.data), 0, data.nbytes)
        return data

    def get(self, tensor: Any) -> np.ndarray:
        """A tensor's values, any strides; block types and bf16 as float32. The shape is ne reversed, leading ones dropped down to
        what ggml_n_dims says."""
        data = self.raw(tensor)
        name = type_name(tensor)
        shape = [tensor.ne[i] for i in range(lib.ggml_n_dims(tensor))][::-1]
        if lib.ggml_nelements(tensor) == 0:
            return np.empty(0, DTYPES.get(name, np.float32))
        strides = [tensor.nb[i] for i in range(lib.ggml_n_dims(tensor))][::-1]
        if name in DTYPES:
            return np.lib.stride_tricks.as_strided(data.view(DTYPES[name]), shape, strides).copy()
        row = lib.ggml_row_size(tensor.type, tensor.ne[0])
        rows = np.lib.stride_tricks.as_strided(data, shape[:-1] + [row], strides[:-1] + [1])
        return self._dequantize(rows.copy(), name)

    _dequantize = staticmethod(dequantize)


def _is_ours(name: str) -> bool:
    ours = plugin.loaded()
    return ours is not None and any(name == each["name"] for each in ours.info["devices"])


def _last_error() -> str:
    ours = plugin.loaded()
    return ours.last_error if ours else ""


def _text(name: bytes) -> str:
    return os.fsdecode(name)
