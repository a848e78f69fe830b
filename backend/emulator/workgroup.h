// One workgroup at a time: wave state at entry, turns between waves, fault messages.
#pragma once

#include "instruments/state.h"
#include "program.h"

#include <atomic>
#include <cstddef>
#include <vector>

namespace strata::emulator {

/// hsa_kernel_dispatch_packet_t, for kernels that ask for it.
struct dispatch_packet {
    uint16_t header = 2, setup = 3;
    uint16_t workgroup_size[3] = {};
    uint16_t reserved = 0;
    uint32_t grid_size[3] = {};
    uint32_t private_segment_size = 0, group_segment_size = 0;
    uint64_t kernel_object = 0, kernarg_address = 0, reserved2 = 0, completion_signal = 0;
};
static_assert(sizeof(dispatch_packet) == 64);

/// What all workgroups of a launch share.
struct launch_context {
    launch_context(const dispatch & d, const allocation_map & m, program & p);

    const dispatch & launch;
    const allocation_map & memory;
    program & code;
    uint32_t lds_size;
    uint32_t items, waves;
    uint64_t instruction_limit;
    alignas(128) dispatch_packet packet;  ///< a line of its own, as the kernarg segment's begin: what an address costs must not change
    std::vector<uint64_t> kernarg_store;
    uint64_t kernarg = 0, kernarg_end = 0;
    uint64_t id;
    launch_state * watched = nullptr;  ///< where instruments are on
};

/// Zeroed memory from mmap, aligned to pages.
class page_memory {
public:
    ~page_memory();
    uint8_t * reserve(size_t bytes);  ///< at least that many; the old contents may be lost

private:
    void * pointer_ = nullptr;
    size_t size_ = 0;
};

/// Register files, LDS and scratch of a workgroup.
struct group_memory {
    page_memory registers, lds, scratch;
};

/// Runs workgroups of one launch on one thread.
class workgroup_runner {
public:
    /// `own`: where the workgroup lives, for those that run beside others of the same thread; otherwise the thread's memory.
    explicit workgroup_runner(launch_context & context, group_memory * own = nullptr);
    ~workgroup_runner();
    workgroup_runner(const workgroup_runner &) = delete;
    workgroup_runner & operator=(const workgroup_runner &) = delete;

    /// Runs workgroup number `group` (x fastest) to its end. Gives up silently when a lower workgroup has faulted.
    fault run(uint64_t group, const std::atomic<uint64_t> & first_bad);

    void begin(uint64_t group);
    /// Gives each wave that is not waiting a turn of up to `slice` instructions, and says why it cannot go on, if so.
    fault turn(uint64_t slice);
    bool over() const { return alive_ == 0; }
    /// To be called once when it is over.
    void finish();

    uint64_t waves = 0, instructions = 0;

private:
    void enter(wave & w, uint32_t index, const uint32_t (&id)[3]);
    fault describe(const wave & w) const;

    launch_context & context_;
    std::vector<wave> waves_;
    memory_range ranges_[memory_range_count];
    uint32_t alive_ = 0;
    bool gave_way_ = false;  ///< in the last turn a wave stopped that could have gone on
    thread_state * watched_ = nullptr;
};

}  // namespace strata::emulator
