// TRI, DIAG, DIAG_MASK_INF, DIAG_MASK_ZERO and FILL: elements of a diagonal band are copied, all others are a constant.
#include "strata/args/band.h"
#include "strata/element.h"

namespace strata {

template <class T>
STRATA_DEVICE void keep_band(const band_args & a) {
    using element = typename T::storage;
    const uint32_t item = block_x() * band_block + thread_x();
    if (item >= a.count) {
        return;
    }
    uint32_t rest = quotient(item, a.parts);
    const uint32_t first = 4 * remainder(item, rest, a.parts);
    const uint32_t i23 = quotient(rest, a.ne1), i1 = remainder(rest, i23, a.ne1);
    const uint32_t i3 = quotient(i23, a.ne2), i2 = remainder(i23, i3, a.ne2);
    char * const dst = static_cast<char *>(a.dst) + (i1 * a.dst_stride[0] + i2 * a.dst_stride[1] + i3 * a.dst_stride[2]);
    const char * const src = static_cast<const char *>(a.src) + (i1 * a.src_stride[0] + i2 * a.src_stride[1] + i3 * a.src_stride[2]);

    const uint32_t count = smaller(4, a.row - first);
    four_t<T> v;
    bool whole = count == 4;
    bool any = false;
    for (uint32_t i = 0; i < 4; i++) {
        const int32_t distance = static_cast<int32_t>(first + i) - static_cast<int32_t>(i1);
        const bool kept = distance >= a.low && distance <= a.high;
        whole = whole && kept;
        any = any || kept;
        v[i] = static_cast<element>(a.value);
    }
    if (whole) {
        v = load<four_t<T>>(src, first * sizeof(element));
    } else if (any) {
        for (uint32_t i = 0; i < 4; i++) {
            const int32_t distance = static_cast<int32_t>(first + i) - static_cast<int32_t>(i1);
            if (i < count && distance >= a.low && distance <= a.high) {
                v[i] = load<element>(src, (first + i) * sizeof(element));
            }
        }
    }
    if (count == 4) {
        store(dst, first * sizeof(element), v);
    } else {
        for (uint32_t i = 0; i < 3; i++) {
            if (i < count) {
                store<element>(dst, (first + i) * sizeof(element), v[i]);
            }
        }
    }
}

}  // namespace strata

using namespace strata;

STRATA_KERNEL(band_block) void band_bits32(band_args a) { keep_band<bits32>(a); }
STRATA_KERNEL(band_block) void band_bits16(band_args a) { keep_band<bits16>(a); }
