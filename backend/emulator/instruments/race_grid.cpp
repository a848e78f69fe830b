// race, in cooperative launches: workgroups that wait for each other are ordered where one changes a word by an atomic and another then
// reads it by an atomic or a load with GLC. What a wave did before is published by its workgroup's atomic only as far as waits
// (s_waitcnt vmcnt(0), vscnt(0)) cover it; what others published can be loaded only after the wave has emptied its caches
// (buffer_gl0_inv and buffer_gl1_inv; scalar loads: s_dcache_inv). Waves of a workgroup count as one party: that the barrier between
// them is where it must be is not looked at here.
#include "race_grid.h"

#include "state.h"

#include "../program.h"
#include "../workgroup.h"

#include <algorithm>

namespace strata::emulator {

namespace {

void join(std::vector<uint64_t> & to, const std::vector<uint64_t> & from) {
    for (size_t n = 0; n < to.size(); n++) to[n] = std::max(to[n], from[n]);
}

bool is_scalar(const memory_use & u) { return u.where == segment::scalar || u.where == segment::scalar_buffer; }

}  // namespace

grid_order::grid_order(const launch_context & context) : waves_(context.waves) {
    const dim3 & grid = context.launch.grid;
    groups_ = grid.x * grid.y * grid.z;
    knows_.assign(groups_, clock(groups_));
    views_.resize(size_t(groups_) * waves_);
    for (wave_view & v : views_) v.vector = v.scalar = clock(groups_);
}

void grid_order::pass(const wave & w, const probe & p) {
    const uint64_t group = w.watched->thread->group;
    wave_view & v = views_[group * waves_ + w.index];
    if (p.wait_vm == 0) v.load_since = 0;
    if (p.wait_vs == 0) v.store_since = 0;
    if (p.invalidates & cache_scalar) v.scalar = knows_[group];
    v.emptied |= p.invalidates & (cache_l0 | cache_l1);
    if (v.emptied == (cache_l0 | cache_l1)) {
        v.vector = knows_[group];
        v.emptied = 0;
    }
}

/// An atomic, or a load with GLC.
void grid_order::synchronize(const wave & w, const probe & p, uint64_t word) {
    const uint64_t group = w.watched->thread->group;
    clock & mine = knows_[group];
    if (p.memory.atomic) {
        uint64_t published = now_;
        for (uint32_t n = 0; n < waves_; n++) {
            const wave_view & v = views_[group * waves_ + n];
            if (v.load_since) published = std::min(published, v.load_since - 1);
            if (v.store_since) published = std::min(published, v.store_since - 1);
        }
        clock & there = words_.try_emplace(word, groups_).first->second;
        if (p.memory.returns) join(mine, there);
        join(there, mine);
        there[group] = std::max(there[group], published);
    } else if (const auto found = words_.find(word); found != words_.end()) {
        join(mine, found->second);
    }
    for (uint32_t n = 0; n < waves_; n++) views_[group * waves_ + n].emptied = 0;
}

void grid_order::touch(const wave & w, const probe & p, uint64_t address, uint32_t bytes, bool same_value, unsigned lane, grid_conflict & c) {
    const memory_use & u = p.memory;
    const auto group = uint32_t(w.watched->thread->group);
    const bool by_atomic = u.atomic || u.coherent;
    const wave_view & view = views_[size_t(group) * waves_ + w.index];
    const clock & knows = knows_[group];
    // A plain load may find what a cache holds; all else is done by the L2.
    const clock & sees = is_scalar(u) ? view.scalar : u.store || by_atomic ? knows : view.vector;
    for (uint64_t dword = address / 4, end = (address + bytes + 3) / 4; dword < end; dword++) {
        const uint64_t first = std::max(address, dword * 4), last = std::min(address + bytes, dword * 4 + 4);
        const auto mask = uint8_t(((1u << (last - first)) - 1) << (first & 3));
        cell & it = cells_[dword];
        const auto conflict = [&](uint32_t other, uint32_t pc, bool writes, const char * detail) {
            if (!c.lanes) c.address = first;
            c.lanes |= 1u << lane;
            c.other = other;
            c.other_pc = pc;
            c.other_writes = writes;
            c.detail = detail;
        };
        if (it.written && it.bytes & mask && it.writer != group && !(by_atomic && it.by_atomic) && !same_value && sees[it.writer] < it.written) {
            const bool stale = knows[it.writer] >= it.written;
            conflict(it.writer, it.writer_pc, true,
                     stale ? ", and the reader's caches may hold the old value (no buffer_gl0_inv and buffer_gl1_inv, or s_dcache_inv, behind "
                             "the atomic that orders them)" : ", which no atomic orders");
        }
        if (u.store) {
            if (!same_value) {
                for (const reader & r : it.readers) {
                    if (r.bytes & mask && r.group != group && knows[r.group] < r.at) conflict(r.group, r.pc, false, ", which no atomic orders");
                }
            }
            const bool adds = it.written && it.writer == group && it.by_atomic == by_atomic;
            it.bytes = adds ? it.bytes | mask : mask;
            it.written = now_;
            it.writer = group;
            it.writer_pc = p.pc;
            it.by_atomic = by_atomic;
            if (!same_value) it.readers.clear();
        } else if (!by_atomic) {
            const auto known = std::find_if(it.readers.begin(), it.readers.end(), [&](const reader & r) { return r.group == group; });
            if (known == it.readers.end()) it.readers.push_back({group, p.pc, now_, mask});
            else *known = {group, p.pc, now_, uint8_t(known->bytes | mask)};
        }
    }
}

void grid_order::check(wave & w, const probe & p, const memory_access & a, uint32_t lanes) {
    const memory_use & u = p.memory;
    if (groups_ < 2 || lanes == 0) return;
    now_++;
    const bool plain_store = u.store && !u.atomic;
    // Memory is looked at only where it is certainly there.
    const bool held = plain_store && a.high >= a.low && w.memory->find(a.low, a.high - a.low + a.bytes);
    grid_conflict c;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        const auto lane = unsigned(__builtin_ctz(rest));
        for (unsigned n = 0; n < a.addresses; n++) {
            const uint64_t address = a.at[n][lane];
            if (address < shadow_of_device.begin || address + a.bytes > shadow_of_device.end) continue;
            const bool same = held && keeps_value(w, p, a, n, lane, reinterpret_cast<const void *>(address));
            touch(w, p, address, a.bytes, same, lane, c);
            if (u.atomic || u.coherent) synchronize(w, p, address / 4);
        }
    }
    wave_view & v = views_[w.watched->thread->group * waves_ + w.index];
    if (!is_scalar(u)) {
        uint64_t & since = u.atomic ? u.returns ? v.load_since : v.store_since : u.store ? v.store_since : v.load_since;
        if (!since) since = now_;
    }
    if (c.lanes) report_grid_race(w, p, c);
}

void follow_order(wave & w, const probe & p) {
    w.watched->thread->order->pass(w, p);
}

}  // namespace strata::emulator
