// What the plugin counts, for tests and reports: launches a token, replays, bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata {

enum class counter : unsigned {
    graphs_planned,   ///< graphs walked node by node
    graphs_replayed,  ///< graphs whose launch list was found in the cache
    launches,         ///< kernels launched, those of HIP graphs included
    copies,           ///< device-to-device copies and fills of launch lists
    nodes,            ///< nodes planned that computed something
    allocated_bytes,  ///< device memory held now
    errors,           ///< messages reported
    graphs_captured,  ///< HIP graphs made of launch lists
    graph_launches,   ///< launch lists given to the device as a HIP graph
    count_of
};

void count(counter which, int64_t amount = 1) noexcept;

/// The value since the library was loaded.
uint64_t counted(counter which) noexcept;

/// The counter of that name, as spelled above. False if there is none.
bool counted(const char * name, uint64_t * value) noexcept;

}  // namespace strata
