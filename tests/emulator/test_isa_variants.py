"""The emulator's builds for different host instruction sets compute the same bits, on random bit patterns and special values.

One thing is left open, because the chip's choice is not known: which of several NaN operands a fused multiply-add passes on. So an
operation here meets one NaN operand at most.
"""

import struct
from pathlib import Path

import numpy as np
import pytest

from support.process import run_python

ITEMS = 4096  # work-items of the element-wise kernels
MATRIX_WAVES = 16

SOURCE = """
#include "strata/device.h"
#include "strata/dot.h"
#include "strata/math.h"
#include "strata/reduce.h"
#include "strata/wmma.h"
using namespace strata;

struct args { const uint32_t * in; uint32_t * out; uint32_t items; };

/// Writes results one after the other, `items` apart.
struct writer {
    uint32_t * out;
    uint32_t items;
    template <class T>
    STRATA_DEVICE_MEMBER void operator()(T value) {
        if constexpr (sizeof(T) == 8) {
            (*this)(static_cast<uint32_t>(bit_cast<uint64_t>(value)));
            (*this)(static_cast<uint32_t>(bit_cast<uint64_t>(value) >> 32));
        } else if constexpr (sizeof(T) == 2) {
            (*this)(static_cast<uint32_t>(bit_cast<uint16_t>(value)));
        } else {
            *out = bit_cast<uint32_t>(value);
            out += items;
        }
    }
};

STRATA_KERNEL(256) void float_ops(args g) {
    const uint32_t i = block_x() * 256 + thread_x();
    const float a = bit_cast<float>(g.in[i]), b = bit_cast<float>(g.in[g.items + i]), c = bit_cast<float>(g.in[2 * g.items + i]);
    writer w{g.out + i, g.items};
    w(a + b); w(a - b); w(a * b); w(__builtin_fmaf(a, b, c)); w(__builtin_fmaf(-a, b, -c)); w(min(a, b)); w(max(a, b)); w(median(a, b, c));
    w(reciprocal(a)); w(__builtin_amdgcn_rsqf(a)); w(__builtin_amdgcn_sqrtf(a)); w(exp2_fast(a)); w(__builtin_amdgcn_logf(a));
    w(__builtin_amdgcn_sinf(a)); w(__builtin_amdgcn_cosf(a)); w(a / b); w(sqrt(a)); w(floor(a)); w(ceil(a)); w(trunc(a)); w(round_even(a));
    w(ldexp(a, static_cast<int32_t>(g.in[g.items + i]) >> 20)); w(__builtin_amdgcn_frexp_mantf(a)); w(__builtin_amdgcn_frexp_expf(a));
    w(__builtin_amdgcn_fractf(a)); w(static_cast<half>(a)); w(exp(a)); w(tanh(a)); w(a < b ? c : a); w(a <= b && c > 0 ? 1u : 2u);
    w(__builtin_isunordered(a, b) ? 3u : 4u); w(__builtin_amdgcn_classf(a, 0x155) ? 5u : 6u);
    w(static_cast<double>(a) * b + c); w(static_cast<float>(g.in[i])); w(static_cast<float>(static_cast<int32_t>(g.in[i])));
    if (abs(a) < 1e9f) { w(static_cast<int32_t>(a)); }
}

STRATA_KERNEL(256) void half_ops(args g) {
    using half2 = half __attribute__((ext_vector_type(2)));
    const uint32_t i = block_x() * 256 + thread_x();
    const half2 a = bit_cast<half2>(g.in[i]), b = bit_cast<half2>(g.in[g.items + i]), c = bit_cast<half2>(g.in[2 * g.items + i]);
    writer w{g.out + i, g.items};
    w(a + b); w(a * b); w(__builtin_elementwise_fma(a, b, c)); w(__builtin_elementwise_max(a, b)); w(__builtin_elementwise_min(a, b));
    w(a.x + b.y); w(a.y * b.x); w(static_cast<float>(a.x)); w(static_cast<float>(a.y));
    w(__builtin_fmaf(static_cast<float>(a.x), static_cast<float>(b.y), static_cast<float>(c.x)));
    w(bit_cast<uint32_t>(__builtin_amdgcn_cvt_pkrtz(bit_cast<float>(g.in[i]), bit_cast<float>(g.in[g.items + i]))));
    w(__builtin_amdgcn_fdot2(b, c, bit_cast<float>(g.in[i]), false));
}

STRATA_KERNEL(256) void integer_ops(args g) {
    const uint32_t i = block_x() * 256 + thread_x();
    const uint32_t a = g.in[i], b = g.in[g.items + i], c = g.in[2 * g.items + i];
    const int32_t sa = static_cast<int32_t>(a), sb = static_cast<int32_t>(b), sc = static_cast<int32_t>(c);
    const uint64_t wide = static_cast<uint64_t>(a) << 32 | b;
    writer w{g.out + i, g.items};
    w(dot4_signed(a, b, sc)); w(dot4_unsigned(a, b, sc)); w(__builtin_amdgcn_sudot4(true, sa, false, sb, sc, true));
    w(__builtin_amdgcn_sudot8(true, sa, true, sb, sc, false)); w(mul24(sa, sb)); w(a * b); w(a + b * c);
    w(static_cast<uint64_t>(a) * b + wide); w(static_cast<int64_t>(sa) * sb); w(wide << (c & 63)); w(wide >> (c & 63));
    w(static_cast<int64_t>(wide) >> (c & 63)); w(a << (b & 31)); w(a >> (b & 31)); w(sa >> (b & 31)); w((a & b) | (~a & c));
    w(__builtin_popcount(a)); w(__builtin_clz(a | 1)); w(__builtin_ctz(a | 0x80000000u)); w(__builtin_bitreverse32(a));
    w(__builtin_amdgcn_ubfe(a, b & 31, c & 31)); w(__builtin_amdgcn_sbfe(sa, b & 31, c & 31)); w(__builtin_amdgcn_alignbit(a, b, c));
    w(__builtin_amdgcn_perm(a, b, c)); w(a < b ? a : b); w(sa < sb ? sb : sa); w(a ^ b ^ c); w((a << 5) + b); w(a + b + c);
    w(__builtin_amdgcn_sad_u8(a, b, c)); w(a / (b | 1)); w(sa % (sb | 1)); w(wide + (static_cast<uint64_t>(c) << 17 | a)); w(wide - b);
    if (a & 1) { w(b); } else { w(c); }
}

STRATA_KERNEL(256) void lane_ops(args g) {
    const uint32_t i = block_x() * 256 + thread_x();
    const uint32_t a = g.in[i], b = g.in[g.items + i];
    writer w{g.out + i, g.items};
    w(lane_xor<1>(a)); w(lane_xor<7>(a)); w(lane_xor<16>(a)); w(wave_sum(a)); w(wave_max(bit_cast<float>(a & 0x7f7fffffu)));
    if (b & 3) {
        // Some lanes are off: whether they are read or not shows here.
        w(__builtin_amdgcn_update_dpp(b, a, 0x111, 0xf, 0xf, false));   // row_shr:1
        w(__builtin_amdgcn_update_dpp(b, a, 0x103, 0xf, 0xf, true));    // row_shl:3, bound_ctrl
        w(__builtin_amdgcn_update_dpp(b, a, 0x124, 0x5, 0xb, false));   // row_ror:4, rows and banks masked
        w(__builtin_amdgcn_update_dpp(b, a, 0x1b, 0xf, 0xf, false));    // quad_perm:[3,2,1,0]
        w(__builtin_amdgcn_update_dpp(b, a, 0x140, 0xf, 0xf, false));   // row_mirror
        w(__builtin_amdgcn_update_dpp(b, a, 0x155, 0xf, 0xf, false));   // row_share:5
        w(__builtin_amdgcn_mov_dpp8(a, 0xfac688));
        w(__builtin_amdgcn_ds_bpermute(b, a)); w(__builtin_amdgcn_ds_permute(b & 124, a));
        w(__builtin_amdgcn_permlane16(b, a, 0x13579bdf, 0x2468ace0, false, false));
        w(__builtin_amdgcn_permlanex16(b, a, 0x13579bdf, 0x2468ace0, true, false));
        w(__builtin_amdgcn_readlane(a, 11)); w(__builtin_amdgcn_readfirstlane(a)); w(__builtin_amdgcn_ballot_w32(a > b));
        w(__builtin_amdgcn_mbcnt_lo(a, b)); w(__builtin_amdgcn_ds_swizzle(a, 0x041f));
    }
}

STRATA_KERNEL(256) void memory_ops(args g) {
    __attribute__((shared)) static uint32_t block[256];
    __attribute__((shared)) static uint32_t sums[16];
    const uint32_t i = block_x() * 256 + thread_x(), t = thread_x();
    writer w{g.out + i, g.items};
    block[t] = g.in[i];
    if (t < 16) { sums[t] = t; }
    barrier();
    __hip_atomic_fetch_add(&sums[g.in[i] & 15], g.in[g.items + i], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    __hip_atomic_fetch_max(&block[255 - t], g.in[2 * g.items + i], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    barrier();
    w(block[(t * 37) & 255]); w(sums[t & 15]);
    const auto * bytes = reinterpret_cast<const uint8_t *>(g.in) + i;
    w(static_cast<uint32_t>(bytes[3])); w(static_cast<int32_t>(static_cast<signed char>(bytes[5]))); w(g.in[(i * 2654435761u) % g.items]);
    const auto * wide = reinterpret_cast<const uint64_t *>(g.in + (i & ~3u));
    w(wide[0] + wide[1]);
    uint32_t own[8];  // indexed by a value of the lane's: scratch or selects
    for (int n = 0; n < 8; ++n) { own[n] = g.in[(i + n) % g.items]; }
    own[g.in[i] & 7] ^= 1;
    w(own[g.in[g.items + i] & 7]);
}

STRATA_KERNEL(32) void matrix_ops(args g) {
    // A wave's fragments from 32 * 16 words of input; 48 words of output a lane.
    const uint32_t wave = block_x(), lane = thread_x();
    const uint32_t * in = g.in + wave * 512 + (lane & 15) * 16;
    half16 ha, hb;
    bf16x16 ba, bb;
    int8x16 ia, ib;
    float8 c;
    int8v ic;
    for (int n = 0; n < 16; ++n) {
        ha[n] = bit_cast<half>(static_cast<uint16_t>(in[n])); hb[n] = bit_cast<half>(static_cast<uint16_t>(in[256 + n]));
        ba[n] = static_cast<short>(in[n] >> 16); bb[n] = static_cast<short>(in[256 + n] >> 16);
    }
    for (int n = 0; n < 4; ++n) { ia[n] = static_cast<int32_t>(in[n]); ib[n] = static_cast<int32_t>(in[256 + n]); }
    for (int n = 0; n < 8; ++n) {
        const uint32_t word = g.in[wave * 512 + lane * 8 + n];
        c[n] = bit_cast<float>(word);
        ic[n] = static_cast<int32_t>(word);
    }
    writer w{g.out + wave * 32 + lane, g.items};
    const float8 f16 = wmma(ha, hb, c), bf16 = wmma(ba, bb, c);
    const int8v both = wmma(ia, ib, ic), mixed = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(false, ia, true, ib, ic, true);
    const auto small = __builtin_amdgcn_wmma_i32_16x16x16_iu4_w32(true, ia.xy, false, ib.xy, ic, false);
    const half16 narrow = __builtin_amdgcn_wmma_f16_16x16x16_f16_w32(ha, hb, ha, true);
    for (int n = 0; n < 8; ++n) { w(f16[n]); w(bf16[n]); w(both[n]); w(mixed[n]); w(small[n]); }
    for (int n = 0; n < 8; ++n) { w(bit_cast<uint32_t>(__builtin_shufflevector(narrow, narrow, 0, 1))); w(narrow[2 * n + 1]); }
}
""".replace("STRATA_DEVICE_MEMBER", "__attribute__((device, always_inline))")

KERNELS = {"float_ops": 256, "half_ops": 256, "integer_ops": 256, "lane_ops": 256, "memory_ops": 256, "matrix_ops": 32}
RESULTS = 96  # words a work-item, at most
SPECIALS = np.array([0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001,
                     0xFFFFFFFF, 0x3F800000, 0xBF800000, 0x7C00FC00, 0x7E007C01, 0x00010400, 0x3C00BC00, 0x80007FFF, 0x4F000000,
                     0xCF000000], np.uint32)


def is_nan(words: np.ndarray) -> np.ndarray:
    """Words that are a NaN as a float, or in one of their halves as f16 or bf16."""
    halves = [words & 0xFFFF, words >> 16]
    return np.logical_or.reduce([(half & 0x7FFF) > infinity for half in halves for infinity in (0x7C00, 0x7F80)]) | \
        ((words & 0x7FFFFFFF) > 0x7F800000)


def inputs(seed: int) -> np.ndarray:
    """Three words an item: random bits, floats of ordinary size, halves of ordinary size, and special values. NaNs only in the first."""
    rng = np.random.default_rng(seed)
    count = 3 * ITEMS
    words = rng.integers(0, 2**32, count, np.uint32)
    floats = (rng.standard_normal(count) * 2.0 ** rng.integers(-8, 8, count)).astype(np.float32).view(np.uint32)
    halves = rng.standard_normal(2 * count).astype(np.float16).view(np.uint32)
    kind = rng.integers(0, 8, count)
    words = np.where(kind < 3, floats, np.where(kind < 5, halves, words))
    words = np.where(kind == 7, rng.choice(SPECIALS, count), words).astype(np.uint32)
    words[ITEMS:] = np.where(is_nan(words[ITEMS:]), 0x3C003F80, words[ITEMS:])
    return words


def run_kernels(seed: int, path: str) -> None:
    """Runs every kernel in this process and saves the results, poison included."""
    from support.compile import compile_hip
    from support.hip import emulator

    hip = emulator()
    module = hip.load(compile_hip(SOURCE))
    data = hip.upload(inputs(seed))
    results = {}
    for name, block in KERNELS.items():
        matrices = name == "matrix_ops"
        items = MATRIX_WAVES * 32 if matrices else ITEMS
        source = data + 4 * ITEMS if matrices else data  # the words without NaN
        out = hip.malloc(4 * RESULTS * items)
        hip.launch(hip.function(module, name), items // block, block, struct.pack("<QQI4x", source, out, items))
        results[name] = hip.download(out, (RESULTS, items), np.uint32)
    np.savez(path, **results)


def variants() -> list[str]:
    flags = set(Path("/proc/cpuinfo").read_text().split("flags", 1)[1].split("\n", 1)[0].split())
    found = ["generic"]
    if {"avx2", "fma", "f16c"} <= flags:
        found.append("avx2")
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"} <= flags:
        found.append("avx512")
    return found


def run_variant(variant: str, seed: int, path: Path) -> dict[str, np.ndarray]:
    done = run_python(f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
                      f"from test_isa_variants import run_kernels; run_kernels({seed}, {str(path)!r})", STRATA_EMULATOR_ISA=variant)
    assert done.returncode == 0, done.stderr
    return dict(np.load(path))


@pytest.fixture(scope="module")
def generic(tmp_path_factory):
    seed = int(np.random.SeedSequence().entropy % 2**63)
    return seed, run_variant("generic", seed, tmp_path_factory.mktemp("isa") / "generic.npz")


def test_the_kernels_write_results(generic):
    _, results = generic
    for name, words in results.items():
        written = (words != 0xFFFFFFFF).any(axis=1).sum()
        least = {"float_ops": 30, "half_ops": 12, "integer_ops": 40, "lane_ops": 20, "memory_ops": 8, "matrix_ops": 50}[name]
        assert written >= least, (name, written)


@pytest.mark.parametrize("variant", variants()[1:])
def test_same_bits(generic, variant, tmp_path):
    seed, wanted = generic
    print("seed", seed)
    found = run_variant(variant, seed, tmp_path / "out.npz")
    assert found.keys() == wanted.keys()
    for name in wanted:
        different = np.argwhere(found[name] != wanted[name])
        assert not len(different), (f"{name}: {len(different)} words differ; result {different[0][0]} of item {different[0][1]}: generic "
                                    f"{wanted[name][tuple(different[0])]:#010x}, {variant} {found[name][tuple(different[0])]:#010x}")


def test_an_unknown_variant_is_named():
    done = run_python("""
from support.hip import HipError, emulator
from support.kernels import basic_kernels
hip = emulator()
hip.launch(hip.kernel(basic_kernels(), "nothing"), 1, 32)
try:
    hip.synchronize()
    raise SystemExit("it ran")
except HipError as e:
    assert "STRATA_EMULATOR_ISA=mmx is none of generic, avx2, avx512" in e.message, e
""", STRATA_EMULATOR_ISA="mmx")
    assert "STRATA_EMULATOR_ISA=mmx" in done.stderr
