// Reading one lane of a group of neighbouring lanes.
#pragma once

#include "strata/device.h"

namespace strata {

/// The value of lane `Member` of this lane's group of `Lanes` lanes (4, 8, 16 or 32); all lanes must be active. Without LDS; a scalar if the
/// group is the wave.
template <uint32_t Lanes, uint32_t Member>
STRATA_DEVICE uint32_t value_of_member(uint32_t value) {
    static_assert((Lanes == 4 || Lanes == 8 || Lanes == 16 || Lanes == 32) && Member < Lanes);
#ifdef __GFX9__
    return __builtin_amdgcn_ds_bpermute(static_cast<int32_t>(4 * (lane_id() / Lanes * Lanes + Member)), static_cast<int32_t>(value));
#else
    if constexpr (Lanes == 32) {
        return __builtin_amdgcn_readlane(value, Member);
    } else if constexpr (Lanes == 16) {
        return __builtin_amdgcn_update_dpp(0, value, 0x150 + Member, 0xf, 0xf, true);   // row_share
    } else if constexpr (Lanes == 8) {
        return __builtin_amdgcn_mov_dpp8(value, Member * 011111111u);
    } else {
        return __builtin_amdgcn_update_dpp(0, value, Member * 0x55, 0xf, 0xf, true);   // quad_perm
    }
#endif
}

/// to[i] = the value of lane First + i * Step of this lane's group of `Lanes` lanes, for `Count` lanes.
template <uint32_t Lanes, uint32_t Step, uint32_t Count, uint32_t First = 0, class T>
STRATA_DEVICE void values_of_members(T value, T * to) {
    static_assert(sizeof(T) == 4);
    if constexpr (Count > 0) {
        *to = bit_cast<T>(value_of_member<Lanes, First>(bit_cast<uint32_t>(value)));
        values_of_members<Lanes, Step, Count - 1, First + Step>(value, to + 1);
    }
}

}  // namespace strata
