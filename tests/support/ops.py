"""Small ggml graphs on the device, with numpy in and out.

    import numpy as np
    from support.ops import Graph, Quantized, new_rng, nmse, run_op

    def test_add():
        rng = new_rng()                                            # prints its seed
        a = rng.standard_normal((3, 64), dtype=np.float32)         # numpy shape (3, 64) is ggml's ne = {64, 3}
        b = rng.standard_normal((1, 64), dtype=np.float32)
        out = run_op(lambda g, x, y: g.add(x, y), a, b)            # g.add(x, y) is ggml_add(ctx, x, y)
        np.testing.assert_array_equal(out, a + b)

    def test_mul_mat():
        w = Quantized(rng.standard_normal((48, 256)), "q4_0")      # w.values: what the blocks really hold, float32
        x = rng.standard_normal((5, 256), dtype=np.float32)
        out = run_op(lambda g, a, b: g.mul_mat(a, b), w, x)        # (5, 48)
        assert nmse(out, x.astype(np.float64) @ w.values.T.astype(np.float64)) < 5e-4

    def test_by_hand():
        with Graph() as g:
            x = g.input(np.ones((4, 8), np.float32))
            cache = g.input(np.zeros((16, 8), np.float16))         # array's dtype gives f32, f16, i32, i64, i8
            view = g.view_2d(cache, 8, 4, cache.nb[1], 2 * cache.nb[1])
            out = g.cpy(x, view)
            assert g.refusal(out) is None                          # or the reason as text
            g.run(out)
            rows = g.get(cache)                                    # any tensor can be read after run()

Before a run the whole buffer is filled with 0xff (NaN in every float type), so an element that a kernel does not write
shows. After it, every byte outside the computed nodes is compared with what was there before.
"""
import os

import gguf.quants
import numpy as np

from .ggml import TYPES, PluginError, backend, counter, ffi, last_error, lib

_DTYPES = {"f32": np.float32, "f16": np.float16, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_CHECKED_BYTES = 64 << 20  # larger buffers are not compared byte by byte


def new_rng() -> np.random.Generator:
    """A generator with a fresh seed, printed; STRATA_TEST_SEED repeats one."""
    seed = int(os.environ.get("STRATA_TEST_SEED") or np.random.SeedSequence().entropy % 2**32)
    print(f"STRATA_TEST_SEED={seed}")
    return np.random.default_rng(seed)


def nmse(actual, expected) -> float:
    """Normalised mean squared error, as test-backend-ops has it; infinite if NaN or infinity sits in different places."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    finite = np.isfinite(expected)
    if not np.array_equal(np.isfinite(actual), finite) or not np.array_equal(actual[~finite], expected[~finite], equal_nan=True):
        return float("inf")
    power = np.sum(expected[finite] ** 2)
    error = np.sum((actual[finite] - expected[finite]) ** 2)
    return float(error / power) if power > 0 else float(error)


def type_name(tensor) -> str:
    """ "f32", "q4_K", ... """
    return ffi.string(lib.ggml_type_name(tensor.type)).decode()


def quantize(values: np.ndarray, type: str) -> np.ndarray:
    """float32 values to raw blocks (uint8, last axis bytes of a row) by ggml's own quantiser; a few types ask how much each column
    matters: all the same."""
    values = np.ascontiguousarray(values, np.float32)
    row = values.shape[-1]
    rows = values.size // row
    raw = np.empty((rows, lib.ggml_row_size(TYPES[type], row)), np.uint8)
    importance = ffi.new("float[]", [1.0] * row) if lib.ggml_quantize_requires_imatrix(TYPES[type]) else ffi.NULL
    written = lib.ggml_quantize_chunk(TYPES[type], ffi.cast("float *", values.ctypes.data), ffi.cast("void *", raw.ctypes.data),
                                      0, rows, row, importance)
    assert written == raw.nbytes
    return raw.reshape(*values.shape[:-1], -1)


def quantize_reference(values: np.ndarray, type: str) -> np.ndarray:
    """As quantize(), by ggml's quantize_row_<type>_ref, which for some types takes less care than its quantizer of model files."""
    values = np.ascontiguousarray(values, np.float32)
    rows = values.reshape(-1, values.shape[-1])
    raw = np.zeros((len(rows), lib.ggml_row_size(TYPES[type], rows.shape[1])), np.uint8)
    reference = lib.ggml_get_type_traits(TYPES[type]).from_float_ref
    for row, made in zip(rows, raw):
        reference(ffi.cast("float *", row.ctypes.data), ffi.cast("void *", made.ctypes.data), len(row))
    return raw.reshape(*values.shape[:-1], -1)


def dequantize(raw: np.ndarray, type: str) -> np.ndarray:
    """Raw blocks to float32 by the gguf package's numpy code, which shares nothing with ggml's."""
    if type in ("q1_0", "q2_0"):   # which the package does not know
        bits = 1 if type == "q1_0" else 2
        blocks = raw.reshape(*raw.shape[:-1], -1, 18)
        scale = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
        fields = blocks[..., 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2**bits - 1)
        values = fields.astype(np.float32) * 2 - 1 if bits == 1 else fields.astype(np.float32) - 1
        return (values.reshape(*blocks.shape[:-1], -1) * scale).reshape(*raw.shape[:-1], -1)
    return gguf.quants.dequantize(np.ascontiguousarray(raw), gguf.GGMLQuantizationType[type.upper()])


class Quantized:
    """An input of a block type (or bf16). `values` are the float32 numbers that its blocks hold, `raw` the bytes."""

    def __init__(self, values, type: str, raw: np.ndarray | None = None):
        self.type = type
        self.raw = quantize(values, type) if raw is None else raw
        self.values = dequantize(self.raw, type)


# Where a block has halves as scales.
SCALES = {"q4_0": [0], "q4_1": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q8_0": [0], "q4_K": [0, 2], "q5_K": [0, 2], "q6_K": [208],
          "q1_0": [0], "q2_0": [0], "q2_K": [80, 82], "q3_K": [108], "iq1_s": [0], "iq1_m": [], "iq2_xxs": [0], "iq2_xs": [0],
          "iq2_s": [0], "iq3_xxs": [0], "iq3_s": [0], "iq4_nl": [0], "iq4_xs": [0], "tq1_0": [52], "tq2_0": [64], "mxfp4": [],
          "nvfp4": []}
QUANTIZED_TYPES = list(SCALES)
"""The block types of ggml that tensors have."""
WRITTEN_TYPES = [type for type in QUANTIZED_TYPES if not type.startswith("iq") or type in ("iq4_nl", "iq4_xs")]
"""Those that ggml's CPU code, and so the device, quantizes to."""


def block_elements(type: str) -> int:
    return lib.ggml_blck_size(TYPES[type])


def random_blocks(rng: np.random.Generator, shape, type: str, low: int = 0, high: int = 256) -> Quantized:
    """Blocks of random bytes of low to high - 1, but with finite scales of moderate size."""
    size, elements = lib.ggml_type_size(TYPES[type]), block_elements(type)
    blocks = rng.integers(low, high, (*shape[:-1], shape[-1] // elements, size), np.uint8)
    for at in SCALES[type]:
        blocks[..., at:at + 2] = rng.uniform(-2, 2, (*blocks.shape[:-1], 1)).astype(np.float16).view(np.uint8)
    if type == "iq1_m":      # its half lies in the high nibbles of bytes 49, 51, 53 and 55: exponents 12 to 15
        blocks[..., 55] = blocks[..., 55] & 0x8F | 0x30
    if type == "mxfp4":      # a power of two
        blocks[..., 0] = rng.integers(120, 130, blocks.shape[:-1])
    return Quantized(None, type, blocks.reshape(*shape[:-1], -1))


class Graph:
    """A graph whose tensors all have memory of their own on one device. Methods that are not below are ggml's functions,
    without the prefix and with the context filled in: g.rms_norm(x, 1e-6) is ggml_rms_norm(ctx, x, 1e-6)."""

    def __init__(self, device: str = "STRATA0", tensors: int = 256):
        self.backend = backend(device)
        self._memory = ffi.new("char[]", lib.ggml_tensor_overhead() * tensors + lib.ggml_graph_overhead_custom(tensors, False) * 2)
        self.ctx = lib.ggml_init({"mem_size": len(self._memory), "mem_buffer": self._memory, "no_alloc": True})
        self._tensors = tensors
        self._inputs = []
        self._buffer = ffi.NULL

    def __enter__(self):
        return self

    def __exit__(self, *_):
        lib.ggml_backend_buffer_free(self._buffer)
        lib.ggml_free(self.ctx)
        self._buffer = ffi.NULL

    def __getattr__(self, name):
        function = getattr(lib, "ggml_" + name)
        return lambda *arguments: function(self.ctx, *arguments)

    def tensor(self, ne, type: str = "f32"):
        """A tensor without data (poisoned until something writes it); `ne` in ggml's order, innermost first."""
        return lib.ggml_new_tensor(self.ctx, TYPES[type], len(ne), [int(n) for n in ne])

    def input(self, data):
        """A tensor with the data of an array (f32, f16, i8, i16, i32, i64 by dtype) or of a Quantized."""
        if isinstance(data, Quantized):
            ne = data.values.shape[::-1]
            made = self.tensor(ne, data.type)
            self._inputs.append((made, np.ascontiguousarray(data.raw)))
        else:
            data = np.ascontiguousarray(data)
            made = self.tensor(data.shape[::-1] or (1,), _NAMES[data.dtype])
            self._inputs.append((made, data))
        lib.ggml_set_input(made)
        return made

    def supported(self, tensor) -> bool:
        """What the device's supports_op says."""
        return lib.ggml_backend_supports_op(self.backend, tensor)

    def refusal(self, tensor) -> str | None:
        """Why the device does not compute this node; None if it does."""
        from .ggml import plugin
        reason = plugin().strata_hip_refusal(tensor)
        assert self.supported(tensor) == (reason == ffi.NULL)
        return None if reason == ffi.NULL else ffi.string(reason).decode()

    def graph(self, *outputs):
        """A cgraph that computes the outputs."""
        graph = lib.ggml_new_graph_custom(self.ctx, self._tensors, False)
        for output in outputs:
            lib.ggml_build_forward_expand(graph, output)
        return graph

    def allocate(self):
        """Gives all tensors memory, fills it with 0xff and copies the inputs. run() does it by itself."""
        if self._buffer != ffi.NULL:
            return
        self._buffer = lib.ggml_backend_alloc_ctx_tensors(self.ctx, self.backend)
        if self._buffer == ffi.NULL:
            raise PluginError(last_error())
        lib.ggml_backend_buffer_clear(self._buffer, 0xFF)
        for tensor, data in self._inputs:
            self.set(tensor, data)

    def run(self, *outputs):
        """Computes; returns the outputs as arrays (one array for one output)."""
        graph = self.graph(*outputs)
        self.allocate()
        for i in range(lib.ggml_graph_n_nodes(graph)):
            node = lib.ggml_graph_node(graph, i)
            if not self.supported(node):
                raise PluginError(f"{ffi.string(lib.ggml_op_desc(node)).decode()} is refused: {self.refusal(node)}")
        before = self._bytes()
        errors = counter("errors")
        status = lib.ggml_backend_graph_compute(self.backend, graph)
        if status != lib.GGML_STATUS_SUCCESS or counter("errors") != errors:  # a fault shows after the call has succeeded
            raise PluginError(last_error())
        self._check_untouched(graph, before)
        results = [self.get(output) for output in outputs]
        return results[0] if len(results) == 1 else results

    def set(self, tensor, data: np.ndarray):
        """Copies an array's bytes to a contiguous tensor."""
        data = np.ascontiguousarray(data)
        assert data.nbytes == lib.ggml_nbytes(tensor), (data.nbytes, lib.ggml_nbytes(tensor))
        lib.ggml_backend_tensor_set(tensor, ffi.cast("void *", data.ctypes.data), 0, data.nbytes)

    def raw(self, tensor) -> np.ndarray:
        """A tensor's ggml_nbytes bytes."""
        data = np.empty(lib.ggml_nbytes(tensor), np.uint8)
        lib.ggml_backend_tensor_get(tensor, ffi.cast("void *", data.ctypes.data), 0, data.nbytes)
        return data

    def get(self, tensor) -> np.ndarray:
        """A tensor's values, any strides; block types and bf16 as float32. The shape is ne reversed, leading ones dropped
        down to what ggml_n_dims says."""
        data = self.raw(tensor)
        name = type_name(tensor)
        shape = [tensor.ne[i] for i in range(lib.ggml_n_dims(tensor))][::-1]
        if lib.ggml_nelements(tensor) == 0:
            return np.empty(0, _DTYPES.get(name, np.float32))
        strides = [tensor.nb[i] for i in range(lib.ggml_n_dims(tensor))][::-1]
        if name in _DTYPES:
            return np.lib.stride_tricks.as_strided(data.view(_DTYPES[name]), shape, strides).copy()
        row = lib.ggml_row_size(tensor.type, tensor.ne[0])
        rows = np.lib.stride_tricks.as_strided(data, shape[:-1] + [row], strides[:-1] + [1])
        return dequantize(rows.copy(), name)

    def _bytes(self) -> np.ndarray | None:
        """The whole buffer, read through a tensor that spans it."""
        size = lib.ggml_backend_buffer_get_size(self._buffer)
        if size > _CHECKED_BYTES:
            return None
        memory = ffi.new("char[]", lib.ggml_tensor_overhead() * 2)
        ctx = lib.ggml_init({"mem_size": len(memory), "mem_buffer": memory, "no_alloc": True})
        whole = lib.ggml_new_tensor_1d(ctx, TYPES["i8"], size)
        lib.ggml_backend_tensor_alloc(self._buffer, whole, lib.ggml_backend_buffer_get_base(self._buffer))
        data = self.raw(whole)
        lib.ggml_free(ctx)
        return data

    def _check_untouched(self, graph, before):
        """Nothing outside the nodes of the graph may have changed."""
        if before is None:
            return
        after = self._bytes()
        base = int(ffi.cast("uintptr_t", lib.ggml_backend_buffer_get_base(self._buffer)))
        outside = np.ones(before.size, bool)
        for i in range(lib.ggml_graph_n_nodes(graph)):
            node = lib.ggml_graph_node(graph, i)
            if node.op not in (lib.GGML_OP_NONE, lib.GGML_OP_VIEW, lib.GGML_OP_RESHAPE, lib.GGML_OP_PERMUTE, lib.GGML_OP_TRANSPOSE):
                begin = int(ffi.cast("uintptr_t", node.data)) - base
                outside[begin:begin + lib.ggml_nbytes(node)] = False
        changed = np.flatnonzero((before != after) & outside)
        assert changed.size == 0, f"{changed.size} bytes outside the result were written, the first at offset {changed[0]}"


def run_op(build, *inputs, device: str = "STRATA0"):
    """Makes a tensor of every input (array or Quantized), calls build(graph, *tensors), computes what it returns (a tensor
    or a tuple of tensors) and returns array(s). Raises PluginError if the device refuses or fails."""
    with Graph(device) as g:
        outputs = build(g, *[g.input(data) for data in inputs])
        return g.run(*(outputs if isinstance(outputs, tuple) else (outputs,)))


def refusal_of(build, *inputs) -> str | None:
    """Why the device does not compute what build(graph, *tensors) returns; None if it does."""
    with Graph() as g:
        return g.refusal(build(g, *[g.input(data) for data in inputs]))
