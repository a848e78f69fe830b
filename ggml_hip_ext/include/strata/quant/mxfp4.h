// Weight type mxfp4: see block32.h for what the members mean.
#pragma once

#include "strata/codebooks.h"
#include "strata/quant/block64.h"

namespace strata {

struct mxfp4 : block32<block_mxfp4> {
    static constexpr bool has_min = false;

    struct weights {
        uint4v q;
        uint8_t e;
    };

    STRATA_DEVICE weights load(const void * row, uint32_t offset, uint32_t) {
        return {strata::load<uint4v>(row, offset, 1), strata::load<uint8_t>(row, offset)};
    }

    STRATA_DEVICE tile_piece unpack(const weights & w, uint32_t) {
        return {{look_up_low(e2m1_values, w.q), look_up_high(e2m1_values, w.q)}, {e8m0_half(w.e)}, {}};
    }

    STRATA_DEVICE float dot(const weights & w, const activation & a, float sum, uint32_t p) { return dot_unpacked(unpack(w, p), a, sum); }
};

}  // namespace strata
