// A simulation of the waves that were recorded: each issues its instructions in order, when what they read is there, what they wait for
// has arrived, and a unit is free. Times are cycles of the shader clock.
#include "chip.h"

#include "../lines.h"
#include "caches.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

namespace strata::emulator::model {

struct shared_caches {
    explicit shared_caches(const parameters & p) : l2(p.l2_size), mall(p.mall_size) {}
    cache l2, mall;
};

namespace {

/// Memory accesses of one wait counter, oldest first; they complete in order.
struct outstanding {
    static constexpr unsigned most = 64;
    double at[most];
    unsigned first = 0, count = 0;
    double last = 0;

    void add(double time) {
        last = std::max(last, time);
        at[(first + count++) % most] = last;
    }
    bool full(double now) {
        drop(now);
        return count == most;
    }
    void drop(double now) {
        while (count && at[first] <= now) {
            first = (first + 1) % most;
            count--;
        }
    }
    /// When at most `left` of them are not complete.
    double when(unsigned left) const { return count > left ? at[(first + count - left - 1) % most] : 0; }
};

/// Waits and hints (s_waitcnt, s_delay_alu) are dealt with where the wave's instructions are fetched: no unit, no issue slot.
bool takes_slot(const probe & p) { return p.what != work_class::wait; }

bool is_iu4(const probe & p) { return p.part[0].op && std::string_view(p.part[0].op->name).find("iu4") != std::string_view::npos; }

struct group_state {
    const workgroup_trace * trace = nullptr;
    unsigned processor = 0, alive = 0, arrived = 0;
};

struct wave_run {
    const std::vector<trace_event> * events = nullptr;
    const uint64_t * lines = nullptr;
    size_t next = 0;
    unsigned group = 0, simd = 0;  // simd: of the chip
    double ready = 0;
    outstanding vm, lgkm, vs;
    double rows[272] = {}, slots[slot_count] = {};
};

struct simd_state {
    double issue_at = 0;
    unsigned issued = 0, waves = 0;
    double valu = 0, trans = 0, salu = 0;
};

struct unit_state {
    server l0_tags, lds;
    cache l0;
    explicit unit_state(const parameters & p) : l0(p.l0_size) {}
};

struct processor_state {
    server scalar;
    cache scalar_lines;
    unsigned groups = 0;
    explicit processor_state(const parameters & p) : scalar_lines(p.scalar_cache) {}
};

struct array_state {
    server rate;
    cache l1;
    explicit array_state(const parameters & p) : l1(p.l1_size) {}
};

}  // namespace

class simulation {
public:
    simulation(chip & on, const workgroup_traces & groups, const shape & of)
        : p_(on.with_), shared_(*on.caches_), groups_(groups), shape_(of) {
        for (unsigned n = 0; n < p_.processors; n++) processors_.emplace_back(p_);
        for (unsigned n = 0; n < p_.processors * 2; n++) units_.emplace_back(p_);
        for (unsigned n = 0; n < p_.arrays; n++) arrays_.emplace_back(p_);
        simds_.resize(p_.processors * p_.simds);
        if (of.changes) changed_.resize(of.changes->words.size());
        shared_.l2.settle();
        shared_.mall.settle();
    }

    modelled run();

private:
    /// A wave's turn: among those of one time the one comes first that could have gone on the longest ago.
    struct item {
        double at, since;
        unsigned wave;
        bool operator>(const item & other) const {
            return std::tie(at, since, wave) > std::tie(other.at, other.since, other.wave);
        }
    };
    void push(unsigned n, double at) { queue_.push({at, at, n}); }

    void fill(double now);
    void start(unsigned processor, double now);
    void step(unsigned n, double now);
    double ready(const wave_run & w, const trace_event & e) const;
    double unit_free(const wave_run & w, const trace_event & e, double from) const;
    bool issue(unsigned n, wave_run & w, const trace_event & e, double now);
    double load_line(uint64_t line, wave_run & w, double now);
    double load_through_l1(uint64_t line, const wave_run & w, double now);
    double below_l1(uint64_t line, double now, bool write);
    cache::answer in_mall(uint64_t line, double now);
    void memory(wave_run & w, const trace_event & e, double now);
    void scalar(wave_run & w, const trace_event & e, double now);
    void leave(unsigned n, double now);
    void release(unsigned group, double now);
    void results(wave_run & w, const probe & p, double at);
    bool waits_for_others(const wave_run & w, const trace_event & e, double now) const;
    void read_in_vain(unsigned n, const wave_run & w, const trace_event & e, double now);
    void invalidate(const wave_run & w, unsigned which);

    const parameters & p_;
    shared_caches & shared_;
    const workgroup_traces & groups_;
    const shape & shape_;
    std::vector<processor_state> processors_;
    std::vector<unit_state> units_;
    std::vector<array_state> arrays_;
    std::vector<simd_state> simds_;
    server l2_, mall_, dram_, dispatcher_;
    std::vector<std::unique_ptr<wave_run>> waves_;
    std::vector<unsigned> free_waves_;
    std::vector<group_state> running_;
    std::vector<std::vector<unsigned>> waiting_;  // waves at a barrier, by group
    std::priority_queue<item, std::vector<item>, std::greater<item>> queue_;
    /// A word that workgroups wait for: when it was changed, in order.
    struct changed_word {
        server atomics;
        std::vector<double> times;
    };
    std::vector<changed_word> changed_;  // by number
    size_t next_group_ = 0;
    double end_ = 0;
    double issue_busy_ = 0, valu_busy_ = 0;
    uint64_t done_ = 0;
    uint64_t l2_lines_ = 0, mall_lines_ = 0, dram_lines_ = 0;
};

void simulation::start(unsigned processor, double now) {
    if (next_group_ == groups_.size()) return;
    const workgroup_trace & trace = *groups_[next_group_++];
    const unsigned group = unsigned(running_.size());
    running_.push_back({&trace, processor, unsigned(trace.waves.size()), 0});
    waiting_.emplace_back();
    processors_[processor].groups++;
    for (const auto & events : trace.waves) {
        unsigned n;
        if (free_waves_.empty()) {
            n = unsigned(waves_.size());
            waves_.push_back(std::make_unique<wave_run>());
        } else {
            n = free_waves_.back();
            free_waves_.pop_back();
            *waves_[n] = wave_run();
        }
        wave_run & w = *waves_[n];
        w.events = &events;
        w.lines = trace.lines.data();
        w.group = group;
        unsigned best = processor * p_.simds;
        for (unsigned s = best; s < (processor + 1) * p_.simds; s++) {
            if (simds_[s].waves < simds_[best].waves) best = s;
        }
        w.simd = best;
        simds_[best].waves++;
        w.ready = dispatcher_.take(now, p_.dispatch_cycles) + (now > 0 ? p_.workgroup_latency : p_.launch_latency);
        push(n, w.ready);
    }
}

/// Workgroups go to the processors in turn until these are full.
void simulation::fill(double now) {
    for (unsigned round = 0; round < shape_.resident_groups; round++) {
        for (unsigned n = 0; n < p_.processors && next_group_ < groups_.size(); n++) start(n, now);
    }
}

void simulation::release(unsigned group, double now) {
    group_state & g = running_[group];
    if (g.arrived == 0 || g.arrived < g.alive) return;
    g.arrived = 0;
    for (const unsigned n : waiting_[group]) {
        waves_[n]->ready = now + p_.barrier_latency;
        push(n, waves_[n]->ready);
    }
    waiting_[group].clear();
}

void simulation::leave(unsigned n, double now) {
    wave_run & w = *waves_[n];
    end_ = std::max(end_, std::max(now, w.vs.last));
    simds_[w.simd].waves--;
    group_state & g = running_[w.group];
    free_waves_.push_back(n);
    if (--g.alive == 0) {
        processors_[g.processor].groups--;
        start(g.processor, now);
    } else {
        release(w.group, now);
    }
}

/// When what the instruction reads and waits for is there.
double simulation::ready(const wave_run & w, const trace_event & e) const {
    const probe & p = *e.what;
    double t = w.ready;
    if (p.wait_vm >= 0) t = std::max(t, w.vm.when(unsigned(p.wait_vm)));
    if (p.wait_lgkm >= 0) t = std::max(t, w.lgkm.when(unsigned(p.wait_lgkm)));
    if (p.wait_vs >= 0) t = std::max(t, w.vs.when(unsigned(p.wait_vs)));
    for (unsigned r = 0; r < p.read_count; r++) {
        const register_span & span = p.reads[r];
        const double * const from = (span.vector ? w.rows : w.slots) + span.first;
        for (unsigned k = 0; k < span.count; k++) t = std::max(t, from[k]);
    }
    if (p.reads_scc) t = std::max(t, w.slots[slot_scc]);
    return t;
}

/// When, from `from` on, there is a unit and an issue slot for it.
double simulation::unit_free(const wave_run & w, const trace_event & e, double from) const {
    const probe & p = *e.what;
    const simd_state & s = simds_[w.simd];
    double t = from;
    switch (p.what) {
    case work_class::valu: case work_class::vopd: case work_class::dot: case work_class::wmma: t = std::max(t, s.valu); break;
    case work_class::trans: t = std::max({t, s.valu, s.trans}); break;
    case work_class::salu: t = std::max(t, s.salu); break;
    // A few requests may wait for their unit without holding up the wave.
    case work_class::vmem: t = std::max(t, units_[w.simd / 2].l0_tags.free_at - 32); break;
    case work_class::lds: t = std::max(t, units_[w.simd / 2].lds.free_at - 32); break;
    default: break;
    }
    if (takes_slot(p) && s.issue_at >= t && s.issued >= p_.issue_width) t = s.issue_at + 1;
    return std::ceil(t);
}

void simulation::results(wave_run & w, const probe & p, double at) {
    for (unsigned r = 0; r < p.write_count; r++) {
        const register_span & span = p.writes[r];
        double * const to = (span.vector ? w.rows : w.slots) + span.first;
        for (unsigned k = 0; k < span.count; k++) to[k] = at;
    }
    if (p.writes_scc) w.slots[slot_scc] = at;
}

cache::answer simulation::in_mall(uint64_t line, double now) {
    mall_lines_++;
    mall_.take(now, line_bytes / p_.mall_bytes);
    const cache::answer found = shared_.mall.find(line);
    if (found.evicted) {
        dram_lines_++;
        dram_.take(now, line_bytes / p_.dram_bytes);
    }
    return found;
}

double simulation::below_l1(uint64_t line, double now, bool write) {
    l2_lines_++;
    const double t = l2_.take(now, line_bytes / p_.l2_bytes);
    const cache::answer in_l2 = shared_.l2.find(line);
    in_l2.where->dirty |= write;
    if (in_l2.evicted) in_mall(in_l2.evicted - 1, t).where->dirty = true;
    if (in_l2.hit) return std::max(t + p_.l2_latency, in_l2.where->arrives);
    if (write) return t + p_.l2_latency;  // whole lines are written sooner or later: nothing is fetched
    const double begin = std::max(t, mall_.free_at);
    const cache::answer found = in_mall(line, t);
    if (!found.hit) {
        dram_lines_++;
        found.where->arrives = dram_.take(begin, line_bytes / p_.dram_bytes) + p_.dram_latency;
    }
    return in_l2.where->arrives = std::max(begin + p_.mall_latency, found.where->arrives);
}

/// What the L0 and the scalar cache do not hold.
double simulation::load_through_l1(uint64_t line, const wave_run & w, double now) {
    array_state & array = arrays_[w.simd / p_.simds * p_.arrays / p_.processors];
    const double t = array.rate.take(now, line_bytes / p_.l1_bytes);
    const cache::answer in_l1 = array.l1.find(line);
    if (in_l1.hit) return std::max(t + p_.l1_latency, in_l1.where->arrives);
    return in_l1.where->arrives = below_l1(line, t, false);
}

double simulation::load_line(uint64_t line, wave_run & w, double now) {
    unit_state & unit = units_[w.simd / 2];
    const cache::answer in_l0 = unit.l0.find(line);
    if (in_l0.hit) return std::max(now + p_.l0_latency, in_l0.where->arrives);
    return in_l0.where->arrives = load_through_l1(line, w, now);
}

/// Whether the word that it loads has not been changed as often as it was when the wave was recorded.
bool simulation::waits_for_others(const wave_run & w, const trace_event & e, double now) const {
    if (e.what->memory.where == segment::lds || !(e.passes & watches_a_word) || e.what->memory.atomic) return false;
    const changed_word & word = changed_[w.lines[e.first_line + e.lines]];
    const uint64_t wanted = w.lines[e.first_line + e.lines + 1];
    return wanted != 0 && (word.times.size() < wanted || word.times[wanted - 1] > now);
}

/// A turn of a loop that does not end yet.
void simulation::read_in_vain(unsigned n, const wave_run & w, const trace_event & e, double now) {
    const double begin = units_[w.simd / 2].l0_tags.take(now, 1);
    const double done = std::max(begin + 1 + p_.l0_latency, below_l1(w.lines[e.first_line], begin, false));
    push(n, std::ceil(done) + p_.spin_cycles + shape_.changes->pause);
}

void simulation::invalidate(const wave_run & w, unsigned which) {
    if (which & cache_l0) units_[w.simd / 2].l0.empty();
    if (which & cache_l1) arrays_[w.simd / p_.simds * p_.arrays / p_.processors].l1.empty();
    if (which & cache_scalar) processors_[w.simd / p_.simds].scalar_lines.empty();
}

void simulation::memory(wave_run & w, const trace_event & e, double now) {
    const memory_use & u = e.what->memory;
    unit_state & unit = units_[w.simd / 2];
    const double cycles = std::max<double>({1, double(e.lines), (e.passes & ~watches_a_word) * 64 / p_.l0_bytes});
    const double begin = unit.l0_tags.take(now, cycles);
    double done = begin + cycles + p_.l0_latency;
    const bool goes_past = u.store || u.atomic;  // to the L2: the L0 and L1 are written through
    if (e.passes & watches_a_word) {
        changed_word & word = changed_[w.lines[e.first_line + e.lines]];
        double at = begin;
        if (u.atomic) {
            at = word.atomics.take(begin, p_.atomic_cycles);
            word.times.push_back(at);
        }
        done = std::max(done, below_l1(w.lines[e.first_line], at, u.atomic));
    } else for (unsigned k = 0; k < e.lines; k++) {
        const uint64_t line = w.lines[e.first_line + k];
        done = std::max(done, goes_past ? below_l1(line, begin, true) : load_line(line, w, begin + k));
    }
    if (u.load || (u.atomic && u.returns)) w.vm.add(done);
    else w.vs.add(done);
}

void simulation::scalar(wave_run & w, const trace_event & e, double now) {
    processor_state & processor = processors_[w.simd / p_.simds];
    const double begin = processor.scalar.take(now, 1);
    double done = begin + p_.scalar_latency;
    for (unsigned k = 0; k < e.lines; k++) {
        const uint64_t line = w.lines[e.first_line + k];
        const cache::answer here = processor.scalar_lines.find(line);
        if (here.hit) {
            done = std::max(done, here.where->arrives);
            continue;
        }
        here.where->arrives = load_through_l1(line, w, begin);
        done = std::max(done, here.where->arrives);
    }
    w.lgkm.add(done);
}

/// Starts the instruction. False: the wave is not to be put back into the queue.
bool simulation::issue(unsigned n, wave_run & w, const trace_event & e, double now) {
    const probe & p = *e.what;
    simd_state & s = simds_[w.simd];
    w.ready = now + 1;
    if (takes_slot(p)) {
        if (s.issue_at != now) s.issued = 0;
        s.issue_at = now;
        s.issued++;
        issue_busy_++;
    }
    const auto on_valu = [&](unsigned cycles, unsigned latency) {
        s.valu = now + cycles;
        valu_busy_ += cycles;
        results(w, p, now + latency);
    };
    switch (p.what) {
    case work_class::valu: case work_class::vopd: case work_class::dot: on_valu(1, p_.valu_latency); break;
    case work_class::trans:
        s.trans = now + p_.trans_cycles;
        on_valu(1, p_.trans_latency);
        break;
    case work_class::wmma: {
        const unsigned cycles = is_iu4(p) ? p_.wmma_iu4_cycles : p_.wmma_cycles;
        on_valu(cycles, cycles + p_.valu_latency);
        break;
    }
    case work_class::salu:
        s.salu = now + 1;
        results(w, p, now + p_.salu_latency);
        break;
    case work_class::smem: scalar(w, e, now); break;
    case work_class::vmem: memory(w, e, now); break;
    case work_class::lds: {
        const double passes = std::max<double>(1, e.passes);
        w.lgkm.add(units_[w.simd / 2].lds.take(now, passes) + passes + p_.lds_latency);
        break;
    }
    case work_class::branch: {
        const bool taken = w.next + 1 < w.events->size() && (*w.events)[w.next + 1].what->pc != p.pc + 4;
        w.ready = now + (taken ? p_.branch_taken : 1);
        break;
    }
    default: break;
    }
    if (shape_.changes) {
        invalidate(w, p.invalidates);
        w.ready += 64 * p.sleeps;
    }
    w.next++;
    done_++;
    if (!p.is_barrier) return true;
    waiting_[w.group].push_back(n);
    running_[w.group].arrived++;
    release(w.group, now);
    return false;
}

void simulation::step(unsigned n, double now) {
    wave_run & w = *waves_[n];
    if (w.next == w.events->size()) {
        leave(n, now);
        return;
    }
    const trace_event & e = (*w.events)[w.next];
    if ((e.what->what == work_class::vmem && (w.vm.full(now) || w.vs.full(now))) ||
        ((e.what->what == work_class::lds || e.what->what == work_class::smem) && w.lgkm.full(now))) {
        push(n, now + 1);
        return;
    }
    const double since = ready(w, e);
    const double at = unit_free(w, e, std::max(now, since));
    if (at > now) queue_.push({at, since, n});
    else if (waits_for_others(w, e, now)) read_in_vain(n, w, e, now);
    else if (issue(n, w, e, now)) push(n, w.ready);
}

modelled simulation::run() {
    fill(0);
    while (!queue_.empty()) {
        const item turn = queue_.top();
        queue_.pop();
        step(turn.wave, turn.at);
    }
    modelled result;
    result.share = shape_.instructions ? double(done_) / double(shape_.instructions) : 1;
    const double scale = result.share > 0 ? 1 / result.share : 1;
    const double fixed = p_.launch_latency;
    const double cycles = fixed + (end_ - fixed) * scale;
    result.us = cycles / (p_.clock_ghz * 1e3);
    if (end_ > 0) {
        double lds = 0, l0 = 0;
        for (const unit_state & unit : units_) {
            lds += unit.lds.busy;
            l0 += unit.l0_tags.busy;
        }
        result.issue = issue_busy_ / (end_ * double(simds_.size()));
        result.valu = valu_busy_ / (end_ * double(simds_.size()));
        result.lds = lds / (end_ * double(units_.size()));
        result.l0 = l0 / (end_ * double(units_.size()));
        result.l2 = l2_.busy / end_;
        result.mall = mall_.busy / end_;
        result.dram = dram_.busy / end_;
    }
    result.l2_bytes = double(l2_lines_) * line_bytes * scale;
    result.mall_bytes = double(mall_lines_) * line_bytes * scale;
    result.dram_bytes = double(dram_lines_) * line_bytes * scale;
    return result;
}

chip::chip(const parameters & with) : with_(with), caches_(std::make_unique<shared_caches>(with)) {}
chip::~chip() = default;
chip::chip(chip &&) noexcept = default;

void chip::cool() { caches_ = std::make_unique<shared_caches>(with_); }

modelled chip::run(const workgroup_traces & groups, const shape & of) {
    return simulation(*this, groups, of).run();
}

}  // namespace strata::emulator::model
