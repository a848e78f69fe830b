// When the arguments of a kernel are read.
#pragma once

#include "strata/device.h"

namespace strata {

template <class Value>
STRATA_DEVICE void read_here(Value value) {
    asm volatile("" ::"s"(value));
}

/// Has these arguments of the kernel read here, all at once. Where a branch comes before the first use of some, the compiler would read them
/// behind it and wait for memory once more. Costs nothing but registers.
template <class... Values>
STRATA_DEVICE void read_together(Values... values) {
    (read_here(values), ...);
}

}  // namespace strata
