// What workgroups did, instruction by instruction, for the time model: recorded while they run, of a sample of the grid.
#pragma once

#include "../access.h"
#include "../probe.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace strata::emulator::model {

struct trace_event {
    const probe * what;
    uint32_t first_line;  ///< in workgroup_trace::lines
    uint16_t lines;       ///< distinct 128-byte lines that the instruction touches
    uint16_t passes;      ///< LDS: passes over the banks; else: its bytes in units of 64
};

struct workgroup_trace {
    uint64_t group = 0;
    std::vector<std::vector<trace_event>> waves;
    std::vector<uint64_t> lines;
};

/// Which workgroups are recorded, and how much of each wave. All of a small launch. Of a large one, neighbours in up to four places of
/// the grid, as many in each as the chip holds at a time: what is resident together shares caches.
class sample {
public:
    sample(uint64_t groups, uint32_t waves_a_group, uint32_t resident_groups);

    bool holds(uint64_t group) const;
    size_t events_a_wave() const { return events_a_wave_; }

private:
    uint64_t groups_, places_, length_;
    size_t events_a_wave_;
};

/// Records the workgroups that run on one thread.
class tracer {
public:
    explicit tracer(const sample & which) : sample_(which) {}

    void begin_workgroup(uint64_t group, uint32_t waves);
    void instruction(uint32_t wave, const probe & p) {
        if (!now_ || now_->waves[wave].size() >= sample_.events_a_wave()) return;
        now_->waves[wave].push_back({&p, 0, 0, 0});
    }
    /// The memory that the instruction just recorded will access.
    void access(uint32_t wave, const probe & p, const memory_access & a);

    std::vector<std::unique_ptr<workgroup_trace>> done;

private:
    const sample & sample_;
    workgroup_trace * now_ = nullptr;
};

}  // namespace strata::emulator::model
