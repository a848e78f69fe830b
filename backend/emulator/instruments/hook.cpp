// Finds out what the next instruction will access, and asks the kinds that are on.
#include "hook.h"

#include "../exec/buffer_address.h"
#include "../exec/scalar.h"
#include "counts.h"
#include "model/trace.h"

namespace strata::emulator::STRATA_ISA {

static STRATA_INLINE void set_lanes(memory_access & a, const address_set & set) {
    std::memcpy(a.at[0], set.lane, sizeof a.at[0]);
    a.low = set.low;
    a.high = set.high;
}

static STRATA_INLINE void set_lanes(memory_access & a, unsigned which, u32v address) {
    const u64v wide = convert<u64v>(address);
    std::memcpy(a.at[which], &wide, sizeof a.at[which]);
}

static void find_access(wave * w, const probe & p, memory_access & a) {
    const inst & i = p.part[0].code;
    const memory_use & u = p.memory;
    a.lanes = w->s[slot_exec];
    a.bytes = u.bytes;
    a.addresses = u.addresses;
    switch (u.where) {
    case segment::global: case segment::flat: {
        if (a.lanes == 0) return;
        address_set set;
        if (u.addtid) {
            uint64_t base = i.imm;
            if (i.aux & memory_saddr) base += read_slot<uint64_t>(w, i.sdst);
            const u64v each = convert<u64v>(lane_number * 4u) + base;
            std::memcpy(set.lane, &each, sizeof each);
            set.low = base + 4 * uint64_t(__builtin_ctz(a.lanes));
            set.high = base + 4 * uint64_t(31 - __builtin_clz(a.lanes));
        } else {
            global_addresses(w, &i, a.lanes, set);
        }
        set_lanes(a, set);
        return;
    }
    case segment::buffer: {
        const descriptor d = read_descriptor(w, &i);
        uint32_t inside = 0;
        a.low = ~0ull;
        a.high = 0;
        STRATA_EACH_LANE(lane, a.lanes) {
            const target t = buffer_address(w, &i, d, int(lane), a.bytes);
            if (!t.inside) continue;
            inside |= 1u << lane;
            a.at[0][lane] = t.address;
            a.low = t.address < a.low ? t.address : a.low;
            a.high = t.address > a.high ? t.address : a.high;
        }
        a.lanes = d.plain ? inside : 0;
        return;
    }
    case segment::scratch: set_lanes(a, 0, scratch_addresses(w, &i)); return;
    case segment::lds: {
        if (u.append) {
            set_lanes(a, 0, splat((w->s[slot_m0] >> 16) + uint32_t(i.imm)));
        } else if (u.addtid) {
            set_lanes(a, 0, lane_number * 4u + (uint32_t(i.imm) + (w->s[slot_m0] & 0xffff)));
        } else if (u.addresses == 2) {
            const u32v base = load_row(w->v + i.src[0]);
            set_lanes(a, 0, base + (uint32_t(i.imm) & 0xff) * u.unit);
            set_lanes(a, 1, base + (uint32_t(i.imm) >> 8) * u.unit);
        } else {
            set_lanes(a, 0, load_row(w->v + i.src[0]) + uint32_t(i.imm));
        }
        return;
    }
    case segment::scalar: {
        a.lanes = 1;
        const uint64_t base = read_slot<uint64_t>(w, i.sdst);
        a.at[0][0] = a.low = a.high = base + i.imm + w->s[i.src[0]];
        return;
    }
    case segment::scalar_buffer: {
        const uint32_t * v = &w->s[i.sdst];
        const uint32_t stride = v[1] >> 16 & 0x3fff;
        const uint64_t limit = stride ? uint64_t(v[2]) * stride : v[2];
        const uint64_t offset = i.imm + w->s[i.src[0]];
        // What lies past the end of the buffer is not accessed.
        const uint64_t there = offset >= limit ? 0 : limit - offset;
        a.bytes = uint32_t(there < u.bytes ? there & ~3ull : u.bytes);
        a.lanes = a.bytes ? 1 : 0;
        a.at[0][0] = a.low = a.high = (v[0] | uint64_t(v[1] & 0xffff) << 32) + offset;
        return;
    }
    case segment::none: return;
    }
}

static __attribute__((noinline)) void watch_access(wave * w, const probe & p) {
    memory_access a;
    find_access(w, p, a);
    const thread_state & t = *w->watched->thread;
    if (t.on & instrument_count) t.count->access(*w, p, a);
    if (t.on & instrument_time) t.trace->access(w->index, p, a);
    if (t.on & (instrument_memory | instrument_align)) check_memory(*w, p, a);
    if (t.on & instrument_race) check_race(*w, p, a);
    if (t.on & instrument_init) follow_definedness(w, p, a);
}

STRATA_HANDLER(instrument_hook) {
    const probe & p = *reinterpret_cast<const probe *>(i->imm);
    const wave_state & s = *w->watched;
    const thread_state & t = *s.thread;
    if (t.on & instrument_count) t.count->instruction(p);
    if (t.on & instrument_time) t.trace->instruction(w->index, p);
    if (t.on & instrument_wait) check_wait(*w, p);
    if (t.order) follow_order(*w, p);
    if (p.memory.where != segment::none) {
        watch_access(w, p);
    } else if (t.on & instrument_init) {
        const memory_access none{};
        follow_definedness(w, p, none);
    }
    STRATA_NEXT;
}

}  // namespace strata::emulator::STRATA_ISA
