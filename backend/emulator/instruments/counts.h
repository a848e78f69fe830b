// What STRATA_COUNT counts in a launch. Every number is the same on every run and for any number of threads.
#pragma once

#include "access.h"
#include "model/chip.h"
#include "probe.h"

#include <cstdint>
#include <string>
#include <vector>

namespace strata::emulator {

struct kernel_image;
struct dispatch;

/// Requests are wave instructions that at least one lane takes part in.
struct traffic {
    uint64_t load_requests = 0, store_requests = 0, atomic_requests = 0;
    uint64_t load_bytes = 0, store_bytes = 0;
    uint64_t request_lines = 0;    ///< distinct 128-byte lines of each request, summed
    uint64_t workgroup_lines = 0;  ///< distinct lines of each workgroup, summed
    uint64_t launch_lines = 0, written_lines = 0;  ///< distinct lines of the launch, and those that were written
};

struct launch_counts {
    uint64_t waves = 0;
    uint64_t instructions[work_count] = {};
    traffic global, scalar, scratch;
    uint64_t argument_loads = 0, argument_bytes = 0;  ///< scalar loads of the kernel's arguments
    uint64_t lds_requests = 0, lds_load_bytes = 0, lds_store_bytes = 0;
    uint64_t lds_passes = 0, lds_conflicts = 0;
    uint64_t barriers = 0;

    void add(const launch_counts & other);
};

struct line_table;

/// The counters of one thread in a launch.
class counter {
public:
    counter();
    ~counter();
    counter(const counter &) = delete;
    counter & operator=(const counter &) = delete;

    void begin_workgroup(uint64_t number) { group_ = number; }
    __attribute__((always_inline)) void instruction(const probe & p) {
        counts.instructions[unsigned(p.what)]++;
        if (p.is_barrier) counts.barriers++;
    }
    void access(const wave & w, const probe & p, const memory_access & a);

    launch_counts counts;

private:
    friend class launch_counter;
    void lines(traffic & t, const memory_access & a, bool write);
    line_table * lines_;
    uint64_t group_ = 0;
};

/// The counters of a launch, from those of its threads.
class launch_counter {
public:
    launch_counter();
    ~launch_counter();
    void take(const counter & of_thread);  ///< under the launch's lock
    /// `times`: see model::chips; empty without modelled time.
    void record(const dispatch & launch, const std::vector<model::modelled> & times);
    uint64_t instructions() const;

private:
    launch_counts counts_;
    line_table * lines_;
};

/// Waves that a SIMD holds, and what limits them: gfx1151 has 1,536 VGPRs a SIMD in granules of 24, 16 waves, 128 KiB of LDS and 32
/// workgroups of several waves for the four SIMDs of a workgroup processor.
struct occupancy {
    double waves = 0;
    uint32_t workgroups = 0;  ///< at a time on a workgroup processor
    const char * limit = "";
};
occupancy occupancy_of(const kernel_image & kernel, uint32_t items, uint32_t dynamic_lds);

/// A copy that the program asked for. Host: pageable or pinned memory.
enum class copy_direction : unsigned { host_to_device, device_to_host, device_to_device, host_to_host, count_of };
void count_copy(copy_direction direction, uint64_t bytes);

enum class graph_call : unsigned { instantiated, launched, count_of };
/// A captured graph was made executable, or launched: what it launches is counted as well, as if it had been launched by itself.
void count_graph(graph_call what);

/// Names what is launched and copied from here on ("prefill"); in the file as "phase".
void set_phase(std::string name);
/// Writes the file that STRATA_COUNT names, with all launches so far. Also done when the process ends.
void write_counts();

}  // namespace strata::emulator
