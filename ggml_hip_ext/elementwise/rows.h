// Which rows belong together when rows are gathered, scattered or copied in order.
#pragma once

#include "strata/args/rows.h"
#include "strata/memory.h"

namespace strata {

enum class direction { gather, scatter };

struct row_pair {
    char * dst;
    const char * src;
};

// The source and destination of row r.
template <direction Direction>
STRATA_DEVICE row_pair find_rows(const rows_args & a, uint32_t r) {
    const uint32_t rest = quotient(r, a.ne1), i1 = remainder(r, rest, a.ne1);
    const uint32_t i3 = quotient(rest, a.ne2), i2 = remainder(rest, i3, a.ne2);
    uint32_t index = i1;
    if (a.index) {
        const uint32_t j2 = remainder(i2, quotient(i2, a.index_ne1), a.index_ne1);
        const uint32_t j3 = remainder(i3, quotient(i3, a.index_ne2), a.index_ne2);
        index = *reinterpret_cast<const uint32_t *>(static_cast<const char *>(a.index) +
                                                    (i1 * a.index_stride[0] + j2 * a.index_stride[1] + j3 * a.index_stride[2]));
    }
    const uint32_t dst_row = Direction == direction::scatter ? index : i1, src_row = Direction == direction::gather ? index : i1;
    return {static_cast<char *>(a.dst) + (dst_row * a.dst_stride[0] + i2 * a.dst_stride[1] + i3 * a.dst_stride[2]),
            static_cast<const char *>(a.src) + (src_row * a.src_stride[0] + i2 * a.src_stride[1] + i3 * a.src_stride[2])};
}

}  // namespace strata
