"""WIN_PART, WIN_UNPART, GET_REL_POS: exact; ADD_REL_POS: two roundings."""
import numpy as np
import pytest

from support.ops import new_rng, refusal_of, run_op
from support.values import run_twice

SIZES = [(1, 1, 1, 1), (5, 9, 7, 4), (33, 14, 14, 7), (3, 5, 3, 8)]  # channels, w, h, side


def windows_of(x, side):
    """(h, w, channels) as (windows, side, side, channels)."""
    padded = np.pad(x, [(0, -x.shape[0] % side), (0, -x.shape[1] % side), (0, 0)])
    h, w, channels = padded.shape
    return padded.reshape(h // side, side, w // side, side, channels).swapaxes(1, 2).reshape(-1, side, side, channels)


@pytest.mark.parametrize("channels, w, h, side", SIZES)
def test_parts(channels, w, h, side):
    x = new_rng().standard_normal((h, w, channels), dtype=np.float32)
    wanted = windows_of(x, side)
    out = run_twice(lambda g, a: g.win_part(a, side), x)
    np.testing.assert_array_equal(out.reshape(wanted.shape), wanted)
    back = run_twice(lambda g, a: g.win_unpart(a, w, h, side), wanted)
    np.testing.assert_array_equal(back.reshape(x.shape), x)


def test_parts_of_a_permuted_image():
    x = new_rng().standard_normal((6, 5, 9), dtype=np.float32)
    out = run_op(lambda g, a: g.win_part(g.permute(a, 1, 0, 2, 3), 4), x)
    np.testing.assert_array_equal(out, windows_of(x.swapaxes(1, 2), 4))


@pytest.mark.parametrize("channels, size", [(1, 1), (65, 7), (64, 14)])
def test_relative_positions(channels, size):
    rng = new_rng()
    x = rng.standard_normal((2 * size - 1, channels)).astype(np.float16)
    out = run_twice(lambda g, a: g.get_rel_pos(a, size, size), x)
    i = np.arange(size)
    np.testing.assert_array_equal(out.reshape(size, size, channels), x[i[:, None] - i[None, :] + size - 1])


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("side, w, h, heads", [(1, 1, 1, 1), (7, 5, 3, 2), (14, 2, 9, 3)])
def test_add(side, w, h, heads, inplace):
    rng = new_rng()
    x = rng.standard_normal((heads, w * h, side * side), dtype=np.float32)
    across, down = (rng.standard_normal((heads, h, w, side), dtype=np.float32) for _ in range(2))
    out = run_twice(lambda g, a, pw, ph: (g.add_rel_pos_inplace if inplace else g.add_rel_pos)(a, pw, ph), x, across, down)
    keys = x.reshape(heads, h, w, side, side).astype(np.float64)
    wanted = keys + down[..., :, None] + across[..., None, :]
    # Each of the two sums rounds by 2^-24 of what it adds, which may be far more than what is left of it.
    magnitude = np.abs(keys) + np.abs(down[..., :, None]) + np.abs(across[..., None, :])
    assert np.all(np.abs(out.reshape(wanted.shape) - wanted) <= 2.0**-23 * magnitude)


def test_refusals():
    assert refusal_of(lambda g, a: g.get_rel_pos(a, 2, 2), np.zeros((3, 4), np.float32)) is not None
