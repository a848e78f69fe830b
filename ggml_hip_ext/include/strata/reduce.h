// Reductions over the 32 lanes of a wave: a butterfly that pairs lanes 16, 8, 4, 2 and 1 apart, without LDS. All lanes must be active;
// all get the result. The order of the additions is the same in every kernel, so results are the same bits everywhere.
#pragma once

#include "strata/device.h"

namespace strata {

/// The value of lane `lane_id() ^ Mask`, for Mask 1..15 (DPP row_xmask) or 16 (permlanex16).
template <uint32_t Mask>
STRATA_DEVICE uint32_t lane_xor(uint32_t value) {
    static_assert(Mask >= 1 && Mask <= 16);
#ifdef __GFX9__
    // Neither of the two instructions below exists there. Waves have 64 lanes; each half is on its own.
    return __builtin_amdgcn_ds_swizzle(value, Mask << 10 | 0x1f);
#else
    if constexpr (Mask == 16) {
        uint32_t other = __builtin_amdgcn_permlanex16(value, value, 0x76543210u, 0xfedcba98u, true, false);
        // LLVM 19 takes v_permlanex16 for an instruction without ties to other lanes and moves it into the branch that needs the
        // result, where the lane it reads from may be off. The empty statement counts as tied to other lanes, and stays.
        asm("" : "+v"(other));
        return other;
    } else {
        return __builtin_amdgcn_update_dpp(0, value, 0x160 + Mask, 0xf, 0xf, true);
    }
#endif
}

template <uint32_t Mask>
STRATA_DEVICE float lane_xor(float value) {
    return bit_cast<float>(lane_xor<Mask>(bit_cast<uint32_t>(value)));
}

template <uint32_t Mask>
STRATA_DEVICE int32_t lane_xor(int32_t value) {
    return static_cast<int32_t>(lane_xor<Mask>(static_cast<uint32_t>(value)));
}

/// The value of lane `lane` (the same in all lanes), as a scalar.
STRATA_DEVICE float lane_value(float value, uint32_t lane) { return bit_cast<float>(__builtin_amdgcn_readlane(bit_cast<uint32_t>(value), lane)); }

/// Sum over groups of `Lanes` neighbouring lanes (2, 4, 8, 16 or 32).
template <uint32_t Lanes = 32, class T>
STRATA_DEVICE T wave_sum(T value) {
    if constexpr (Lanes >= 32) value += lane_xor<16>(value);
    if constexpr (Lanes >= 16) value += lane_xor<8>(value);
    if constexpr (Lanes >= 8) value += lane_xor<4>(value);
    if constexpr (Lanes >= 4) value += lane_xor<2>(value);
    if constexpr (Lanes >= 2) value += lane_xor<1>(value);
    return value;
}

/// Sum over a workgroup of `Waves` full waves, the same in all work-items. `lds` holds a T a wave; a barrier must stand before it is
/// used again.
template <uint32_t Waves, class T>
STRATA_DEVICE T block_sum(T value, T * lds) {
    value = wave_sum(value);
    if (lane_id() == 0) {
        lds[thread_x() / wave_size] = value;
    }
    barrier();
    T sum = lds[0];
    for (uint32_t w = 1; w < Waves; w++) {
        sum += lds[w];
    }
    return sum;
}

/// Maximum of this lane's value and that of lane `lane_id() ^ Mask`; a NaN loses against any number. `value` must not be the immediate
/// result of a transcendental instruction (exp, rcp, ...): the compiler does not see the hazard through the assembly.
template <uint32_t Mask>
STRATA_DEVICE float max_with_lane(float value) {
#ifdef __GFX11__
    // In assembly, because the compiler puts two canonicalizing instructions before each maximum of a value it has not computed itself.
    float result;
    if constexpr (Mask == 16) {
        asm("v_max_f32 %0, %1, %2" : "=v"(result) : "v"(value), "v"(lane_xor<16>(value)));
    } else {
        asm("v_max_f32_dpp %0, %1, %1 row_xmask:%2 row_mask:0xf bank_mask:0xf bound_ctrl:1" : "=v"(result) : "v"(value), "n"(Mask));
    }
    return result;
#else
    return __builtin_fmaxf(value, lane_xor<Mask>(value));
#endif
}

/// Maximum over groups of `Lanes` neighbouring lanes. A NaN loses against any number, as in fmaxf.
template <uint32_t Lanes = 32>
STRATA_DEVICE float wave_max(float value) {
    if constexpr (Lanes >= 32) value = max_with_lane<16>(value);
    if constexpr (Lanes >= 16) value = max_with_lane<8>(value);
    if constexpr (Lanes >= 8) value = max_with_lane<4>(value);
    if constexpr (Lanes >= 4) value = max_with_lane<2>(value);
    if constexpr (Lanes >= 2) value = max_with_lane<1>(value);
    return value;
}

/// Reduces `Values` sums at once (a power of two up to 32): lane l gets the wave's sum of values[l * Values / 32]. The same additions in
/// the same order as wave_sum, in fewer instructions: each step halves the number of values a lane goes on with.
template <uint32_t Values, uint32_t Mask = 16>
STRATA_DEVICE float wave_sums(const float (&values)[Values]) {
    if constexpr (Values == 1) {
        return wave_sum<2 * Mask>(values[0]);
    } else {
        constexpr uint32_t half_values = Values / 2;
        const bool upper = (lane_id() & Mask) != 0;
        float sums[half_values];
#pragma unroll
        for (uint32_t i = 0; i < half_values; ++i) {
            const float low = values[i], high = values[i + half_values];   // as values: a choice of array elements would index registers
            const float mine = upper ? high : low, other = upper ? low : high;
            sums[i] = mine + lane_xor<Mask>(other);
        }
        return wave_sums<half_values, Mask / 2>(sums);
    }
}

/// The value of the lane `Distance` (1..15) before this one in its row of 16 lanes, 0 if there is none.
template <uint32_t Distance>
STRATA_DEVICE float lane_before(float value) {
    return bit_cast<float>(__builtin_amdgcn_update_dpp(0, bit_cast<uint32_t>(value), 0x110 + Distance, 0xf, 0xf, true));
}

/// Sum over this lane and all before it.
STRATA_DEVICE float wave_scan(float value) {
    value += lane_before<1>(value);
    value += lane_before<2>(value);
    value += lane_before<4>(value);
    value += lane_before<8>(value);
    const float first_row = lane_value(value, 15);
    return lane_id() < 16 ? value : value + first_row;
}

/// The value of the lane before, 0 in the first.
STRATA_DEVICE float previous_lane(float value) {
    const float in_row = lane_before<1>(value), first_row = lane_value(value, 15);   // before the choice: all lanes must take part
    return lane_id() == 16 ? first_row : in_row;
}

}  // namespace strata
