// Weight type q5_1: see block32.h for what the members mean.
#pragma once

#include "strata/quant/block32.h"

namespace strata {

struct q5_1 : block32<block_q5_1> {
    static constexpr bool has_min = true;

    struct weights {
        uint4v q;
        uint32_t dm, high;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t) {
        const auto head = strata::load<uint2v>(row, offset);
        return {strata::load<uint4v>(row, offset, 8), head.x, head.y};
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t) {
        const int32_t product = dot_bytes(join_fifth_bits(w.q, w.high), a);
        sum = __builtin_fmaf(static_cast<float>(product), half_bits_to_float(w.dm & 0xffff) * a.d, sum);
        return __builtin_fmaf(half_bits_to_float(w.dm >> 16), a.d * static_cast<float>(a.sum), sum);
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t) {
        const bytes32 b = join_fifth_bits(w.q, w.high);
        return {{b.q[0], b.q[1]}, {half_bits_to_float(w.dm & 0xffff)}, {-half_bits_to_float(w.dm >> 16)}};
    }
};

}  // namespace strata
