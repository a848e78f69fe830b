// The grids of the iq types, out of ggml's own header, and tables of sixteen values that stay in registers.
//
// A grid is read-only data of the code object. Tiles read it through the caches; a mat-vec copies it into LDS first: lanes read entries of
// their own, each from another line, which the L0 serves one after the other.
#pragma once

#include "strata/dot.h"

#define GGML_COMMON_IMPL_HIP
#include "ggml-common.h"

namespace strata {

/// Base of a weight type with a grid of `Entries` entries, whose unpack and dot take where that is read from.
template <class Entry, uint32_t Entries>
struct with_grid {
    using entry = Entry;
    static constexpr uint32_t entries = Entries;
};

/// Sixteen signed bytes, four a word.
struct table16 {
    uint32_t words[4];
};

/// The values of iq4_nl and iq4_xs: -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113.
constexpr table16 iq4_values = {{0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535}};
/// The values of mxfp4 and nvfp4, e2m1 doubled: 0, 1, 2, 3, 4, 6, 8, 12, and the same negative.
constexpr table16 e2m1_values = {{0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc}};

/// The table's entries for the indices in the low nibbles of the four bytes of `index`.
STRATA_DEVICE uint32_t look_up(const table16 & table, uint32_t index) {
    const uint32_t within = index & 0x07070707u;
    const uint32_t low = __builtin_amdgcn_perm(table.words[1], table.words[0], within);
    const uint32_t high = __builtin_amdgcn_perm(table.words[3], table.words[2], within);
    return __builtin_amdgcn_perm(high, low, 0x03020100u | (index & 0x08080808u) >> 1);
}

/// Sixteen entries for the low (high) nibbles of sixteen bytes.
STRATA_DEVICE uint4v look_up_low(const table16 & table, uint4v nibbles) {
    uint4v r;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        r[i] = look_up(table, nibbles[i]);   // the high nibbles are masked out
    }
    return r;
}

STRATA_DEVICE uint4v look_up_high(const table16 & table, uint4v nibbles) { return look_up_low(table, nibbles >> 4); }

/// Entry `index` of the table, below 16.
STRATA_DEVICE int32_t look_up_one(const table16 & table, uint32_t index) {
    return static_cast<int8_t>(look_up(table, index));
}

/// The eighth sign bit of seven: the number of set bits becomes even.
STRATA_DEVICE uint32_t complete_signs(uint32_t seven) { return seven | (static_cast<uint32_t>(__builtin_popcount(seven)) & 1) << 7; }

/// 2^(e - 128), the scale of mxfp4.
STRATA_DEVICE float e8m0_half(uint32_t e) { return bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23); }

/// Half the value of an unsigned e4m3, as nvfp4 needs it; its NaN is zero. As a half the same bits have another exponent bias.
STRATA_DEVICE float e4m3_half(uint32_t bits) {
    return bits == 0x7f ? 0.0f : half_bits_to_float(static_cast<uint16_t>((bits & 0x7f) << 7)) * 128.0f;
}

}  // namespace strata
