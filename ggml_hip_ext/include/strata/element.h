// Element types of tensors: how they are stored and what float they stand for.
#pragma once

#include "strata/memory.h"

namespace strata {

struct f32 {
    using storage = float;
    static __attribute__((device, always_inline)) float to_float(storage v) { return v; }
    static __attribute__((device, always_inline)) storage from_float(float v) { return v; }
};

struct f16 {
    using storage = half;
    static __attribute__((device, always_inline)) float to_float(storage v) { return static_cast<float>(v); }
    static __attribute__((device, always_inline)) storage from_float(float v) { return static_cast<half>(v); }
};

struct bf16 {
    using storage = uint16_t;
    static __attribute__((device, always_inline)) float to_float(storage v) { return bit_cast<float>(static_cast<uint32_t>(v) << 16); }
    /// To nearest, ties to even; a NaN becomes a quiet one.
    static __attribute__((device, always_inline)) storage from_float(float v) {
        const uint32_t bits = bit_cast<uint32_t>(v);
        const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
        return static_cast<storage>((v == v ? rounded : bits | 0x400000u) >> 16);
    }
};

struct i32 {
    using storage = int32_t;
    static __attribute__((device, always_inline)) float to_float(storage v) { return static_cast<float>(v); }
    /// Towards zero.
    static __attribute__((device, always_inline)) storage from_float(float v) { return static_cast<int32_t>(v); }
};

/// Bits that are only moved.
struct bits8 {
    using storage = uint8_t;
};
struct bits16 {
    using storage = uint16_t;
};
struct bits32 {
    using storage = uint32_t;
};
struct bits64 {
    using storage = uint64_t;
};

/// Four neighbouring elements of type T.
template <class T>
struct four {
    using storage = typename T::storage;
    typedef storage type __attribute__((ext_vector_type(4)));
};
template <class T>
using four_t = typename four<T>::type;

}  // namespace strata
