// Elements of f32, f16 and bf16 eight at a time, at any alignment, and as WMMA fragments.
#pragma once

#include "strata/element.h"
#include "strata/wmma.h"

namespace strata {

/// Eight neighbouring elements of type T (f32, f16 or bf16) as they lie in memory.
template <class T>
struct eight {
    using storage = typename T::storage;
    typedef storage type __attribute__((ext_vector_type(8)));
};
template <class T>
using eight_t = typename eight<T>::type;

template <class T>
constexpr uint32_t element_size = sizeof(typename T::storage);

/// As load() reads them.
template <class T>
STRATA_DEVICE eight_t<T> load_eight(const void * base, uint32_t offset, uint32_t constant = 0) {
    if constexpr (element_size<T> == 2) {
        return bit_cast<eight_t<T>>(load<uint4v>(base, offset, constant));
    } else {
        const auto low = load<float4v>(base, offset, constant), high = load<float4v>(base, offset, constant + 16);
        return {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    }
}

/// One element as a float.
template <class T>
STRATA_DEVICE float load_float(const void * base, uint32_t offset) {
    return T::to_float(load<typename T::storage>(base, offset));
}

/// The bits of the f16 or bf16 nearest to a float; beyond f16's range infinity.
template <class T>
STRATA_DEVICE uint32_t bits_of(float value) {
    return bit_cast<uint16_t>(T::from_float(value));
}

/// The A and B operands of WMMA for elements of type T.
template <class T>
struct fragment_of;
template <>
struct fragment_of<f16> {
    using type = half16;
};
template <>
struct fragment_of<bf16> {
    using type = bf16x16;
};

}  // namespace strata
