// What attention and softmax share: base-2 exponentials and ALiBi.
#pragma once

#include "strata/device.h"
#include "strata/math.h"

namespace strata::attention {

constexpr float log2_e = 0x1.715476p+0f;

/// ALiBi: what the mask of head `head` is multiplied by; `power` is the greatest power of two that does not exceed the number
/// of heads. 1 without bias.
STRATA_DEVICE float alibi_slope(float max_bias, uint32_t power, uint32_t head) {
    if (max_bias <= 0.0f) {
        return 1.0f;
    }
    const float step = max_bias / static_cast<float>(power);
    return exp2_fast(head < power ? -step * static_cast<float>(head + 1) : -0.5f * step * static_cast<float>(2 * (head - power) + 1));
}

}  // namespace strata::attention
