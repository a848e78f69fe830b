"""The building blocks of the attention kernels: packed halves, votes, values of other lanes, the LDS barrier."""
import struct

import numpy as np
import pytest

from support.compile import compile_hip
from support.hip import emulator
from support.ops import new_rng
from support.values import assert_close

SOURCE = """
#include "strata/packed_half.h"
#include "strata/reduce.h"
using namespace strata;

struct io { const uint32_t * in; uint32_t * out; };

STRATA_KERNEL(32) void packs(io a) {
    const uint32_t t = thread_x(), x = a.in[t], y = a.in[32 + t];
    a.out[t] = pack_low(x, y);
    a.out[32 + t] = pack_high(x, y);
    a.out[64 + t] = bit_cast<uint32_t>(pack_towards_zero(bit_cast<float>(x), bit_cast<float>(y)));
}
STRATA_KERNEL(32) void dots(io a) {
    const uint32_t t = thread_x();
    a.out[t] = bit_cast<uint32_t>(dot2(bit_cast<half2>(a.in[t]), bit_cast<half2>(a.in[32 + t]), bit_cast<float>(a.in[64 + t])));
}
/// Only lane 0 uses the values of the others: they must be read while those are active.
template <uint32_t Mask> STRATA_DEVICE void exchange(io a) {
    float x = bit_cast<float>(a.in[thread_x()]) * 3.0f;
    x += lane_xor<Mask>(x);
    if (thread_x() == 0) {
        a.out[0] = bit_cast<uint32_t>(x);
    }
}
STRATA_KERNEL(32) void exchange1(io a) { exchange<1>(a); }
STRATA_KERNEL(32) void exchange8(io a) { exchange<8>(a); }
STRATA_KERNEL(32) void exchange16(io a) { exchange<16>(a); }

STRATA_KERNEL(32) void lanes(io a) {
    const uint32_t x = a.in[thread_x()];
    a.out[thread_x()] = any_lane(x == 7);
    a.out[32 + thread_x()] = bit_cast<uint32_t>(lane_value(bit_cast<float>(x), a.in[32]));
}
/// Each wave reads what the next one wrote; the barrier orders LDS, and the load before it stays valid.
STRATA_KERNEL(128) void rotate(io a) {
    __shared__ uint32_t shared[128];
    const uint32_t early = a.in[thread_x()];
    for (uint32_t i = 0; i < 3; ++i) {
        shared[thread_x()] = early + i;
        lds_barrier();
        a.out[i * 128 + thread_x()] = shared[(thread_x() + 32) % 128];
        lds_barrier();
    }
}
"""


def launch(kernel, given, shape, block=32):
    hip = emulator()
    given = np.ascontiguousarray(given).view(np.uint32)
    source, target = hip.upload(given), hip.upload(np.full(shape, 0xdeadbeef, np.uint32))
    hip.launch(hip.kernel(compile_hip(SOURCE), kernel), 1, block, struct.pack("<QQ", source, target))
    hip.synchronize()
    out = hip.download(target, shape, np.uint32)
    hip.free(source), hip.free(target)
    return out


def test_packing():
    rng = new_rng()
    x, y = rng.uniform(-60000, 60000, (2, 32)).astype(np.float32)
    x[:4] = [1e-6, -3e-8, 0, np.inf]
    low, high, rounded = launch("packs", np.stack([x, y]), (3, 32))
    a, b = x.view(np.uint32), y.view(np.uint32)
    np.testing.assert_array_equal(low, (a & 0xffff) | (b << 16))
    np.testing.assert_array_equal(high, (a >> 16) | (b & 0xffff0000))
    nearest = np.stack([x, y], axis=1).astype(np.float16)
    wanted = np.where(np.abs(nearest.astype(np.float32)) > np.abs(np.stack([x, y], axis=1)), np.nextafter(nearest, np.float16(0)), nearest)
    np.testing.assert_array_equal(rounded.view(np.float16).reshape(32, 2), wanted)


def test_dot2():
    rng = new_rng()
    a, b = rng.standard_normal((2, 32, 2)).astype(np.float16)
    c = rng.standard_normal(32).astype(np.float32)
    out = launch("dots", np.concatenate([a.reshape(-1).view(np.uint32), b.reshape(-1).view(np.uint32), c.view(np.uint32)]), (32,)).view(np.float32)
    products = a.astype(np.float64) * b.astype(np.float64)
    assert_close(out, products.sum(1) + c, np.abs(products).sum(1) + np.abs(c), 2.0**-23)   # two roundings


@pytest.mark.parametrize("mask", [1, 8, 16])
def test_exchange_before_a_branch(mask):
    """v_permlanex16 once was moved behind the branch, where its source lane is off."""
    x = new_rng().standard_normal(32).astype(np.float32)
    out = launch(f"exchange{mask}", x, (1,)).view(np.float32)
    assert out[0] == np.float32(3) * x[0] + np.float32(3) * x[mask]


def test_votes_and_lane_values():
    for sevens in (0, 1, 32):
        x = np.arange(100, 133, dtype=np.uint32)
        x[:sevens] = 7
        x[32] = 19
        vote, value = launch("lanes", x, (2, 32))
        assert (vote == (sevens > 0)).all() and (value == x[19]).all()


def test_lds_barrier():
    x = new_rng().integers(0, 2**31, 128, np.uint32)
    out = launch("rotate", x, (3, 128), block=128)
    np.testing.assert_array_equal(out, np.roll(x, -32) + np.arange(3, dtype=np.uint32)[:, None])
