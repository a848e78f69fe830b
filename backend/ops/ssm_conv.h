// The causal convolution, for SSM_CONV and for fusions with it.
#pragma once

#include "ops/op.h"

namespace strata {

/// Launches the SSM_CONV `op`; `result`, which may be another tensor of its shape, gets silu(x + bias) of each of its elements x, without a
/// bias where that is null, and without silu() unless asked for.
void plan_ssm_conv(planner & plan, const ggml_tensor * op, const ggml_tensor * bias, const ggml_tensor * result, bool silu);

}  // namespace strata
