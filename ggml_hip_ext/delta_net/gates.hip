// The gates of a delta net.
#include "gates.h"

using namespace strata;

/// A wave a head of either gate. Grid: groups of 4 rows, those of alpha and then those of beta; tokens.
STRATA_KERNEL(gates_block) void delta_net_gates(gates_args a) {
    delta_net_gate<8>(a, uniform(block_x() * (gates_block / wave_size) + thread_x() / wave_size), block_y());
}
