// Groups of 32 neighbouring work-items: waves, or halves of them where waves have 64 lanes. Kernels that deal out rows or tiles to such
// groups, and exchange nothing between lanes, have the same grid on every card.
#pragma once

#include "strata/device.h"

namespace strata {

constexpr uint32_t group_lanes = 32;

/// The group of this work-item, counted from the first of workgroup 0; a scalar where groups are waves.
STRATA_DEVICE uint32_t lane_group(uint32_t block, uint32_t block_size) {
    const uint32_t group = block * (block_size / group_lanes) + thread_x() / group_lanes;
    return wave_size == group_lanes ? uniform(group) : group;
}

/// Lane within the group.
STRATA_DEVICE uint32_t group_lane() { return thread_x() % group_lanes; }

}  // namespace strata
