// The grid of a weight type in LDS: see codebooks.h.
#pragma once

#include "strata/memory.h"

namespace strata {

template <class Type>
concept has_grid = requires { Type::entries; };

/// Where a workgroup has the grid.
template <has_grid Type>
STRATA_DEVICE typename Type::entry * lds_grid() {
    __shared__ typename Type::entry entries[Type::entries];
    return entries;
}

/// What a workgroup of `Threads` work-items does to have the grid in LDS: nothing if the type has none.
template <class Type, uint32_t Threads>
struct grid_copy {
    STRATA_DEVICE grid_copy ask() { return {}; }
    __attribute__((device, always_inline)) void put() const {}
};

template <has_grid Type, uint32_t Threads>
struct grid_copy<Type, Threads> {
    static constexpr uint32_t words = Type::entries * sizeof(typename Type::entry) / sizeof(uint4v), mine = (words + Threads - 1) / Threads;
    uint4v parts[mine];

    /// Asks for this work-item's part of it.
    STRATA_DEVICE grid_copy ask() {
        grid_copy r;
#pragma unroll
        for (uint32_t i = 0; i < mine; ++i) {
            r.parts[i] = load<uint4v>(Type::whole_grid(), smaller(thread_x() + i * Threads, words - 1) * sizeof(uint4v));
        }
        keep_order();
        return r;
    }

    /// Puts the part into LDS, and waits for those of the others. What was asked for since may stay on its way.
    __attribute__((device, always_inline)) void put() const {
        keep_order();
        auto * const to = reinterpret_cast<uint4v *>(lds_grid<Type>());
#pragma unroll
        for (uint32_t i = 0; i < mine; ++i) {
            const uint32_t at = thread_x() + i * Threads;
            if (words % Threads == 0 || at < words) {
                to[at] = parts[i];
            }
        }
        lds_barrier();
    }
};

/// The same at once, by a workgroup of any size.
template <class Type>
STRATA_DEVICE void copy_grid(uint32_t threads) {
    if constexpr (has_grid<Type>) {
        constexpr uint32_t words = Type::entries * sizeof(typename Type::entry) / sizeof(uint4v);
        for (uint32_t i = thread_x(); i < words; i += threads) {
            reinterpret_cast<uint4v *>(lds_grid<Type>())[i] = load<uint4v>(Type::whole_grid(), i * sizeof(uint4v));
        }
        barrier();
    }
}

/// Type::dot, with the grid out of LDS.
template <class Type>
STRATA_DEVICE float dot_of(const typename Type::weights & w, const typename Type::activation & a, float sum, uint32_t p) {
    if constexpr (has_grid<Type>) {
        return Type::dot(w, a, sum, p, lds_grid<Type>());
    } else {
        return Type::dot(w, a, sum, p);
    }
}

}  // namespace strata
