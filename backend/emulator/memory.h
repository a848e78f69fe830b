// The emulated device's memory: which address ranges exist, who asked for them, and how much is left.
#pragma once

#include "machine.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace strata::emulator {

enum class memory_kind {
    device,       ///< hipMalloc; counts against the device's total
    host,         ///< hipHostMalloc: pinned, visible to the device
    code_object,  ///< segments of a loaded module; counts against the total
};

/// All allocations of the process. Addresses come from one reserved range, go upwards and are not used again until the
/// range is exhausted, so that a stale pointer meets nothing. Freed pages go back to the system. Thread-safe.
class device_memory {
public:
    static device_memory & instance();

    /// A fresh range of `size` bytes, page aligned (2 MiB aligned from 2 MiB on), at least 64 KiB away from its neighbours
    /// and filled with 0xFF, or nullptr with the reason in `why`. Code objects become visible to kernels by publish().
    void * allocate(size_t size, memory_kind kind, std::string & why);

    /// The range was made by allocate() with this kind and is gone now; otherwise false with the reason in `why`.
    bool release(void * pointer, memory_kind kind, std::string & why);

    /// Makes memory of the program visible to kernels (hipHostRegister), and hides it again; false with the reason in `why`.
    bool add_registered(void * pointer, size_t size, bool writable, std::string & why);
    bool remove_registered(void * pointer, std::string & why);

    /// Replaces the entry of a code object's block by one entry a segment.
    void publish(void * block, std::vector<allocation> segments);

    /// Whether any byte of [address, address + size) lies in the range that allocations come from.
    bool owns(uint64_t address, uint64_t size) const { return address < arena_end_ && size > arena_ - std::min(arena_, address); }

    /// Where the range begins that allocations come from.
    uint64_t arena() const { return arena_; }

    /// What kernels may access now. Cheap when nothing has changed since the last call.
    std::shared_ptr<const allocation_map> snapshot();

    /// Bytes of the device, and what hipMalloc could still give.
    void totals(size_t & free, size_t & total);

    /// Forgets and unmaps everything (hipDeviceReset).
    void reset();

private:
    device_memory();

    struct block {
        size_t size = 0;    ///< bytes asked for
        size_t mapped = 0;  ///< bytes mapped, whole pages
        memory_kind kind = memory_kind::device;
        std::vector<allocation> visible;
    };

    uint64_t place(size_t mapped, size_t alignment) const;
    void unmap(uint64_t begin, const block & what);

    std::mutex lock_;
    uint64_t arena_ = 0, arena_end_ = 0, next_ = 0;
    size_t total_ = 0;
    bool total_is_given_ = false;  ///< by STRATA_EMULATOR_MEMORY
    size_t used_ = 0;
    uint64_t count_ = 0;
    std::map<uint64_t, block> blocks_;
    std::map<uint64_t, allocation> registered_;
    std::vector<allocation> freed_;
    std::shared_ptr<const allocation_map> snapshot_;
};

/// "4096", "64K", "512M", "2G" as bytes; 0 if the text is none of these.
size_t parse_size(const char * text);

}  // namespace strata::emulator
