// Loads and stores of any width at any alignment: global memory takes them unaligned.
#pragma once

#include "strata/device.h"

namespace strata {

using uint2v = uint32_t __attribute__((ext_vector_type(2)));
using uint4v = uint32_t __attribute__((ext_vector_type(4)));
using int4v = int32_t __attribute__((ext_vector_type(4)));
using float2v = float __attribute__((ext_vector_type(2)));
using float4v = float __attribute__((ext_vector_type(4)));

/// Reads a T at base + offset + constant bytes. `base` is best the same in all lanes (it then stays in scalar registers), and `constant` a
/// constant below 4096 (it then is part of the instruction). The address may have any alignment; a T of 4, 8 or 16 bytes is one
/// instruction.
template <class T>
STRATA_DEVICE T load(const void * base, uint32_t offset = 0, uint32_t constant = 0) {
    struct __attribute__((packed, aligned(1))) unaligned {
        T value;
    };
    return reinterpret_cast<const unaligned *>(static_cast<const char *>(base) + offset + constant)->value;
}

/// Writes a T at base + offset + constant bytes, as load() reads it.
template <class T>
STRATA_DEVICE void store(void * base, uint32_t offset, T value, uint32_t constant = 0) {
    struct __attribute__((packed, aligned(1))) unaligned {
        T value;
    };
    reinterpret_cast<unaligned *>(static_cast<char *>(base) + offset + constant)->value = value;
}

/// The float that 16 bits of IEEE half precision stand for.
STRATA_DEVICE float half_bits_to_float(uint16_t bits) { return static_cast<float>(bit_cast<half>(bits)); }

}  // namespace strata
