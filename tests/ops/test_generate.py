"""ARANGE and TIMESTEP_EMBEDDING against numpy in float64."""
import numpy as np
import pytest

from support.ops import Graph, new_rng, run_op
from support.values import run_twice


@pytest.mark.parametrize("start, stop, step", [(0, 1, 1), (0, 10, 1), (-3.5, 70, 0.25), (0, 100000, 1), (7, 1000, 3)])
def test_arange(start, stop, step):
    with Graph() as g:
        out = g.run(g.arange(start, stop, step))
    np.testing.assert_array_equal(out, np.arange(start, stop, step, dtype=np.float64).astype(np.float32))


@pytest.mark.parametrize("dim", [1, 2, 15, 320, 1023])
@pytest.mark.parametrize("count", [1, 2, 17])
def test_timesteps(dim, count):
    steps = new_rng().uniform(0, 1000, count).astype(np.float32)
    out = run_twice(lambda g, a: g.timestep_embedding(a, dim, 10000), steps).reshape(count, dim)
    half = dim // 2
    frequencies = np.exp(-np.log(10000.0) * np.arange(half) / max(half, 1))
    angles = steps.astype(np.float64)[:, None] * frequencies
    wanted = np.concatenate([np.cos(angles), np.sin(angles), np.zeros((count, dim % 2))], 1)
    # The f32 exponent has an error of some units in the last place of at most 9.3, and the angle that times itself.
    bound = 2.0**-23 * np.concatenate([20 * angles, 20 * angles, np.zeros((count, dim % 2))], 1) + 2.0**-22
    assert np.all(np.abs(out - wanted) <= bound)


def test_timesteps_at_an_offset():
    steps = np.arange(20, dtype=np.float32).reshape(10, 2)
    out = run_op(lambda g, a: g.timestep_embedding(g.view_1d(a, 5, 8), 8, 100), steps)
    same = run_op(lambda g, a: g.timestep_embedding(a, 8, 100), steps.ravel()[2:7].copy())
    np.testing.assert_array_equal(out, same)
