// Decoding of key/value cache rows of any type (args/kv_format.h) into f16. The loads of a row are apart from its decoding, so
// that data stay in flight meanwhile: raw data take no more registers than the halves they become. The type is the same in all lanes;
// each function branches on it once for all its elements.
//
// Quantized values are rounded to f16 once. f32 and bf16 values are rounded to f16; beyond +-65504 they saturate.
#pragma once

#include "strata/args/kv_format.h"
#include "strata/math.h"
#include "strata/memory.h"
#include "strata/packed_half.h"
#include "strata/quant/block32.h"

namespace strata {

/// Where a group of 4 or 8 channels, the first a multiple of that, lies in a row.
struct kv_place {
    uint32_t offset;   ///< byte offset of its data
    uint32_t before;   ///< how far before them its block begins
    uint32_t index;    ///< of its first channel in the block
};

STRATA_DEVICE kv_place place_of(const kv_format & f, uint32_t channel) {
    if (f.kind <= kv_kind::f32) {
        return {channel * (f.kind == kv_kind::f32 ? 4 : 2), 0, 0};
    }
    if (f.kind >= kv_kind::pairs) {
        const uint32_t shift = f.kind == kv_kind::bits ? 7 : 6;
        const uint32_t index = channel & ((1u << shift) - 1), before = f.quants + (index >> (f.kind == kv_kind::bits ? 3 : 2));
        return {(channel >> shift) * f.block_bytes + before, before, index};
    }
    const uint32_t index = channel % 32, before = f.quants + (f.kind == kv_kind::bytes ? index : index % 16);
    return {channel / 32 * f.block_bytes + before, before, index};
}

/// Two floats as halves, to nearest; beyond the range of halves the largest one.
STRATA_DEVICE uint32_t saturated_halves(float low, float high) {
    constexpr float largest = 65504.0f;
    return bit_cast<uint32_t>(half2{static_cast<half>(median(low, -largest, largest)), static_cast<half>(median(high, -largest, largest))});
}

STRATA_DEVICE uint32_t bf16_to_halves(uint32_t pair) {
    return saturated_halves(bit_cast<float>(pair << 16), bit_cast<float>(pair & 0xffff0000u));
}

namespace kv_detail {

/// Values of iq4_nl, plus 128.
STRATA_DEVICE uint32_t iq4_nl_bytes(uint32_t indices) {
    const uint32_t select = indices & 0x07070707u;
    const uint32_t low = __builtin_amdgcn_perm(0x766a5d4fu, 0x3f2d1801u, select);
    const uint32_t high = __builtin_amdgcn_perm(0xf1d9c5b5u, 0xa6998d81u, select);
    const uint32_t upper = (indices >> 3 & 0x01010101u) * 255u;
    return (upper & high) | (~upper & low);
}

/// Four 2-bit values, one to each byte.
STRATA_DEVICE uint32_t spread_pairs(uint32_t bits) {
    const uint32_t two = (bits | bits << 12) & 0x000f000fu;
    return (two | two << 6) & 0x03030303u;
}

/// Four unsigned bytes as halves (byte - bias) * d + m.
STRATA_DEVICE uint2v scaled(const kv_format & f, uint32_t bytes, uint32_t scale) {
    scale &= f.scale_mask;
    const half2 d = bit_cast<half2>(pack_low(scale, scale));
    const half2 m = bit_cast<half2>(pack_high(scale, scale));
    const half2 bias = bit_cast<half2>(f.biased);
    // 0x6400 + byte is the half 1024 + byte.
    const half2 first = bit_cast<half2>(__builtin_amdgcn_perm(0x64646464u, bytes, 0x04010400u)) - bias;
    const half2 second = bit_cast<half2>(__builtin_amdgcn_perm(0x64646464u, bytes, 0x04030402u)) - bias;
    return {bit_cast<uint32_t>(__builtin_elementwise_fma(first, d, m)), bit_cast<uint32_t>(__builtin_elementwise_fma(second, d, m))};
}

}  // namespace kv_detail

/// Reads `N` groups of 8 channels: group i at place(i) of its row, its data at byte offset at(i), if exists(i). A group of f16 and f32 is
/// decoded as it stands; of other types it waits for decode_eights.
template <uint32_t N, class Place, class At, class Exists>
STRATA_DEVICE void load_eights(const kv_format & f, const void * base, uint4v * raw, Place place, At at, Exists exists) {
    if (f.kind <= kv_kind::bf16) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            if (exists(i)) {
                raw[i] = load<uint4v>(base, at(i));
            }
        }
    } else if (f.kind == kv_kind::f32) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            if (exists(i)) {
                const float4v a = load<float4v>(base, at(i)), b = load<float4v>(base, at(i), 16);
                raw[i] = {saturated_halves(a[0], a[1]), saturated_halves(a[2], a[3]), saturated_halves(b[0], b[1]), saturated_halves(b[2], b[3])};
            }
        }
    } else if (f.kind >= kv_kind::pairs) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            if (exists(i)) {
                raw[i][0] = f.kind == kv_kind::bits ? load<uint8_t>(base, at(i)) : load<uint16_t>(base, at(i));
                raw[i][2] = load<uint32_t>(base, at(i) - place(i).before);
            }
        }
    } else {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            if (exists(i)) {
                const uint2v quants = load<uint2v>(base, at(i));
                raw[i] = {quants[0], quants[1], load<uint32_t>(base, at(i) - place(i).before), 0};
                if (f.kind == kv_kind::fives) {
                    raw[i][3] = load<uint32_t>(base, at(i) - place(i).before + f.high);
                }
            }
        }
    }
}

/// Turns what load_eights read into halves.
template <uint32_t N, class Place>
STRATA_DEVICE void decode_eights(const kv_format & f, uint4v * raw, Place place) {
    using namespace kv_detail;
    if (f.kind == kv_kind::f16 || f.kind == kv_kind::f32) {
        return;
    }
    if (f.kind == kv_kind::bf16) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            raw[i] = {bf16_to_halves(raw[i][0]), bf16_to_halves(raw[i][1]), bf16_to_halves(raw[i][2]), bf16_to_halves(raw[i][3])};
        }
        return;
    }
    if (f.kind == kv_kind::bytes) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            raw[i][0] ^= 0x80808080u;
            raw[i][1] ^= 0x80808080u;
        }
    } else if (f.kind == kv_kind::pairs) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            const uint32_t bits = raw[i][0];
            raw[i][0] = spread_pairs(bits & 255);
            raw[i][1] = spread_pairs(bits >> 8);
        }
    } else if (f.kind == kv_kind::bits) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            const uint32_t bits = raw[i][0];
            raw[i][0] = spread_bits(bits) << 1;
            raw[i][1] = spread_bits(bits >> 4) << 1;
        }
    } else {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            const uint32_t shift = place(i).index / 16 * 4;
            raw[i][0] = raw[i][0] >> shift & low_nibbles;
            raw[i][1] = raw[i][1] >> shift & low_nibbles;
        }
        if (f.kind == kv_kind::fives) {
#pragma unroll
            for (uint32_t i = 0; i < N; ++i) {
                const uint32_t high = raw[i][3] >> place(i).index;
                raw[i][0] |= spread_bits(high) << 4;
                raw[i][1] |= spread_bits(high >> 4) << 4;
            }
        } else if (f.kind == kv_kind::table) {
#pragma unroll
            for (uint32_t i = 0; i < N; ++i) {
                raw[i][0] = iq4_nl_bytes(raw[i][0]);
                raw[i][1] = iq4_nl_bytes(raw[i][1]);
            }
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        const uint2v low = scaled(f, raw[i][0], raw[i][2]), high = scaled(f, raw[i][1], raw[i][2]);
        raw[i] = {low[0], low[1], high[0], high[1]};
    }
}

/// Raw data of the same 4 channels of N rows.
template <uint32_t N>
struct kv_fours {
    static_assert(N <= 8);
    uint2v words[N];
    uint32_t high;   ///< fives: four fifth bits of each row
};

/// As load_eights, for N groups of 4 channels at the same place of several rows.
template <uint32_t N, class At>
STRATA_DEVICE void load_fours(const kv_format & f, const void * base, kv_fours<N> & raw, const kv_place & place, At at) {
    if (f.kind <= kv_kind::bf16) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            raw.words[i] = load<uint2v>(base, at(i));
        }
    } else if (f.kind == kv_kind::f32) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            const float4v x = load<float4v>(base, at(i));
            raw.words[i] = {saturated_halves(x[0], x[1]), saturated_halves(x[2], x[3])};
        }
    } else if (f.kind >= kv_kind::pairs) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            raw.words[i] = {load<uint8_t>(base, at(i)), load<uint32_t>(base, at(i) - place.before)};
        }
    } else {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            raw.words[i] = {load<uint32_t>(base, at(i)), load<uint32_t>(base, at(i) - place.before)};
        }
        if (f.kind == kv_kind::fives) {
            uint32_t high = 0;
#pragma unroll
            for (uint32_t i = 0; i < N; ++i) {
                const uint32_t bits = load<uint8_t>(base, at(i) - place.before + f.high + place.index / 8);
                high |= (bits >> (place.index & 4) & 15) << 4 * i;
            }
            raw.high = high;
        }
    }
}

/// Turns what load_fours read into halves.
template <uint32_t N>
STRATA_DEVICE void decode_fours(const kv_format & f, kv_fours<N> & raw, const kv_place & place) {
    using namespace kv_detail;
    if (f.kind == kv_kind::f16 || f.kind == kv_kind::f32) {
        return;
    }
    if (f.kind == kv_kind::bf16) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            raw.words[i] = {bf16_to_halves(raw.words[i][0]), bf16_to_halves(raw.words[i][1])};
        }
        return;
    }
    if (f.kind == kv_kind::bytes) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            raw.words[i][0] ^= 0x80808080u;
        }
    } else if (f.kind == kv_kind::pairs) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            raw.words[i][0] = spread_pairs(raw.words[i][0]);
        }
    } else if (f.kind == kv_kind::bits) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            raw.words[i][0] = spread_bits(raw.words[i][0] >> (place.index & 4)) << 1;
        }
    } else {
        const uint32_t shift = place.index / 16 * 4;
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            raw.words[i][0] = raw.words[i][0] >> shift & low_nibbles;
        }
        if (f.kind == kv_kind::fives) {
#pragma unroll
            for (uint32_t i = 0; i < N; ++i) {
                raw.words[i][0] |= spread_bits(raw.high >> 4 * i) << 4;
            }
        } else if (f.kind == kv_kind::table) {
#pragma unroll
            for (uint32_t i = 0; i < N; ++i) {
                raw.words[i][0] = iq4_nl_bytes(raw.words[i][0]);
            }
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        raw.words[i] = scaled(f, raw.words[i][0], raw.words[i][1]);
    }
}

}  // namespace strata
