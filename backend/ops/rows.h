// Plans kernels that gather, scatter or copy rows with conversion: see strata/args/rows.h.
#pragma once

#include "ops/op.h"

namespace strata {

/// nullptr if rows of `src` (f32, f16, bf16 or one of the quantized types) can be converted into rows of `dst` (f32), both contiguous rows.
const char * gather_refusal(const ggml_tensor * dst, const ggml_tensor * src);

/// Row i1 of dst becomes row index[i1] of src, or row i1 without an index.
void plan_gather(planner & plan, const ggml_tensor * dst, const ggml_tensor * src, const ggml_tensor * index);

/// nullptr if rows of `src` (f32 or f16) can be converted into rows of `dst` (f32, f16, bf16), or rows of `src` (f32, f16 or bf16) into
/// quantized rows; both contiguous rows.
const char * scatter_refusal(const ggml_tensor * dst, const ggml_tensor * src);

/// Row index[i1] of dst, or row i1 without an index, becomes row i1 of src.
void plan_scatter(planner & plan, const ggml_tensor * dst, const ggml_tensor * src, const ggml_tensor * index);

}  // namespace strata
