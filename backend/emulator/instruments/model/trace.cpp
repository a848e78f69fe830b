// Recording.
#include "trace.h"

#include "../lines.h"

#include <algorithm>

namespace strata::emulator::model {

namespace {
constexpr uint64_t most_places = 4;
constexpr size_t most_events = 12'000'000;  // of a launch: some 200 MB
constexpr size_t fewest_events_a_wave = 1000;
}  // namespace

sample::sample(uint64_t groups, uint32_t waves_a_group, uint32_t resident_groups) : groups_(groups) {
    places_ = groups <= most_places * resident_groups ? 1 : most_places;
    length_ = std::min<uint64_t>(groups, places_ == 1 ? groups : resident_groups);
    events_a_wave_ = std::max<size_t>(fewest_events_a_wave, most_events / std::max<uint64_t>(1, places_ * length_ * waves_a_group));
}

bool sample::holds(uint64_t group) const {
    for (uint64_t place = 0; place < places_; place++) {
        const uint64_t first = places_ == 1 ? 0 : (groups_ - length_) * place / (places_ - 1);
        if (group >= first && group < first + length_) return true;
    }
    return false;
}

void tracer::begin_workgroup(uint64_t group, uint32_t waves) {
    now_ = nullptr;
    if (!sample_.holds(group)) return;
    done.push_back(std::make_unique<workgroup_trace>());
    now_ = done.back().get();
    now_->group = group;
    now_->waves.resize(waves);
}

void tracer::access(uint32_t wave, const probe & p, const memory_access & a) {
    if (!now_ || a.lanes == 0) return;
    std::vector<trace_event> & events = now_->waves[wave];
    if (events.empty() || events.back().what != &p || events.back().passes) return;  // the part of the wave that is recorded has ended
    trace_event & e = events.back();
    if (p.memory.where == segment::lds) {
        e.passes = uint16_t(lds_passes(a).passes);
        return;
    }
    const uint32_t bytes = uint32_t(__builtin_popcount(a.lanes)) * a.bytes;
    e.passes = uint16_t(std::max(1u, (bytes + 63) / 64));
    if (p.memory.where == segment::scratch) return;  // its lines are not the device's; they stay in the L0
    uint64_t lines[most_lines];
    e.lines = uint16_t(distinct_lines(a, lines));
    e.first_line = uint32_t(now_->lines.size());
    now_->lines.insert(now_->lines.end(), lines, lines + e.lines);
}

}  // namespace strata::emulator::model
