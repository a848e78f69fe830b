// How a softmax weighs its values.
#pragma once

#include "common.h"
#include "strata/memory.h"

namespace strata::attention {

constexpr float lowest = -0x1.fffffep+127f;

STRATA_DEVICE float weight(float x, float maximum) { return exp2_fast((x - maximum) * log2_e); }

STRATA_DEVICE float largest(float4v x) { return max(max(x[0], x[1]), max(x[2], x[3])); }

}  // namespace strata::attention
