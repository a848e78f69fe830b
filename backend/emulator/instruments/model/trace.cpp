// Recording.
#include "trace.h"

#include "../lines.h"

#include <algorithm>
#include <atomic>
#include <iterator>

namespace strata::emulator::model {

namespace {

constexpr size_t usual_events = 12'000'000;  // of a launch: some 200 MB
std::atomic<size_t> most_events{usual_events};
constexpr size_t most_events_together = 4 * usual_events;  // of a cooperative launch, of which no workgroup can be left out
constexpr size_t fewest_events_a_wave = 1000;

size_t events_of(const workgroup_trace & t) {
    size_t count = 0;
    for (const auto & events : t.waves) count += events.size();
    return count;
}

}  // namespace

sample::sample(uint32_t waves_a_group, uint32_t resident_groups)
    : cluster(std::max(1u, resident_groups)), events_a_wave(std::max<size_t>(fewest_events_a_wave, most_events / (cluster * waves_a_group))) {}

sample sample::all(uint64_t groups, uint32_t waves_a_group) {
    sample all(waves_a_group, uint32_t(groups));
    all.events_a_wave = std::max<size_t>(fewest_events_a_wave, most_events_together / (groups * waves_a_group));
    return all;
}

/// Raises the level until what is kept fits, or is a single cluster.
void tracer::trim() {
    while (events_ > most_events && !kept_.empty() && level_ < 40) {
        level_++;
        std::erase_if(kept_, [&](const auto & t) {
            if (sample_.holds(t->group, level_)) return false;
            events_ -= events_of(*t);
            return true;
        });
    }
}

void tracer::begin_workgroup(uint64_t group, uint32_t waves) {
    now_ = nullptr;
    trim();
    if (!sample_.holds(group, level_)) return;
    kept_.push_back(std::make_unique<workgroup_trace>());
    now_ = kept_.back().get();
    now_->group = group;
    now_->waves.resize(waves);
    readings_.assign(waves, {});
}

void tracer::take(tracer & other) {
    now_ = nullptr;
    const unsigned level = std::max(level_, other.level_);
    level_ = level;
    for (workgroup_traces * of : {&kept_, &other.kept_}) {
        std::erase_if(*of, [&](const auto & t) { return !sample_.holds(t->group, level); });
    }
    std::move(other.kept_.begin(), other.kept_.end(), std::back_inserter(kept_));
    other.kept_.clear();
    events_ = 0;
    for (const auto & t : kept_) events_ += events_of(*t);
    trim();
}

workgroup_traces tracer::finish() {
    trim();
    std::sort(kept_.begin(), kept_.end(), [](const auto & a, const auto & b) { return a->group < b->group; });
    return std::move(kept_);
}

void tracer::access(uint32_t wave, const probe & p, const memory_access & a) {
    if (!now_ || a.lanes == 0) return;
    std::vector<trace_event> & events = now_->waves[wave];
    const reading before = readings_[wave];
    readings_[wave] = {};
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
    for (unsigned k = 0; k < e.lines; k++) now_->lines.push_back(names_.of(lines[k]));
    const bool by_one_lane = (a.lanes & (a.lanes - 1)) == 0;
    if (changes_ && by_one_lane && (p.memory.atomic || p.memory.coherent)) watch_word(events, before, readings_[wave], p, a);
}

/// Of loads of the same word one after the other only the last is kept: how many there are on the chip, the simulation finds out.
void tracer::watch_word(std::vector<trace_event> & events, const reading & before, reading & now, const probe & p, const memory_access & a) {
    const uint64_t address = a.at[0][__builtin_ctz(a.lanes)];
    change_counts::word & word = changes_->words.try_emplace(address, change_counts::word{uint32_t(changes_->words.size())}).first->second;
    events.back().passes |= watches_a_word;
    now_->lines.push_back(word.number);
    now_->lines.push_back(word.changes);
    if (p.memory.atomic) {
        word.changes++;
        return;
    }
    if (before.address == address) {
        uint32_t pause = 0;
        bool is_loop = true;
        for (size_t n = before.event; n + 1 < events.size(); n++) {
            pause += 64 * events[n].what->sleeps;
            is_loop &= !events[n].what->is_barrier;
        }
        if (is_loop) {
            changes_->pause = std::max(changes_->pause, pause);
            changes_->repeated += events.size() - 1 - before.event;
            events_ -= events.size() - 1 - before.event;
            events[before.event] = events.back();
            events.resize(before.event + 1);
        }
    }
    now = {address, events.size() - 1};
}

}  // namespace strata::emulator::model

/// Has the time model follow up to so many instructions of a launch, from the next launch on that is executed; 0: twelve million, as at the start.
extern "C" __attribute__((visibility("default"))) void strata_emulator_model_events(uint64_t most) {
    strata::emulator::model::most_events = most ? size_t(most) : strata::emulator::model::usual_events;
}
