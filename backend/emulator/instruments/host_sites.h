// Call sites in the host program: where memory was allocated and freed, and where work was queued.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace strata::emulator {

/// A call site as return addresses, innermost first; the emulator's own frames are left out when it is shown.
struct call_site {
    static constexpr int most = 24;
    void * frames[most];
    int count = 0;
};

call_site this_call_site();
std::string describe_site(const call_site & site);

// Kept while the sanitizer's memory or host kind is on.
void allocation_made(uint64_t begin);
void allocation_freed(uint64_t begin);
/// "\n    allocated at: ...\n    freed at: ..." of the allocation that began there, as far as it is known.
std::string allocation_sites(uint64_t begin);

}  // namespace strata::emulator
