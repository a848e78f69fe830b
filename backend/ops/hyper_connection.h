// What DSV4_HC_POST and the fusions with it share.
#pragma once

#include "ops/op.h"
#include "strata/args/hyper_connection.h"

namespace strata {

/// What each stream gets of a block's result, as they are: f32 [tokens][streams], any strides.
hyper_weights hyper_weights_of(const ggml_tensor * weights);

/// The launch of a DSV4_HC_POST node with these weights instead of its third source.
void plan_hyper_post(planner & plan, const ggml_tensor * op, const hyper_weights & weights);

}  // namespace strata
