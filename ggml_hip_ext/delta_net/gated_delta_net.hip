// GATED_DELTA_NET.
#include "delta_rule.h"

using namespace strata;

// The number in a name is the longest column.
STRATA_KERNEL(recurrence_block) void gated_delta_net_32(recurrence_args a) { recurrence<delta_rule<false>, 8, 1>(a); }
STRATA_KERNEL(recurrence_block) void gated_delta_net_64(recurrence_args a) { recurrence<delta_rule<false>, 8, 2>(a); }
STRATA_KERNEL(recurrence_block) void gated_delta_net_128(recurrence_args a) { recurrence<delta_rule<false>, 8, 4>(a); }
STRATA_KERNEL(recurrence_block) void gated_delta_net_256(recurrence_args a) { recurrence<delta_rule<false>, 8, 8>(a); }
STRATA_KERNEL(recurrence_block) void gated_delta_net_kda_32(recurrence_args a) { recurrence<delta_rule<true>, 8, 1>(a); }
STRATA_KERNEL(recurrence_block) void gated_delta_net_kda_64(recurrence_args a) { recurrence<delta_rule<true>, 8, 2>(a); }
STRATA_KERNEL(recurrence_block) void gated_delta_net_kda_128(recurrence_args a) { recurrence<delta_rule<true>, 8, 4>(a); }
STRATA_KERNEL(recurrence_block) void gated_delta_net_kda_256(recurrence_args a) { recurrence<delta_rule<true>, 8, 8>(a); }
