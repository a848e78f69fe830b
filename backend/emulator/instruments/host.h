// host: what the host program does to memory that queued work uses. Work is in flight from its call until the program has waited for
// it (or asked, and was told that it is done). It runs as late as HIP allows, except copies to the host that nothing holds back: those
// run at once.
#pragma once

#include "host_sites.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace strata::emulator {

/// What a command does with memory.
struct footprint {
    enum class use : uint8_t { reads, writes, may_use };  ///< may_use: a kernel has the address
    struct range {
        uint64_t begin = 0, end = 0;
        use how = use::reads;
        bool host_visible = false;
        bool own_pages = false;  ///< pinned: nothing else lies in its pages
        std::string of = {};     ///< where many commands are one, as in a graph: that which uses this
    };
    std::vector<range> ranges;
    std::string what;  ///< "hipMemcpyAsync", "kernel k", "hipGraphLaunch"
    /// True if the host sees what it writes and it takes nothing from the host: a copy to it, or a graph of such and of work on the device.
    bool may_come_early() const;
};
using footprint_ptr = std::shared_ptr<footprint>;

/// Whether the host kind is on. The functions below do nothing otherwise.
bool watching_host();

/// A command is queued: `id` is its own.
void host_queued(uint64_t id, footprint_ptr what);
/// It starts to run, has run; the threads that run commands may touch all memory.
void host_running(uint64_t id);
void host_ran(uint64_t id);
/// The program knows that it is done.
void host_observed(uint64_t id);
/// The program frees [begin, end).
void host_freed(const char * call, uint64_t begin, uint64_t end);
/// This thread runs device work.
void host_exempt_thread();

}  // namespace strata::emulator
