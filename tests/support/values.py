"""Random inputs of any float type together with the exact values they hold, and comparisons with float64 references."""
import numpy as np

from .ops import Quantized, run_op

# Half a unit in the last place, relative.
ROUNDING = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
# The smallest normal numbers; below, the spacing is absolute.
SMALLEST = {"f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126}


def typed(values, type: str):
    """Values rounded to f32, f16 or bf16: (input for a graph, what it holds as float64)."""
    values = np.asarray(values, np.float32)
    if type == "bf16":
        quantized = Quantized(values, "bf16")
        return quantized, quantized.values.astype(np.float64)
    array = values.astype({"f32": np.float32, "f16": np.float16}[type])
    return array, array.astype(np.float64)


def uniform(rng: np.random.Generator, shape, type: str = "f32", low: float = -2.0, high: float = 2.0):
    """As typed(), with uniform random values."""
    return typed(rng.uniform(low, high, shape), type)


def assert_rounded(actual, expected, type: str, ulps: float = 0.501, absolute=0.0):
    """Every element is within `ulps` units in the last place of its type (0.5: correctly rounded), or within `absolute` (a number, or what
    can be broadcast to the elements)."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape, (actual.shape, expected.shape)
    with np.errstate(over="ignore"):
        limit = {"f32": np.float32, "f16": np.float16, "bf16": np.float32}[type]
        overflow = np.isfinite(expected) & ~np.isfinite(expected.astype(limit))
    finite = np.isfinite(expected) & ~overflow
    np.testing.assert_array_equal(actual[~finite], np.where(overflow, np.copysign(np.inf, expected), expected)[~finite])
    error = np.abs(actual[finite] - expected[finite])
    bound = 2 * ulps * ROUNDING[type] * np.maximum(np.abs(expected[finite]), SMALLEST[type]) + np.broadcast_to(absolute, expected.shape)[finite]
    # A value just above a power of two may be compared with the finer spacing below it.
    assert np.all(error <= bound), _worst(error / bound, actual[finite], expected[finite])


def assert_close(actual, expected, magnitude, bound: float):
    """Every element is within `bound` of the sum of the magnitudes of what was added up to it. The element itself would be no measure: it may
    be all but nothing."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    actual, limit = actual.reshape(expected.shape), np.broadcast_to(bound * magnitude, expected.shape)
    error = np.abs(actual - expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert np.all(error <= limit), _worst((error / limit).ravel(), actual.ravel(), expected.ravel())


def assert_largest(chosen, values, error: float = 0.0):
    """`chosen` [..., k] are the places of the k largest of the values [..., n] in their order. Values that differ by less than `error` of
    their magnitudes may change places: whoever computes them may find them the other way round."""
    def ordered(high, low):
        return np.all(low - high <= error * (np.abs(low) + np.abs(high)))

    chosen, values = np.asarray(chosen).reshape(*values.shape[:-1], -1), np.asarray(values, np.float64)
    assert np.all(np.diff(np.sort(chosen, -1), axis=-1) > 0), "a place is chosen twice"
    picked, rest = np.take_along_axis(values, chosen, -1), values.copy()
    np.put_along_axis(rest, chosen, -np.inf, -1)
    assert ordered(picked[..., :-1], picked[..., 1:]), "not in order"
    assert chosen.shape == values.shape or ordered(picked[..., -1], rest.max(-1)), "a larger one is left out"


def _worst(ratio, actual, expected) -> str:
    at = int(np.nanargmax(np.where(np.isnan(ratio), np.inf, ratio)))
    return f"{actual[at]!r} instead of {expected[at]!r}: {ratio[at]:.3g} times the bound ({np.sum(~(ratio <= 1))} of {ratio.size} wrong)"


def run_twice(build, *inputs):
    """run_op(), and again: the bits must be the same."""
    first, second = run_op(build, *inputs), run_op(build, *inputs)
    for a, b in zip(*((r,) if isinstance(r, np.ndarray) else r for r in (first, second))):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
    return first
