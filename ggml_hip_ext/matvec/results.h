// How many results of a mat-vec a wave reduces at once: wave_sums takes a power of two.
#pragma once

#include "strata/reduce.h"

namespace strata {

constexpr uint32_t next_power_of_two(uint32_t n) {
    uint32_t p = 1;
    while (p < n) {
        p *= 2;
    }
    return p;
}

}  // namespace strata
