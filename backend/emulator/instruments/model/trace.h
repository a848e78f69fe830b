// What workgroups did, instruction by instruction, for the time model: recorded while they run, of a sample of the grid.
#pragma once

#include "../access.h"
#include "../probe.h"

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace strata::emulator::model {

struct trace_event {
    const probe * what;
    uint32_t first_line;  ///< in workgroup_trace::lines
    uint16_t lines;       ///< distinct 128-byte lines that the instruction touches
    uint16_t passes;      ///< LDS: passes over the banks; else: its bytes in units of 64
};
/// In trace_event::passes: two numbers stand behind the lines, a word of change_counts, and how often it had been changed.
constexpr uint16_t watches_a_word = 0x8000;

/// Of a cooperative launch: the words that single lanes change by atomics and read by loads with GLC. Workgroups that wait for each other do
/// so by them, and what a load saw tells how many changes it has to wait for in the simulation. That is exact where all changes count
/// alike, as in a barrier that is a counter which only grows.
struct change_counts {
    struct word {
        uint32_t number;
        uint32_t changes = 0;
    };
    std::unordered_map<uint64_t, word> words;  ///< by address
    uint32_t pause = 0;     ///< cycles of s_sleep between two loads in the loops that wait for a word, the most there are
    uint64_t repeated = 0;  ///< instructions of such loops that are left out
};

struct workgroup_trace {
    uint64_t group = 0;
    std::vector<std::vector<trace_event>> waves;
    std::vector<uint64_t> lines;
};

/// How much of a launch is kept. Workgroups come in clusters of as many as the chip holds at a time, since what is resident together
/// shares caches; at level n every 2^n-th cluster is kept. The level is the lowest at which the events fit, so it depends on the launch
/// alone. A wave is kept up to a number of events that lets one cluster fit.
struct sample {
    sample(uint32_t waves_a_group, uint32_t resident_groups);
    /// All workgroups of a launch whose workgroups wait for each other.
    static sample all(uint64_t groups, uint32_t waves_a_group);
    bool holds(uint64_t group, unsigned level) const { return ((group / cluster) & ((1ull << level) - 1)) == 0; }

    uint64_t cluster;
    size_t events_a_wave;
};

/// Names lines of memory so that the caches see the same ones on every run: allocations by their distance from the start of the range
/// they come from, wherever the system has put that, and the launch's arguments as one place that every launch uses, as a driver's ring
/// of argument blocks comes back to the same few lines.
struct line_names {
    uint64_t arena = 0, kernarg = 0, kernarg_end = 0, packet = 0;  ///< line numbers

    uint64_t of(uint64_t line) const {
        constexpr uint64_t arguments = uint64_t{1} << 40, packets = uint64_t{1} << 41;  // no arena has so many lines
        if (line >= kernarg && line < kernarg_end) return arguments + (line - kernarg);
        return line == packet ? packets : line - arena;
    }
};

using workgroup_traces = std::vector<std::unique_ptr<workgroup_trace>>;

/// Records the workgroups that run on one thread.
class tracer {
public:
    /// `changes`: of a cooperative launch, whose workgroups run on one thread.
    tracer(const sample & which, const line_names & names, change_counts * changes) : sample_(which), names_(names), changes_(changes) {}
    tracer(const tracer & like) = delete;
    /// An empty one for another thread of the same launch.
    explicit tracer(const tracer * like) : sample_(like->sample_), names_(like->names_), changes_(like->changes_) {}

    void begin_workgroup(uint64_t group, uint32_t waves);
    void instruction(uint32_t wave, const probe & p) {
        if (!now_ || now_->waves[wave].size() >= sample_.events_a_wave) return;
        now_->waves[wave].push_back({&p, 0, 0, 0});
        events_++;
    }
    /// The memory that the instruction just recorded will access.
    void access(uint32_t wave, const probe & p, const memory_access & a);
    /// Adds what another thread has recorded.
    void take(tracer & other);
    /// All that is kept, in the order of the workgroups' numbers.
    workgroup_traces finish();

private:
    void trim();

    /// The last memory access of a wave, if it was a load with GLC by one lane.
    struct reading {
        uint64_t address = 0;  ///< 0: it was another access
        size_t event = 0;
    };
    void watch_word(std::vector<trace_event> & events, const reading & before, reading & now, const probe & p, const memory_access & a);

    sample sample_;
    line_names names_;
    unsigned level_ = 0;
    size_t events_ = 0;
    workgroup_traces kept_;
    workgroup_trace * now_ = nullptr;
    change_counts * changes_;
    std::vector<reading> readings_;  ///< by wave
};

}  // namespace strata::emulator::model
