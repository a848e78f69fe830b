// memory: accesses to what is not there. The interpreter itself stops at them; this kind says all lanes at once, and where freed
// memory came from and went. Also what the chip does not do as written: a scalar load from an address that is no multiple of 4 (the
// low bits are ignored), an atomic whose address is no multiple of its size. `align` reports every access that is not aligned to its
// size, up to 4 bytes; gfx1151 makes those, slower.
#include "report.h"
#include "state.h"

#include "../program.h"
#include "../workgroup.h"
#include "host_sites.h"

#include <algorithm>

namespace strata::emulator {

namespace {

std::string where_is(const wave & w, uint64_t address, uint32_t bytes, bool write) {
    const allocation_map & map = *w.memory;
    const allocation * held = map.find(address, bytes);
    if (held && write && !held->writable) return "the memory is read-only (" + std::string(held->kind) + ")";
    std::string text = map.describe(address, bytes);
    const allocation * near = nullptr;
    for (auto it = map.freed.rbegin(); it != map.freed.rend() && !near; ++it) {
        if (it->begin <= address && address < it->end) near = &*it;
    }
    if (!near) near = map.nearest(address);
    if (near) text += allocation_sites(near->begin);
    return text;
}

/// Lanes of which an address lies outside, for LDS and scratch.
uint32_t beyond(const memory_access & a, uint32_t size) {
    uint32_t lanes = 0;
    for (uint32_t rest = a.lanes; rest; rest &= rest - 1) {
        const unsigned lane = unsigned(__builtin_ctz(rest));
        for (unsigned n = 0; n < a.addresses; n++) {
            if (a.at[n][lane] > size || a.bytes > size - a.at[n][lane]) lanes |= 1u << lane;
        }
    }
    return lanes;
}

bool is_extra(const wave & w, uint64_t begin, uint64_t end) {
    for (const memory_range & r : w.extra) {
        if (begin >= r.begin && end <= r.end) return true;
    }
    return false;
}

/// Lanes whose device address is not (writable) memory.
uint32_t missing(wave & w, const probe & p, const memory_access & a) {
    const bool write = p.memory.store;
    const memory_range & known = w.ranges[(p.pc >> 2) % memory_range_count];
    if (a.low >= known.begin && a.high + a.bytes <= known.end && (!write || known.writable)) return 0;
    uint32_t lanes = 0;
    for (uint32_t rest = a.lanes; rest; rest &= rest - 1) {
        const unsigned lane = unsigned(__builtin_ctz(rest));
        const uint64_t address = a.at[0][lane];
        if (p.memory.where == segment::flat) {
            const uint32_t high = uint32_t(address >> 32), low = uint32_t(address);
            if (high == lds_aperture || high == scratch_aperture) {
                const uint32_t size = high == lds_aperture ? w.lds_size : w.scratch_size;
                if (low > size || a.bytes > size - low) lanes |= 1u << lane;
                continue;
            }
        }
        if (!write && is_extra(w, address, address + a.bytes)) continue;
        const allocation * held = w.memory->find(address, a.bytes);
        if (!held || (write && !held->writable)) lanes |= 1u << lane;
    }
    return lanes;
}

std::string action(const memory_use & u, uint32_t bytes) {
    return std::string(u.atomic ? "atomic" : u.store ? "store" : "load") + " of " + std::to_string(bytes) + " bytes";
}

void check_alignment(wave & w, const probe & p, const memory_access & a) {
    const memory_use & u = p.memory;
    const bool scalar = u.where == segment::scalar || u.where == segment::scalar_buffer;
    uint32_t unit = 1;
    if (scalar) unit = 4;
    else if (u.atomic) unit = a.bytes;
    else if (w.watched->thread->on & instrument_align) unit = std::min(a.bytes, 4u);
    if (unit == 1) return;
    const instrument kind = scalar || u.atomic ? instrument_memory : instrument_align;
    if (!(w.watched->thread->on & kind)) return;
    uint32_t lanes = 0;
    for (uint32_t rest = a.lanes; rest; rest &= rest - 1) {
        const unsigned lane = unsigned(__builtin_ctz(rest));
        for (unsigned n = 0; n < a.addresses; n++) {
            if (a.at[n][lane] % unit) lanes |= 1u << lane;
        }
    }
    if (!lanes) return;
    const unsigned first = unsigned(__builtin_ctz(lanes));
    report_at(kind, w, p, ("misaligned " + action(u, a.bytes) + (scalar ? ": the chip ignores the low bits of the address" : "")).c_str(),
              lanes, (" at " + hex(a.at[0][first])).c_str());
}

}  // namespace

void check_memory(wave & w, const probe & p, const memory_access & a) {
    if (a.lanes == 0) return;
    check_alignment(w, p, a);
    if (!(w.watched->thread->on & instrument_memory)) return;
    const memory_use & u = p.memory;
    if (u.where == segment::lds || u.where == segment::scratch) {
        const uint32_t size = u.where == segment::lds ? w.lds_size : w.scratch_size;
        const uint32_t lanes = beyond(a, size);
        if (!lanes) return;
        const unsigned first = unsigned(__builtin_ctz(lanes));
        const std::string name = u.where == segment::lds ? "LDS" : "scratch";
        const uint64_t address = a.at[a.addresses == 2 && a.at[0][first] + a.bytes <= size ? 1 : 0][first];
        report_at(instrument_memory, w, p, (action(u, a.bytes) + " outside of " + name).c_str(), lanes,
                  (" at " + name + " address " + hex(address) + ": " +
                   (u.where == segment::lds ? "the workgroup has " : "a lane has ") + std::to_string(size) + " bytes").c_str());
        return;
    }
    const uint32_t lanes = missing(w, p, a);
    if (!lanes) return;
    const unsigned first = unsigned(__builtin_ctz(lanes));
    std::string addresses;
    unsigned shown = 0;
    for (uint32_t rest = lanes; rest && shown < 4; rest &= rest - 1, shown++) {
        addresses += (shown ? ", " : " at ") + hex(a.at[0][__builtin_ctz(rest)]);
    }
    if (__builtin_popcount(lanes) > 4) addresses += ", ...";
    report_at(instrument_memory, w, p, ("invalid " + action(u, a.bytes)).c_str(), lanes,
              (addresses + ": " + where_is(w, a.at[0][first], a.bytes, u.store)).c_str());
}

}  // namespace strata::emulator
