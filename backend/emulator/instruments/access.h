// The addresses of one memory instruction, lane by lane, as the instruments see them before it is executed.
#pragma once

#include <cstdint>

namespace strata::emulator {

struct memory_access {
    uint32_t lanes = 0;      ///< that access memory
    uint32_t bytes = 0;      ///< of a lane at one address
    uint32_t addresses = 0;  ///< 1, or 2 (ds_*_2addr)
    /// Device addresses; for LDS, scratch and apertures of flat addresses see `where`.
    alignas(64) uint64_t at[2][32];
    uint64_t low = 0, high = 0;  ///< of the first addresses of the active lanes
};

}  // namespace strata::emulator
