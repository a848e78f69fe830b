"""Gated linear units against float64 references: two tensors, or the halves of one."""
import math

import numpy as np
import pytest

from support.ggml import lib
from support.ops import new_rng, refusal_of, run_op
from support.values import assert_rounded, run_twice, uniform

_erf = np.vectorize(math.erf, otypes=[np.float64])
_sigmoid = lambda x: 1 / (1 + np.exp(-x))
ACTIVATIONS = {
    "reglu": lambda x: np.maximum(x, 0), "geglu": lambda x: x * _sigmoid(2 * math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x**2)),
    "swiglu": lambda x: x * _sigmoid(x), "geglu_erf": lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))),
    "geglu_quick": lambda x: x * _sigmoid(1.702 * x)}


def close(out, wanted, type, gate=2.0):
    """GELU with erf cancels for negative arguments: an error of a few 1e-7 is multiplied with the gate, up to `gate`."""
    assert_rounded(out, wanted.reshape(out.shape), type, 4 if type == "f32" else 0.51, 5e-7 * gate)


@pytest.mark.parametrize("type", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_glu(name, type):
    rng = new_rng()
    op = getattr(lib, "GGML_GLU_OP_" + name.upper())
    for shape in ((1, 1), (3, 15), (2, 3, 65), (5, 320)):
        x, x_values = uniform(rng, shape, type, -6, 6)
        gate, gate_values = uniform(rng, shape, type)
        close(run_twice(lambda g, a, b: g.glu_split(a, b, op), x, gate), ACTIVATIONS[name](x_values) * gate_values, type)
        both, values = uniform(rng, (*shape[:-1], 2 * shape[-1]), type, -6, 6)
        halves = np.split(values, 2, axis=-1)
        for swapped in (False, True):
            first, second = halves[::-1] if swapped else halves
            close(run_op(lambda g, a: g.glu(a, op, swapped), both), ACTIVATIONS[name](first) * second, type)


def test_large_values():
    """No NaN where the exponential overflows."""
    x, values = uniform(new_rng(), (4, 64), "f32", -150, 150)
    for name in ("geglu", "swiglu", "geglu_quick", "geglu_erf"):
        out = run_op(lambda g, a: g.glu(a, getattr(lib, "GGML_GLU_OP_" + name.upper()), False), x)
        with np.errstate(over="ignore"):
            close(out, ACTIVATIONS[name](values[:, :32]) * values[:, 32:], "f32", 150.0)


def test_views():
    """Rows of a larger tensor: the halves are those of the view."""
    x = new_rng().standard_normal((7, 3 * 40), dtype=np.float32)
    out = run_op(lambda g, a: g.swiglu(g.view_2d(a, 80, 7, a.nb[1], 40 * 4)), x)
    close(out, ACTIVATIONS["swiglu"](x[:, 40:80].astype(np.float64)) * x[:, 80:].astype(np.float64), "f32")


@pytest.mark.parametrize("alpha, limit", [(1.702, 7.0), (0.5, 2.0)])
def test_swiglu_oai(alpha, limit):
    rng = new_rng()
    (x, xv), (gate, gv) = uniform(rng, (3, 100), "f32", -20, 20), uniform(rng, (3, 100), "f32", -20, 20)
    out = run_op(lambda g, a, b: g.swiglu_oai(a, b, alpha, limit), x, gate)
    bounded = np.minimum(xv, limit)
    close(out, bounded * _sigmoid(np.float64(np.float32(alpha)) * bounded) * (np.clip(gv, -limit, limit) + 1), "f32")


def test_swiglu_clamp():
    rng = new_rng()
    (x, xv), (gate, gv) = uniform(rng, (3, 100), "f16", -20, 20), uniform(rng, (3, 100), "f16", -20, 20)
    bounded = np.minimum(xv, 7)
    close(run_op(lambda g, a, b: g.swiglu_clamp(a, b, 7.0), x, gate), bounded * _sigmoid(bounded) * np.clip(gv, -7, 7), "f16")


def test_refusal():
    assert refusal_of(lambda g, a: g.swiglu(a), np.ones((2, 8), np.int32)) is not None
