// The outputs of a token's experts, each times its weight, added up in the order of the slots. Products and sums round apart, as MUL and ADD do.
#include "strata/args/expert_sum.h"
#include "strata/row_part.h"

namespace strata {

/// Grid: groups of 1024 columns, tokens.
template <bool Fours>
STRATA_DEVICE void expert_sum(const expert_sum_args & a) {
    const uint32_t token = block_y(), column = 4 * (block_x() * expert_sum_block + thread_x());
    if (column >= a.columns) {
        return;
    }
    const char * experts = static_cast<const char *>(a.experts) + token * a.expert_stride_token;
    const char * weights = static_cast<const char *>(a.weights) + token * a.weight_stride_token;
    const auto next = [&] {
        const float4v product = load_part<Fours>(reinterpret_cast<const float *>(experts), column, a.columns) * load<float>(weights);
        experts += a.expert_stride_slot;
        weights += a.weight_stride_slot;
        return product;
    };
    float4v sum = next();
    for (uint32_t slot = 1; slot < a.used; ++slot) {
        sum += next();
    }
    store_part<Fours>(a.dst + static_cast<uint64_t>(token) * a.columns, column, a.columns, sum);
}

}  // namespace strata

using namespace strata;

// The one with 4 in its name takes rows of a multiple of four columns.
STRATA_KERNEL(expert_sum_block) void expert_sum_rows(expert_sum_args a) { expert_sum<false>(a); }
STRATA_KERNEL(expert_sum_block) void expert_sum_rows4(expert_sum_args a) { expert_sum<true>(a); }
