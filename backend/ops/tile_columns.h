// How many columns J of the result a workgroup of the tile kernels makes. Every J gives the same bits, so this is about time alone.
#pragma once

#include <cstdint>

#include "ops/op.h"

namespace strata {

/// J for MUL_MAT_ID by the rows (pairs of token and slot) that an expert has on average.
uint32_t expert_tile_columns(ggml_type weights, double rows_an_expert);

/// J for MUL_MAT with so many rows and columns a matrix.
uint32_t dense_tile_columns(const device_caps & caps, ggml_type weights, int64_t rows, int64_t columns, int64_t matrices);

/// Has both give `columns` for the types that have such a kernel, in graphs that are planned from now on; 0: no longer. False, and nothing
/// changes, if no type has one. For comparing them: strata_hip.h.
bool force_tile_columns(uint32_t columns);

}  // namespace strata
