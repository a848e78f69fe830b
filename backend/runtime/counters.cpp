// Process-wide counters.
#include "runtime/counters.h"

#include <atomic>
#include <cstring>

namespace strata {

static constexpr unsigned counters = static_cast<unsigned>(counter::count_of);
static std::atomic<uint64_t> values[counters];
static const char * const names[counters] = {
    "graphs_planned", "graphs_replayed", "launches", "copies", "nodes", "allocated_bytes", "errors", "graphs_captured",
    "graph_launches",
};

void count(counter which, int64_t amount) noexcept {
    values[static_cast<unsigned>(which)].fetch_add(static_cast<uint64_t>(amount), std::memory_order_relaxed);
}

uint64_t counted(counter which) noexcept {
    return values[static_cast<unsigned>(which)].load(std::memory_order_relaxed);
}

bool counted(const char * name, uint64_t * value) noexcept {
    for (unsigned i = 0; i < counters; ++i) {
        if (std::strcmp(names[i], name) == 0) {
            *value = values[i].load(std::memory_order_relaxed);
            return true;
        }
    }
    return false;
}

}  // namespace strata
