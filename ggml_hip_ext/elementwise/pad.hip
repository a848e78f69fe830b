// PAD, PAD_REFLECT_1D, ROLL: a work-item an element of the result.
#include "strata/args/pad.h"
#include "strata/element.h"

namespace strata {

template <class T>
STRATA_DEVICE void pad(const pad_args & a) {
    const uint32_t i = block_x() * pad_block + thread_x();
    if (i >= a.count) {
        return;
    }
    uint32_t rest = i;
    uint64_t offset = 0;
    bool inside = true;
#pragma unroll
    for (uint32_t d = 0; d < 4; d++) {
        const pad_args::dim & dim = a.dims[d];
        const uint32_t next = quotient(rest, dim.size);
        int32_t at = static_cast<int32_t>(remainder(rest, next, dim.size)) - dim.before;
        rest = next;
        const int32_t size = static_cast<int32_t>(dim.source.divisor);
        if (a.kind == pad_zeros) {
            inside = inside && at >= 0 && at < size;
        } else if (a.kind == pad_around) {
            // `before` was made positive and less than the size by the host, so one size more is never negative.
            const uint32_t turned = static_cast<uint32_t>(at + size);
            at = static_cast<int32_t>(remainder(turned, quotient(turned, dim.source), dim.source));
        } else {
            at = at < 0 ? -at : at >= size ? 2 * (size - 1) - at : at;
        }
        offset += static_cast<uint64_t>(static_cast<uint32_t>(at)) * dim.step;
    }
    typename T::storage value{};
    if (inside) {
        value = load<typename T::storage>(static_cast<const char *>(a.src) + offset);
    }
    static_cast<typename T::storage *>(a.dst)[i] = value;
}

}  // namespace strata

using namespace strata;

STRATA_KERNEL(pad_block) void pad_bits16(pad_args a) { pad<bits16>(a); }
STRATA_KERNEL(pad_block) void pad_bits32(pad_args a) { pad<bits32>(a); }
