// ARGMAX: the column of the largest number of each row.
#include "strata/args/sort.h"
#include "strata/memory.h"
#include "strata/reduce.h"

namespace strata {

/// A number, ordered as unsigned integers are (0: none), and its column.
struct candidate {
    uint32_t order, column;
};

STRATA_DEVICE candidate better(candidate a, candidate b) {
    const bool second = b.order > a.order || (b.order == a.order && b.column > a.column);
    return second ? b : a;
}

template <uint32_t Mask>
STRATA_DEVICE candidate better_lane(candidate c) {
    return better(c, {lane_xor<Mask>(c.order), lane_xor<Mask>(c.column)});
}

STRATA_KERNEL(sort_threads) void argmax(argmax_args a) {
    constexpr uint32_t group = 32;   // lanes that are joined without LDS
    __shared__ candidate groups[sort_threads / group];
    const char * row = static_cast<const char *>(a.src) + block_x() * a.stride;
    candidate best = {0, 0};
    for (uint32_t column = thread_x(); column < a.columns; column += sort_threads) {
        const float x = load<float>(row, column * 4);
        const uint32_t bits = bit_cast<uint32_t>(x + 0.0f);   // -0 is 0
        const uint32_t order = bits ^ (static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31) | 0x80000000u);
        best = better(best, x == x ? candidate{order, column} : candidate{0, 0});
    }
    best = better_lane<16>(best);
    best = better_lane<8>(best);
    best = better_lane<4>(best);
    best = better_lane<2>(best);
    best = better_lane<1>(best);
    if (thread_x() % group == 0) {
        groups[thread_x() / group] = best;
    }
    barrier();
    if (thread_x() == 0) {
        for (uint32_t i = 1; i < sort_threads / group; ++i) {
            best = better(best, groups[i]);
        }
        a.dst[block_x()] = static_cast<int32_t>(best.column);
    }
}

}  // namespace strata
