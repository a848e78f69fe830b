// Checked access to memory: every address is compared with the allocation table before it is used.
#pragma once

#include "operands.h"

/// A loop over the set bits of `lanes`, lowest first.
#define STRATA_EACH_LANE(lane, lanes) \
    for (uint32_t rest = lanes, lane = 0; rest && (lane = uint32_t(__builtin_ctz(rest)), true); rest &= rest - 1)

namespace strata::emulator::STRATA_ISA {

/// Asks the allocation table; remembers the range. (exec/memory_slow.cpp, one for all builds)
static STRATA_INLINE bool covered(wave * w, const inst * i, uint64_t begin, uint64_t size, bool write) {
    const memory_range & r = w->ranges[(i->pc >> 2) % memory_range_count];
    if (__builtin_expect(begin >= r.begin && begin + size <= r.end && begin + size >= begin && (!write || r.writable), 1)) return true;
    return find_range(w, i, begin, size, write);
}

static STRATA_INLINE void stop_with(wave * w, const inst * i, uint64_t count, fault_note::reason why, const char * text = nullptr) {
    w->pc = i;
    w->count = count;
    w->state = stop::fault;
    w->note.why = why;
    w->note.text = text;
}
static STRATA_INLINE void stop_memory(wave * w, const inst * i, uint64_t count, fault_note::reason why, int lane, uint64_t address,
                                      uint32_t size, bool write) {
    stop_with(w, i, count, why);
    w->note.lane = lane;
    w->note.address = address;
    w->note.size = size;
    w->note.write = write;
}

}  // namespace strata::emulator::STRATA_ISA
