// The float types tensors come in: f32, f16 and bf16, eight values at a time.
#pragma once

#include "strata/memory.h"
#include "strata/wmma.h"

namespace strata {

/// Nearest bf16, ties to even, as its bits; a NaN stays one.
STRATA_DEVICE uint32_t bf16_bits(float value) {
    const uint32_t bits = bit_cast<uint32_t>(value);
    return value != value ? bits >> 16 | 64 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/// Eight values as they lie in memory, and as floats.
struct f32 {
    static constexpr uint32_t size = 4;
    using raw8 = float __attribute__((ext_vector_type(8)));

    STRATA_DEVICE raw8 load8(const void * base, uint32_t offset) {
        const auto low = load<float4v>(base, offset), high = load<float4v>(base, offset, 16);
        return {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    }
    STRATA_DEVICE float get(const raw8 & raw, uint32_t i) { return raw[i]; }
    STRATA_DEVICE float load1(const void * base, uint32_t offset) { return load<float>(base, offset); }
};

struct f16 {
    static constexpr uint32_t size = 2;
    using raw8 = half __attribute__((ext_vector_type(8)));
    using fragment = half16;

    STRATA_DEVICE raw8 load8(const void * base, uint32_t offset) { return bit_cast<raw8>(load<uint4v>(base, offset)); }
    STRATA_DEVICE float get(const raw8 & raw, uint32_t i) { return static_cast<float>(raw[i]); }
    STRATA_DEVICE float load1(const void * base, uint32_t offset) { return half_bits_to_float(load<uint16_t>(base, offset)); }
    /// The bits of the nearest f16; beyond its range infinity.
    STRATA_DEVICE uint32_t bits(float value) { return bit_cast<uint16_t>(static_cast<half>(value)); }
};

struct bf16 {
    static constexpr uint32_t size = 2;
    using raw8 = uint4v;
    using fragment = bf16x16;

    STRATA_DEVICE raw8 load8(const void * base, uint32_t offset) { return load<uint4v>(base, offset); }
    STRATA_DEVICE float get(const raw8 & raw, uint32_t i) {
        return bit_cast<float>(i & 1 ? raw[i / 2] & 0xffff0000u : raw[i / 2] << 16);
    }
    STRATA_DEVICE float load1(const void * base, uint32_t offset) {
        return bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(base, offset)) << 16);
    }
    STRATA_DEVICE uint32_t bits(float value) { return bf16_bits(value); }
};

}  // namespace strata
