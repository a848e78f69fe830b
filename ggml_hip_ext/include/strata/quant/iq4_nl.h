// Weight type iq4_nl: see block32.h for what the members mean.
#pragma once

#include "strata/codebooks.h"
#include "strata/quant/block64.h"

namespace strata {

struct iq4_nl : block32<block_iq4_nl> {
    static constexpr bool has_min = false;

    struct weights {
        uint4v q;
        uint16_t d;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t) {
        return {strata::load<uint4v>(row, offset, 2), strata::load<uint16_t>(row, offset)};
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t) {
        return {{look_up_low(iq4_values, w.q), look_up_high(iq4_values, w.q)}, {half_bits_to_float(w.d)}, {}};
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p) { return dot_unpacked(unpack(w, p), a, sum); }
};

}  // namespace strata
