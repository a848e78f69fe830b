"""Single operators of ggml on the device, from numpy.

    import numpy as np
    from strata_hip import ops

    rng = np.random.default_rng(0)
    weights = ops.Quantized(rng.standard_normal((64, 256)), "q4_K")       # weights.values: what the blocks hold
    x = rng.standard_normal((5, 256)).astype(np.float32)
    y = ops.mul_mat(weights, x, device="emulator")                        # (5, 64): x @ weights.values.T

Shapes are numpy's, the innermost dimension last: ggml's {ne0, ne1, ne2, ne3} is (ne3, ne2, ne1, ne0) here, with leading ones left
out. Every function takes `device`, "hip", "emulator" or None as Llama does, or a ggml device's own name: device="CPU" is ggml's CPU
backend, to compare with. Results are float32.

An operator that is not here: compute(lambda g, a: g.silu(a), x), where g is a Graph and g.silu is ggml_silu. What the device refuses is
refused with the reason; nothing falls back to the CPU.

Raises ArgumentError for shapes and types that do not fit together, DeviceError if the device refuses or fails.
"""
from typing import Any, Callable, Optional, Tuple

import numpy as np

from .errors import ArgumentError
from .ggml import ffi
from .graph import Graph, Input
from .quantized import Quantized, dequantize, quantize

__all__ = ["Graph", "Input", "Quantized", "add", "compute", "dequantize", "flash_attn_ext", "gated_delta_net", "get_rows", "l2_norm", "mul",
           "mul_mat", "mul_mat_id", "quantize", "rms_norm", "rope", "soft_max", "swiglu"]

ROPE_MODES = {"normal": 0, "neox": 2}
"""GGML_ROPE_TYPE_*: pairs are neighbours, or half a row apart."""


def compute(build: Callable[..., Any], *inputs: Input, device: Optional[str] = None) -> Any:
    """Makes a tensor of every input, calls build(graph, *tensors), computes the tensor that it returns (or the tuple of tensors), and
    returns its values (or a list of them) as Graph.get() does. ggml ends the process if build() gives it shapes that do not fit."""
    with Graph(device) as graph:
        outputs = build(graph, *[graph.input(data) for data in inputs])
        return graph.run(*(outputs if isinstance(outputs, tuple) else (outputs,)))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ArgumentError(message)


def _float(name: str, array: Any, least: int = 1, most: int = 4) -> np.ndarray:
    """As float32. Raises ArgumentError for other than least to most dimensions, or for an empty array."""
    _require(not isinstance(array, Quantized), f"{name}: the operator takes no blocks there")
    made = np.asarray(array, np.float32)
    _dimensions(name, made.shape, least, most)
    return made


def _index(name: str, array: Any, dimensions: int, limit: int) -> np.ndarray:
    """As int32 within 0 to limit - 1."""
    made = np.asarray(array)
    _require(np.issubdtype(made.dtype, np.integer), f"{name}: {made.dtype} are no indices")
    _dimensions(name, made.shape, dimensions, dimensions)
    _require(0 <= made.min() and made.max() < limit, f"{name}: {made.min()} to {made.max()} are not within 0 to {limit - 1}")
    return made.astype(np.int32)


def _dimensions(name: str, shape: Tuple[int, ...], least: int, most: int) -> None:
    wanted = str(most) if least == most else f"{least} to {most}"
    _require(least <= len(shape) <= most and 0 not in shape,
             f"{name}: {wanted} dimensions are needed and none may be 0; the shape is {shape}")


def _weights(name: str, data: Input, dimensions: Tuple[int, int]) -> Input:
    """Blocks or f16 as they are, anything else as float32."""
    if not isinstance(data, Quantized):
        data = np.asarray(data)
        if data.dtype != np.float16:
            data = data.astype(np.float32)
    _dimensions(name, data.shape, *dimensions)
    return data


def _shaped(result: Any, shape: Tuple[int, ...]) -> np.ndarray:
    return np.asarray(result).reshape(shape)


def mul_mat(weights: Input, x: Any, *, device: Optional[str] = None) -> np.ndarray:
    """x @ weights.T.

    weights: (..., m, k), Quantized of any type, float16 or float32. x: (..., n, k), converted to float32. One matrix of weights serves
    several of x if x's leading dimensions are multiples of those of the weights. Returns (..., n, m)."""
    weights, x = _weights("weights", weights, (2, 4)), _float("x", x, 2)
    _require(weights.shape[-1] == x.shape[-1], f"rows of {weights.shape[-1]} weights and of {x.shape[-1]} values cannot be multiplied")
    leading = zip(_full(weights.shape)[:2], _full(x.shape)[:2])
    _require(all(many % few == 0 for few, many in leading), f"weights of shape {weights.shape} do not serve x of shape {x.shape}")
    return _shaped(compute(lambda g, a, b: g.mul_mat(a, b), weights, x, device=device), (*x.shape[:-1], weights.shape[-2]))


def _full(shape: Tuple[int, ...]) -> Tuple[int, ...]:
    return (1,) * (4 - len(shape)) + shape


def mul_mat_id(experts: Input, x: Any, ids: Any, *, device: Optional[str] = None) -> np.ndarray:
    """Each token times the matrices of its experts.

    experts: (e, m, k), as the weights of mul_mat. x: (tokens, slots, k), where slots is the number of experts a token or a divisor of it,
    usually 1: one row for all. ids: integers (tokens, used). Returns (tokens, used, m)."""
    experts, x = _weights("experts", experts, (3, 3)), _float("x", x, 3, 3)
    ids = _index("ids", ids, 2, experts.shape[0])
    _require(experts.shape[-1] == x.shape[-1], f"rows of {experts.shape[-1]} weights and of {x.shape[-1]} values cannot be multiplied")
    _require(len(ids) == len(x), f"ids of {len(ids)} tokens do not fit x of {len(x)}")
    _require(ids.shape[1] % x.shape[1] == 0, f"{ids.shape[1]} experts a token are no multiple of {x.shape[1]} rows a token")
    return _shaped(compute(lambda g, a, b, i: g.mul_mat_id(a, b, i), experts, x, ids, device=device), (*ids.shape, experts.shape[1]))


def rms_norm(x: Any, eps: float = 1e-6, *, device: Optional[str] = None) -> np.ndarray:
    """x / sqrt(mean(x²) + eps) over the last dimension. Returns x's shape."""
    x = _float("x", x)
    return _shaped(compute(lambda g, a: g.rms_norm(a, eps), x, device=device), x.shape)


def l2_norm(x: Any, eps: float = 1e-6, *, device: Optional[str] = None) -> np.ndarray:
    """x / max(sqrt(sum(x²)), eps) over the last dimension. Returns x's shape."""
    x = _float("x", x)
    return _shaped(compute(lambda g, a: g.l2_norm(a, eps), x, device=device), x.shape)


def rope(x: Any, positions: Any, *, n_dims: Optional[int] = None, mode: str = "neox", freq_base: float = 10000.0, freq_scale: float = 1.0,
         freq_factors: Any = None, device: Optional[str] = None) -> np.ndarray:
    """Rotates pairs of each row by angles that grow with the token's position.

    x: (tokens, heads, d) or (batches, tokens, heads, d). positions: integers (tokens,). n_dims: how many values of a row are rotated
    (default: all; even). mode: "neox" pairs values half of n_dims apart, "normal" neighbours. freq_base, freq_scale: the angle of pair i
    is freq_scale * position * freq_base^(-2i / n_dims). freq_factors: (n_dims / 2,), what each angle is divided by. Returns x's shape."""
    x = _float("x", x, 3)
    positions = _index("positions", positions, 1, 2**31)
    n_dims = x.shape[-1] if n_dims is None else n_dims
    _require(mode in ROPE_MODES, f"mode={mode!r} is none of {', '.join(ROPE_MODES)}")
    _require(len(positions) == x.shape[-3], f"{len(positions)} positions do not fit {x.shape[-3]} tokens")
    _require(0 < n_dims <= x.shape[-1] and n_dims % 2 == 0, f"n_dims={n_dims} of rows of {x.shape[-1]} cannot be rotated in pairs")
    inputs = [x, positions]
    if freq_factors is not None:
        inputs.append(_float("freq_factors", freq_factors, 1, 1))
        _require(len(inputs[-1]) >= n_dims // 2, f"{len(inputs[-1])} freq_factors for {n_dims // 2} pairs")

    def build(g: Graph, a: Any, b: Any, c: Any = ffi.NULL) -> Any:
        return g.rope_ext(a, b, c, n_dims, ROPE_MODES[mode], 0, freq_base, freq_scale, 0.0, 1.0, 32.0, 1.0)
    return _shaped(compute(build, *inputs, device=device), x.shape)


def soft_max(x: Any, mask: Any = None, *, scale: float = 1.0, max_bias: float = 0.0, device: Optional[str] = None) -> np.ndarray:
    """softmax(scale * x + slope * mask) over the last dimension.

    x: (..., heads, n, m). mask: (n, m) with as many leading dimensions as x or fewer, each a divisor of x's, -inf where nothing may be
    seen. max_bias: of ALiBi, which gives each head its slope; 0: slopes are 1. Returns x's shape."""
    x = _float("x", x)
    _require(mask is not None or max_bias == 0, f"max_bias={max_bias} needs a mask")
    inputs = [x]
    if mask is not None:
        mask = _float("mask", mask, 2)
        few, many = _full(mask.shape), _full(x.shape)
        _require(few[2:] == many[2:] and many[0] % few[0] == 0 and many[1] % few[1] == 0,
                 f"a mask of shape {mask.shape} does not fit x of {x.shape}")
        inputs.append(mask)
    return _shaped(compute(lambda g, a, m=ffi.NULL: g.soft_max_ext(a, m, scale, max_bias), *inputs, device=device), x.shape)


def flash_attn_ext(q: Any, k: Input, v: Input, mask: Any = None, *, scale: Optional[float] = None, max_bias: float = 0.0,
                   logit_softcap: float = 0.0, device: Optional[str] = None) -> np.ndarray:
    """softmax(scale * q @ k.T + mask) @ v for every head.

    q: (heads, n, d), or with a leading dimension of sequences, converted to float32. k: (kv_heads, m, d) and v: (kv_heads, m, dv), float16,
    float32 or Quantized; heads is a multiple of kv_heads. mask: (n, m) or (mask heads, n, m), or with sequences, converted to float16;
    -inf where nothing may be seen. scale: default d^-1/2. max_bias: of ALiBi. logit_softcap: c of c * tanh(logit / c); 0: none.
    Returns (n, heads, dv), or with sequences: tokens first, as ggml lays it out."""
    q = _float("q", q, 3)
    k, v = _weights("k", k, (q.ndim, q.ndim)), _weights("v", v, (q.ndim, q.ndim))
    _require(k.shape[:-1] == v.shape[:-1], f"k of shape {k.shape} and v of {v.shape} hold different keys")
    _require(k.shape[-1] == q.shape[-1] and k.shape[:-3] == q.shape[:-3] and q.shape[-3] % k.shape[-3] == 0,
             f"k of shape {k.shape} does not fit q of {q.shape}")
    _require(mask is not None or max_bias == 0, f"max_bias={max_bias} needs a mask")
    inputs = [q, k, v]
    if mask is not None:
        mask = np.ascontiguousarray(mask, np.float16)
        _dimensions("mask", mask.shape, 2, q.ndim)
        few, many = _full(mask.shape), _full(q.shape)
        _require(few[2:] == (q.shape[-2], k.shape[-2]) and many[0] % few[0] == 0 and many[1] % few[1] == 0,
                 f"a mask of shape {mask.shape} does not fit q of {q.shape} and {k.shape[-2]} keys")
        inputs.append(mask)
    factor = q.shape[-1] ** -0.5 if scale is None else scale

    def build(g: Graph, q: Any, k: Any, v: Any, mask: Any = ffi.NULL) -> Any:
        return g.flash_attn_ext(q, k, v, mask, factor, max_bias, logit_softcap)
    return _shaped(compute(build, *inputs, device=device), (*q.shape[:-3], q.shape[-2], q.shape[-3], v.shape[-1]))


def get_rows(table: Input, indices: Any, *, device: Optional[str] = None) -> np.ndarray:
    """table[indices]: (rows, n), Quantized of any type, float16 or float32, by integers (count,). Returns (count, n)."""
    table = _weights("table", table, (2, 2))
    indices = _index("indices", indices, 1, table.shape[0])
    return _shaped(compute(lambda g, a, b: g.get_rows(a, b), table, indices, device=device), (len(indices), table.shape[1]))


def gated_delta_net(q: Any, k: Any, v: Any, g: Any, beta: Any, state: Any, *, snapshots: int = 1,
                    device: Optional[str] = None) -> Tuple[np.ndarray, np.ndarray]:
    """The recurrence of Qwen3.5's linear layers, token by token: state *= exp(g); state += beta * (v - state @ k) k^T;
    out = state @ q / sqrt(s).

    q, k: (sequences, tokens, key heads, s), of unit length; v: (sequences, tokens, heads, s), heads a multiple of the key heads;
    g: (sequences, tokens, heads, 1) or with s in place of 1: the logarithm of the decay; beta: (sequences, tokens, heads, 1);
    state: (sequences, heads, s, s), a column of it last. Returns out (sequences, tokens, heads, s) and the states after the last
    min(tokens, snapshots) tokens, newest first: (those, sequences, heads, s, s)."""
    inputs = [_float(name, each, 4) for name, each in zip(("q", "k", "v", "g", "beta", "state"), (q, k, v, g, beta, state))]
    q, k, v, g, beta, state = inputs
    sequences, tokens, heads, size = v.shape
    for name, each in (("q", q), ("k", k)):
        _require(sequences % each.shape[0] == 0 and each.shape[1] == tokens and heads % each.shape[2] == 0 and each.shape[3] == size,
                 f"{name} of shape {each.shape} does not fit v of {v.shape}")
    _require(g.shape in ((sequences, tokens, heads, 1), v.shape), f"g of shape {g.shape} does not fit v of {v.shape}")
    _require(beta.shape == (sequences, tokens, heads, 1), f"beta of shape {beta.shape} does not fit v of {v.shape}")
    _require(state.shape == (sequences, heads, size, size), f"a state of shape {state.shape} does not fit v of {v.shape}")
    _require(snapshots >= 1, f"snapshots={snapshots}: at least 1")
    raw = compute(lambda graph, *tensors: graph.gated_delta_net(*tensors, snapshots), *inputs, device=device)
    out, states = np.split(raw.ravel(), [v.size])
    return out.reshape(v.shape), states.reshape(snapshots, *state.shape)[:min(tokens, snapshots)]


def swiglu(gate: Any, up: Any, *, device: Optional[str] = None) -> np.ndarray:
    """silu(gate) * up, both of one shape, which is the result's."""
    gate, up = _float("gate", gate), _float("up", up)
    _require(gate.shape == up.shape, f"gate of shape {gate.shape} and up of {up.shape} must be the same")
    return _shaped(compute(lambda g, a, b: g.swiglu_split(a, b), gate, up, device=device), gate.shape)


def add(a: Any, b: Any, *, device: Optional[str] = None) -> np.ndarray:
    """a + b; each dimension of b, counted from the last, divides a's, and b is repeated. Returns a's shape."""
    return _binary("add", a, b, device)


def mul(a: Any, b: Any, *, device: Optional[str] = None) -> np.ndarray:
    """a * b, as add()."""
    return _binary("mul", a, b, device)


def _binary(name: str, a: Any, b: Any, device: Optional[str]) -> np.ndarray:
    a, b = _float("a", a), _float("b", b)
    _require(all(many % few == 0 for many, few in zip(_full(a.shape), _full(b.shape))),
             f"b of shape {b.shape} cannot be repeated to a's {a.shape}")
    return _shaped(compute(lambda g, x, y: getattr(g, name)(x, y), a, b, device=device), a.shape)
