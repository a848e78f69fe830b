// The outputs of a token's experts, each times its weight, added up in the order of the slots. Products and sums round apart, as MUL and ADD do.
#pragma once

#include "strata/args/expert_sum.h"
#include "strata/row_part.h"

namespace strata {

/// Columns column .. column + 3 of `columns`. Fours: `columns` is a multiple of 4.
template <bool Fours>
STRATA_DEVICE float4v sum_of_experts(const expert_sum_args & a, uint32_t token, uint32_t column, uint32_t columns) {
    const char * experts = static_cast<const char *>(a.experts) + token * a.expert_stride_token;
    const char * weights = static_cast<const char *>(a.weights) + token * a.weight_stride_token;
    const auto next = [&] {
        const float4v product = load_part<Fours>(reinterpret_cast<const float *>(experts), column, columns) * load<float>(weights);
        experts += a.expert_stride_slot;
        weights += a.weight_stride_slot;
        return product;
    };
    float4v sum = next();
    for (uint32_t slot = 1; slot < a.used; ++slot) {
        sum += next();
    }
    return sum;
}

}  // namespace strata
