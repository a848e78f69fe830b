// Reading any lane of the wave.
#pragma once

#include "strata/device.h"

namespace strata {

/// The value of lane `lane % 32`, which must be active.
STRATA_DEVICE float value_of_lane(float value, uint32_t lane) {
    return bit_cast<float>(__builtin_amdgcn_ds_bpermute(static_cast<int32_t>(4 * (lane % 32)), bit_cast<int32_t>(value)));
}

}  // namespace strata
