// Arguments of the kernels that do two copies at once.
#pragma once

#include "strata/args/pointwise.h"

namespace strata {

struct copy_pair_args {
    struct part {
        pointwise_args copy;
        uint32_t rows;  ///< 1: as a _rows kernel, 0: as a _flat kernel
    } parts[2];
    uint32_t blocks;    ///< workgroups of the first copy; the second has the rest
};

}  // namespace strata
