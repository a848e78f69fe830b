"""The building blocks of kernels in ggml_hip_ext/include/strata, each in a small kernel of its own: reductions, matrix fragments,
unaligned access, dot products, float types and the dequantization of single weights."""
import struct

import numpy as np
import pytest

from support.compile import compile_hip
from support.hip import emulator
from support.ops import QUANTIZED_TYPES, block_elements, dequantize, new_rng, quantize, random_blocks

SOURCE = """
#include "strata/dequantize.h"
#include "strata/dot.h"
#include "strata/floats.h"
#include "strata/reduce.h"
#include "strata/wmma.h"
using namespace strata;

struct io { const void * in; void * out; uint32_t offset; };

template <uint32_t Lanes> STRATA_DEVICE void reductions(const float * in, float * out) {
    const float x = in[thread_x()];
    out[thread_x()] = wave_sum<Lanes>(x);
    out[32 + thread_x()] = wave_max<Lanes>(x);
}
STRATA_KERNEL(32) void reduce2(io a) { reductions<2>((const float *) a.in, (float *) a.out); }
STRATA_KERNEL(32) void reduce4(io a) { reductions<4>((const float *) a.in, (float *) a.out); }
STRATA_KERNEL(32) void reduce8(io a) { reductions<8>((const float *) a.in, (float *) a.out); }
STRATA_KERNEL(32) void reduce16(io a) { reductions<16>((const float *) a.in, (float *) a.out); }
STRATA_KERNEL(32) void reduce32(io a) { reductions<32>((const float *) a.in, (float *) a.out); }
STRATA_KERNEL(32) void sum_ints(io a) { ((int32_t *) a.out)[thread_x()] = wave_sum(((const int32_t *) a.in)[thread_x()]); }

template <uint32_t Values> STRATA_DEVICE void many_sums(const float * in, float * out) {
    float values[Values];
#pragma unroll
    for (uint32_t i = 0; i < Values; ++i) {
        values[i] = in[i * 32 + thread_x()];
    }
    out[thread_x()] = wave_sums(values);
}
STRATA_KERNEL(32) void sums1(io a) { many_sums<1>((const float *) a.in, (float *) a.out); }
STRATA_KERNEL(32) void sums2(io a) { many_sums<2>((const float *) a.in, (float *) a.out); }
STRATA_KERNEL(32) void sums8(io a) { many_sums<8>((const float *) a.in, (float *) a.out); }
STRATA_KERNEL(32) void sums32(io a) { many_sums<32>((const float *) a.in, (float *) a.out); }

STRATA_KERNEL(32) void xor_lanes(io a) {
    const uint32_t x = ((const uint32_t *) a.in)[thread_x()];
    uint32_t * out = (uint32_t *) a.out + thread_x();
    out[0] = lane_xor<1>(x); out[32] = lane_xor<2>(x); out[64] = lane_xor<4>(x); out[96] = lane_xor<8>(x); out[128] = lane_xor<15>(x);
    out[160] = lane_xor<16>(x);
}

STRATA_KERNEL(32) void running_sums(io a) {
    const float x = ((const float *) a.in)[thread_x()];
    float * out = (float *) a.out + thread_x();
    out[0] = wave_scan(x);
    out[32] = previous_lane(x);
}

/// A and B are 16 rows of 16 values each, C and D 16 x 16.
template <class Fragment> STRATA_DEVICE void product16(io a, float * c) {
    const char * in = (const char *) a.in;
    const auto x = load_fragment<Fragment>(in + wmma_lane_index() * 32), y = load_fragment<Fragment>(in + 512 + wmma_lane_index() * 32);
    float8 d;
    for (uint32_t i = 0; i < 8; ++i) {
        d[i] = c[wmma_row(i) * 16 + wmma_lane_index()];
    }
    d = wmma(x, y, d);
    for (uint32_t i = 0; i < 8; ++i) {
        c[wmma_row(i) * 16 + wmma_lane_index()] = d[i];
    }
}
STRATA_KERNEL(32) void wmma_f16(io a) { product16<half16>(a, (float *) a.out); }
STRATA_KERNEL(32) void wmma_bf16(io a) { product16<bf16x16>(a, (float *) a.out); }
STRATA_KERNEL(32) void wmma_int8(io a) {
    const auto x = load<int8x16>(a.in, wmma_lane_index() * 16), y = load<int8x16>(a.in, 256 + wmma_lane_index() * 16);
    int8v d;
    for (uint32_t i = 0; i < 8; ++i) {
        d[i] = ((int32_t *) a.out)[wmma_row(i) * 16 + wmma_lane_index()];
    }
    d = wmma(x, y, d);
    for (uint32_t i = 0; i < 8; ++i) {
        ((int32_t *) a.out)[wmma_row(i) * 16 + wmma_lane_index()] = d[i];
    }
}

/// Copies 31 bytes from an odd place to another.
STRATA_KERNEL(32) void unaligned(io a) {
    if (thread_x() == 0) {
        store(a.out, a.offset, load<uint4v>(a.in, a.offset));
        store(a.out, a.offset + 16, load<uint2v>(a.in, a.offset, 16));
        store(a.out, a.offset + 24, load<uint32_t>(a.in, a.offset, 24));
        store(a.out, a.offset + 28, load<uint16_t>(a.in, a.offset, 28));
        store(a.out, a.offset + 30, load<uint8_t>(a.in, a.offset, 30));
    }
}

STRATA_KERNEL(32) void dots(io a) {
    const uint32_t * in = (const uint32_t *) a.in + thread_x();
    int32_t * out = (int32_t *) a.out + thread_x();
    out[0] = dot4_signed(in[0], in[32], 7);
    out[32] = dot4_unsigned(in[0], in[32], -7);
    out[64] = mul24((int32_t) in[0], (int32_t) in[32]);
}

template <class T> STRATA_DEVICE void widen(io a) {
    const auto raw = load_eight<T>(a.in, thread_x() * 8 * element_size<T>);
    for (uint32_t i = 0; i < 8; ++i) {
        ((float *) a.out)[thread_x() * 8 + i] = T::to_float(raw[i]);
        ((float *) a.out)[256 + thread_x() * 8 + i] = load_float<T>(a.in, (thread_x() * 8 + i) * element_size<T>);
    }
}
STRATA_KERNEL(32) void widen_f16(io a) { widen<f16>(a); }
STRATA_KERNEL(32) void widen_bf16(io a) { widen<bf16>(a); }
STRATA_KERNEL(32) void widen_f32(io a) { widen<f32>(a); }
STRATA_KERNEL(256) void narrow(io a) {
    ((uint32_t *) a.out)[thread_x()] = bits_of<f16>(((const float *) a.in)[thread_x()]);
    ((uint32_t *) a.out)[256 + thread_x()] = bits_of<bf16>(((const float *) a.in)[thread_x()]);
}

#define DEQUANTIZE(type) STRATA_KERNEL(256) void dequantize_##type(io a) { \\
    ((float *) a.out)[block_x() * 256 + thread_x()] = \\
        dequantize(((const block_##type *) a.in)[(block_x() * 256 + thread_x()) / block_##type::elements], \\
                   thread_x() % block_##type::elements); }
""" + " ".join(f"DEQUANTIZE({type})" for type in QUANTIZED_TYPES) + "\n"


def launch(kernel, given, result, offset=0, grid=1, block=32):
    """Runs a kernel on the bytes of `given`; returns what it made of `result`."""
    hip = emulator()
    source, target = hip.upload(given), hip.upload(result)
    hip.launch(hip.kernel(compile_hip(SOURCE), kernel), grid, block, struct.pack("<QQI4x", source, target, offset))
    hip.synchronize()
    out = hip.download(target, result.shape, result.dtype)
    hip.free(source), hip.free(target)
    return out


def butterfly(x, lanes, join):
    """What a reduction over groups of lanes gives in float32: halves joined from the outside in."""
    distance = lanes // 2
    while distance:
        x = join(x, x[np.arange(32) ^ distance])
        distance //= 2
    return x


@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
def test_reductions(lanes):
    x = new_rng().standard_normal(32, dtype=np.float32)
    x[3], x[17] = -np.inf, 1e30
    out = launch(f"reduce{lanes}", x, np.full(64, np.nan, np.float32))
    np.testing.assert_array_equal(out[:32], butterfly(x, lanes, np.add))
    np.testing.assert_array_equal(out[32:], np.repeat(x.reshape(-1, lanes).max(1), lanes))


def test_maximum_ignores_nan():
    x = np.full(32, np.nan, np.float32)
    x[9] = -3
    np.testing.assert_array_equal(launch("reduce32", x, np.zeros(64, np.float32))[32:], np.float32(-3))


def test_integer_sum():
    x = new_rng().integers(-2**31, 2**31, 32, np.int32)
    np.testing.assert_array_equal(launch("sum_ints", x, np.zeros(32, np.int32)), np.sum(x, dtype=np.int32))


@pytest.mark.parametrize("values", [1, 2, 8, 32])
def test_many_sums(values):
    """The same bits as one reduction after the other."""
    x = new_rng().standard_normal((values, 32), dtype=np.float32)
    wanted = np.array([butterfly(row, 32, np.add)[0] for row in x])
    np.testing.assert_array_equal(launch(f"sums{values}", x, np.zeros(32, np.float32)), np.repeat(wanted, 32 // values))


def test_lane_xor():
    x = new_rng().integers(0, 2**32, 32, np.uint32)
    out = launch("xor_lanes", x, np.zeros((6, 32), np.uint32))
    for row, mask in zip(out, (1, 2, 4, 8, 15, 16)):
        np.testing.assert_array_equal(row, x[np.arange(32) ^ mask])


def test_running_sums():
    x = new_rng().integers(-1000, 1000, 32).astype(np.float32)
    sums, before = launch("running_sums", x, np.zeros((2, 32), np.float32))
    np.testing.assert_array_equal(sums, np.cumsum(x))
    np.testing.assert_array_equal(before, np.concatenate([[0], x[:-1]]))


@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_wmma(type):
    rng = new_rng()
    a, b = rng.standard_normal((2, 16, 16), dtype=np.float32)
    c = rng.standard_normal((16, 16), dtype=np.float32)
    if type == "f16":
        given = np.stack([a, b]).astype(np.float16)
        a, b = given.astype(np.float64)
    else:
        given = (np.stack([a, b]).view(np.uint32) >> 16).astype(np.uint16)
        a, b = (given.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    out = launch("wmma_" + type, given, c)
    assert np.all(np.abs(out - (a @ b.T + c)) <= 1e-6 * (np.abs(a) @ np.abs(b.T) + np.abs(c)))


def test_wmma_int8():
    rng = new_rng()
    a, b = rng.integers(-128, 128, (2, 16, 16), np.int8)
    c = rng.integers(-2**30, 2**30, (16, 16), np.int32)
    np.testing.assert_array_equal(launch("wmma_int8", np.stack([a, b]), c), a.astype(np.int32) @ b.T.astype(np.int32) + c)


def test_unaligned_access():
    given = new_rng().integers(0, 256, 64, np.uint8)
    for offset in range(17):
        wanted = np.zeros(64, np.uint8)
        wanted[offset:offset + 31] = given[offset:offset + 31]
        np.testing.assert_array_equal(launch("unaligned", given, np.zeros(64, np.uint8), offset), wanted)


def test_dot_products():
    given = new_rng().integers(0, 2**32, (2, 32), np.uint32)
    given[:, 0] = 0x80808080
    out = launch("dots", given, np.zeros((3, 32), np.int32))
    a, b = given.view(np.uint8).reshape(2, 32, 4)
    signed_a, signed_b = a.view(np.int8).astype(np.int32), b.view(np.int8).astype(np.int32)
    np.testing.assert_array_equal(out[0], (signed_a * signed_b).sum(1) + 7)
    np.testing.assert_array_equal(out[1], (a.astype(np.int32) * signed_b).sum(1) - 7)
    low = (given.view(np.int32) << 8) >> 8
    np.testing.assert_array_equal(out[2].view(np.uint32), (low[0].astype(np.int64) * low[1] & 0xFFFFFFFF).astype(np.uint32))


@pytest.mark.parametrize("type", ["f16", "bf16", "f32"])
def test_widening(type):
    rng = new_rng()
    bits = rng.integers(0, 2**16, 256, np.uint16)
    if type == "f16":
        given, wanted = bits, bits.view(np.float16).astype(np.float32)
    elif type == "bf16":
        given, wanted = bits, (bits.astype(np.uint32) << 16).view(np.float32)
    else:
        given = wanted = rng.integers(0, 2**32, 256, np.uint32).view(np.float32)
    for half in launch("widen_" + type, given, np.zeros((2, 256), np.float32)):
        np.testing.assert_array_equal(half, wanted)   # any NaN is a NaN


def test_narrowing():
    x = new_rng().standard_normal(256, dtype=np.float32) * np.float32(2) ** new_rng().integers(-30, 20, 256).astype(np.float32)
    x[:12] = [np.nan, np.inf, -np.inf, 0, -0.0, 65519.9, 65520, 1 + 2**-9, 1 + 3 * 2**-9, 3.4e38, 3e-8, 1e-40]
    f16, bf16 = launch("narrow", x, np.zeros((2, 256), np.uint32), block=256)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(f16.astype(np.uint16).view(np.float16), x.astype(np.float16))
    raw = quantize(x.reshape(1, -1), "bf16").view(np.uint16)[0]
    np.testing.assert_array_equal(bf16[~np.isnan(x)], raw[~np.isnan(x)])
    assert np.isnan((bf16[:1] << 16).view(np.float32)[0]) and f16.max() < 2**16 and bf16.max() < 2**16


@pytest.mark.parametrize("type", QUANTIZED_TYPES)
def test_dequantization(type):
    """Every weight, to the bit."""
    blocks = random_blocks(new_rng(), (1, 2048), type)
    out = launch("dequantize_" + type, blocks.raw, np.full(2048, np.nan, np.float32), grid=8, block=256)
    np.testing.assert_array_equal(out, blocks.values[0])


def test_scales_of_four_bit_floats():
    """Every exponent of mxfp4 and every scale of nvfp4, with all sixteen values."""
    nibbles = np.arange(16, dtype=np.uint8) * 16 + np.arange(16, dtype=np.uint8)[::-1]
    mxfp4 = np.concatenate([np.arange(256, dtype=np.uint8)[:, None], np.tile(nibbles, (256, 1))], axis=1)
    nvfp4 = np.concatenate([np.arange(256, dtype=np.uint8).reshape(64, 4), np.tile(nibbles, (64, 2))], axis=1)
    for type, blocks in (("mxfp4", mxfp4), ("nvfp4", nvfp4)):
        raw = blocks.reshape(1, -1)
        count = len(blocks) * block_elements(type)
        out = launch("dequantize_" + type, raw, np.full(count, np.nan, np.float32), grid=count // 256, block=256)
        np.testing.assert_array_equal(out.view(np.uint32) & 0x7fffffff, dequantize(raw, type)[0].view(np.uint32) & 0x7fffffff)
        np.testing.assert_array_equal(out, dequantize(raw, type)[0])
