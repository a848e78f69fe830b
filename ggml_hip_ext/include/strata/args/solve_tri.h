// Arguments of the solution of lower triangular systems.
#pragma once

#include "strata/args/division.h"

namespace strata {

/// A X = B with A [n][n] lower triangular, B and X [n][columns], for each matrix. Rows are contiguous; strides in bytes.
struct solve_tri_args {
    void * x;
    const void * a;
    const void * b;
    uint64_t x_stride[3], a_stride[3], b_stride[3];  ///< between rows, matrices in dimension 2, matrices in dimension 3
    uint32_t n, columns;
    fast_divisor channels;                           ///< matrices in dimension 2
};

constexpr uint32_t solve_tri_rows = 512;  ///< largest n: a wave keeps 32 columns of X in LDS

}  // namespace strata
