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

from strata_hip import graph, quantized
from strata_hip.graph import type_name  # noqa: F401
from strata_hip.quantized import quantize

from .ggml import TYPES, PluginError, ffi, lib, plugin  # noqa: F401

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


class Quantized(quantized.Quantized):
    """An input of a block type (or bf16). `values` are the float32 numbers that its blocks hold, `raw` the bytes."""

    _dequantize = staticmethod(dequantize)


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


class Graph(graph.Graph):
    """The package's Graph, which poisons memory before a run and looks at all of it afterwards. Block types are read by the gguf
    package's code."""

    _dequantize = staticmethod(dequantize)

    def __init__(self, device: str = "STRATA0", tensors: int = 256):
        plugin()
        super().__init__(device, tensors=tensors)

    def _prepare(self) -> None:
        lib.ggml_backend_buffer_clear(self._buffer, 0xFF)

    def refusal(self, tensor) -> str | None:
        reason = super().refusal(tensor)
        assert self.device == "CPU" or (reason is None) == (plugin().strata_hip_refusal(tensor) == ffi.NULL)
        return reason

    def _compute(self, graph) -> None:
        before = self._bytes()
        super()._compute(graph)
        self._check_untouched(graph, before)

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
