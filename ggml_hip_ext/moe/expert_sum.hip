// The weighted sums of the experts of each token.
#include "expert_sum.h"

namespace strata {

/// Grid: groups of 1024 columns, tokens.
template <bool Fours>
STRATA_DEVICE void expert_sum(const expert_sum_args & a) {
    const uint32_t token = block_y(), column = 4 * (block_x() * expert_sum_block + thread_x());
    if (column >= a.columns) {
        return;
    }
    store_part<Fours>(a.dst + static_cast<uint64_t>(token) * a.columns, column, a.columns,
                      sum_of_experts<Fours>(a, token, column, a.columns));
}

}  // namespace strata

using namespace strata;

// The one with 4 in its name takes rows of a multiple of four columns.
STRATA_KERNEL(expert_sum_block) void expert_sum_rows(expert_sum_args a) { expert_sum<false>(a); }
STRATA_KERNEL(expert_sum_block) void expert_sum_rows4(expert_sum_args a) { expert_sum<true>(a); }
