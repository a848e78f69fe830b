"""Functions of one argument against float64 references."""
import math

import numpy as np
import pytest

from support.ggml import lib
from support.ops import new_rng, refusal_of, run_op
from support.values import assert_rounded, run_twice, typed, uniform

_erf = np.vectorize(math.erf, otypes=[np.float64])
_GELU = math.sqrt(2 / math.pi)


def _sigmoid(x):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _clipped_exp(f):
    def wrapped(x):
        with np.errstate(over="ignore", invalid="ignore"):
            return f(x)
    return wrapped


# name: reference, units in the last place for f32, absolute bound for f32 (where the formula itself cancels)
FUNCTIONS = {
    "abs": (np.abs, 0.5, 0), "sgn": (np.sign, 0.5, 0), "neg": (np.negative, 0.5, 0), "step": (lambda x: (x > 0) * 1.0, 0.5, 0),
    "tanh": (np.tanh, 1.5, 0), "elu": (_clipped_exp(lambda x: np.where(x > 0, x, np.expm1(x))), 1.6, 0),
    "relu": (lambda x: np.maximum(x, 0), 0.5, 0), "sigmoid": (_sigmoid, 3, 2.0**-126), "silu": (lambda x: x * _sigmoid(x), 3, 2.0**-119),
    "gelu": (lambda x: x * _sigmoid(2 * _GELU * x * (1 + 0.044715 * x**2)), 2, 1e-7),
    "gelu_quick": (lambda x: x * _sigmoid(1.702 * x), 2, 1e-7),
    "gelu_erf": (lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))), 3, 2e-7),
    "hardswish": (lambda x: x * np.clip((x + 3) / 6, 0, 1), 2, 3e-7), "hardsigmoid": (lambda x: np.clip((x + 3) / 6, 0, 1), 2, 1e-7),
    "exp": (_clipped_exp(np.exp), 1.2, 0), "expm1": (_clipped_exp(np.expm1), 1.6, 0),
    "softplus": (_clipped_exp(lambda x: np.where(x > 20, x, np.log1p(np.exp(x)))), 2, 2e-7),
    "floor": (np.floor, 0.5, 0), "ceil": (np.ceil, 0.5, 0), "trunc": (np.trunc, 0.5, 0),
    "round": (lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), 0.5, 0),
}


def unary(name):
    op = getattr(lib, "GGML_UNARY_OP_" + name.upper())
    return lambda g, x: g.unary(x, op)


def check(build, reference, x, values, type, ulps, absolute):
    out = run_twice(build, x)
    own = {"f32": 0, "f16": 0.51, "bf16": 0.51}[type]
    with np.errstate(all="ignore"):
        wanted = reference(values).reshape(out.shape)
    assert_rounded(out, wanted, type, ulps if type == "f32" else own, absolute)


@pytest.mark.parametrize("type", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_unary(name, type):
    rng = new_rng()
    reference, ulps, absolute = FUNCTIONS[name]
    for shape, span in (((1,), 3), ((7, 33), 8), ((3, 301), 100)):
        x, values = uniform(rng, shape, type, -span, span)
        check(unary(name), reference, x, values, type, ulps, absolute)
    small, values = typed(rng.uniform(-1, 1, 200) * 10.0 ** rng.integers(-7, 1, 200), type)
    check(unary(name), reference, small, values, type, ulps, absolute)


# What the functions do with infinities, NaN and zeros.
@pytest.mark.parametrize("name, wanted", [
    ("exp", [np.inf, 0, np.nan, 1]), ("expm1", [np.inf, -1, np.nan, 0]), ("tanh", [1, -1, np.nan, 0]), ("sigmoid", [1, 0, np.nan, 0.5]),
    ("relu", [np.inf, 0, 0, 0]), ("step", [1, 0, 0, 0]), ("sgn", [1, -1, 0, 0]), ("abs", [np.inf, np.inf, np.nan, 0]),
    ("gelu_erf", [np.inf, np.nan, np.nan, 0]), ("silu", [np.inf, np.nan, np.nan, 0]), ("softplus", [np.inf, 0, np.nan, np.log(2)])])
def test_special_values(name, wanted):
    out = run_op(unary(name), np.array([np.inf, -np.inf, np.nan, 0.0], np.float32))
    np.testing.assert_allclose(out, np.array(wanted, np.float32), rtol=1e-7)


# name: reference, range, units in the last place
PLAIN = {
    "sqr": (np.square, (-9, 9), 0.5), "sqrt": (np.sqrt, (0, 9), 0.5), "log": (np.log, (1e-3, 1e3), 1.3),
    "sin": (np.sin, (-1000, 1000), 1.7), "cos": (np.cos, (-1000, 1000), 1.7)}


@pytest.mark.parametrize("name", PLAIN)
def test_plain(name):
    rng = new_rng()
    reference, (low, high), ulps = PLAIN[name]
    for shape in ((5,), (3, 257)):
        x, values = uniform(rng, shape, "f32", low, high)
        check(lambda g, a: getattr(g, name)(a), reference, x, values, "f32", ulps, 0)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_large_angles(name):
    """Up to a million: positions of a long context."""
    rng = new_rng()
    x = (rng.uniform(0, 1, 4000) * 10.0 ** rng.integers(-3, 7, 4000)).astype(np.float32)
    x[:500] = (np.arange(500) * 1273 * np.pi / 2).astype(np.float32)  # next to the zeros and extrema
    out = run_op(lambda g, a: getattr(g, name)(a), x)
    assert_rounded(out, getattr(np, name)(x.astype(np.float64)), "f32", 1.7)


def test_clamp():
    x = new_rng().standard_normal((3, 40), dtype=np.float32)
    np.testing.assert_array_equal(run_op(lambda g, a: g.clamp(g.dup(a), -0.5, 0.25), x), np.clip(x, -0.5, 0.25))


@pytest.mark.parametrize("inplace", [False, True])
def test_leaky_relu(inplace):
    x = np.append(new_rng().standard_normal((3, 65), dtype=np.float32), np.array([0.0, np.inf, -np.inf], np.float32))
    out = run_op(lambda g, a: g.leaky_relu(a, 0.1, inplace), x)
    np.testing.assert_array_equal(out, np.where(x > 0, x, np.float32(0.1) * x))
    halves = x.astype(np.float16)
    np.testing.assert_array_equal(run_op(lambda g, a: g.leaky_relu(a, 0.5, inplace), halves), np.where(halves > 0, halves, np.float16(0.5) * halves))


def test_xielu():
    x, values = uniform(new_rng(), (3, 100), "f32", -4, 4)
    softplus = lambda v: math.log1p(math.exp(v))
    alpha_n, alpha_p, beta, eps = 0.8, 0.6, 0.5, -1e-6
    n, p = beta + softplus(alpha_n), softplus(alpha_p)
    wanted = np.where(values > 0, p * values**2 + beta * values, (np.expm1(np.minimum(values, eps)) - values) * n + beta * values)
    assert_rounded(run_op(lambda g, a: g.xielu(a, alpha_n, alpha_p, beta, eps), x), wanted, "f32", 4, 5e-7)


def test_views_and_in_place():
    x = new_rng().standard_normal((5, 4, 70), dtype=np.float32)
    neg = lib.GGML_UNARY_OP_NEG
    np.testing.assert_array_equal(run_op(lambda g, a: g.unary(g.view_3d(a, 35, 2, 5, a.nb[1], a.nb[2], 12), neg), x), -x[:, :2, 3:38])
    np.testing.assert_array_equal(run_op(lambda g, a: g.unary(g.permute(a, 0, 2, 1, 3), neg), x), -x.transpose(1, 0, 2))
    np.testing.assert_array_equal(run_op(lambda g, a: g.unary_inplace(a, neg), x), -x)


def test_refusal():
    assert refusal_of(unary("neg"), np.ones(4, np.int32)) is not None
