// What the op files share whose kernels give each work-item an output: see strata/args/convolution.h.
#pragma once

#include <cstdint>

#include "strata/args/convolution.h"

namespace strata {

/// Tensors with fewer elements than this are accepted.
constexpr int64_t conv_limit = int64_t(1) << 31;

/// Workgroups for `count` work-items.
inline uint32_t conv_blocks(uint32_t count) { return (count + conv_block - 1) / conv_block; }

}  // namespace strata
