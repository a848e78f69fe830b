// How memory sees the lanes of one access: as lines of 128 bytes, and LDS as passes over its banks.
#pragma once

#include "access.h"

#include <cstdint>

namespace strata::emulator {

constexpr uint64_t line_bytes = 128;
constexpr unsigned most_lines = 65;

/// The distinct lines of an access to device memory, in the order of the lanes; returns how many.
unsigned distinct_lines(const memory_access & a, uint64_t (&lines)[most_lines]);

struct bank_use {
    uint64_t passes = 0, conflicts = 0;
};
/// Passes over the 32 banks: 32 lanes of up to 4 bytes, 16 of 8, or 8 of 16 at a time; lanes that want different dwords of one bank wait
/// for each other. Conflicts are the passes beyond one of each such group.
bank_use lds_passes(const memory_access & a);

}  // namespace strata::emulator
