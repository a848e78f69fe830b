// Flat, global and scratch loads, stores and atomics.
#include "address.h"
#include "atomics.h"
#include "shuffle.h"
#include "tables.h"

namespace strata::emulator::STRATA_ISA {

// How a loaded or stored value relates to its register(s).
enum class part { whole, u8, i8, u16, i16, d16_u8, d16_i8, d16_b16, hi_u8, hi_i8, hi_b16 };

static constexpr uint32_t part_bytes(part p, int dwords) {
    switch (p) {
    case part::whole: return 4 * dwords;
    case part::u8: case part::i8: case part::d16_u8: case part::d16_i8: case part::hi_u8: case part::hi_i8: return 1;
    default: return 2;
    }
}

/// The register's new value from the loaded bytes and its old value.
template <part P> static STRATA_INLINE uint32_t widen(uint32_t raw, uint32_t old) {
    switch (P) {
    case part::i8: return uint32_t(int8_t(raw));
    case part::i16: return uint32_t(int16_t(raw));
    case part::d16_u8: case part::d16_b16: return (old & 0xffff0000u) | raw;
    case part::d16_i8: return (old & 0xffff0000u) | uint16_t(int8_t(raw));
    case part::hi_u8: case part::hi_b16: return (old & 0xffffu) | raw << 16;
    case part::hi_i8: return (old & 0xffffu) | uint32_t(uint16_t(int8_t(raw))) << 16;
    default: return raw;
    }
}

template <part P, int dwords> static STRATA_INLINE void load_lane(uint8_t * dst, int lane, const void * from) {
    if constexpr (P == part::whole) {
        uint32_t data[dwords];
        std::memcpy(data, from, 4 * dwords);
        for (int d = 0; d < dwords; d++) std::memcpy(dst + d * row_bytes + lane * 4, &data[d], 4);
    } else {
        uint32_t raw = 0, old;
        std::memcpy(&raw, from, part_bytes(P, 1));
        std::memcpy(&old, dst + lane * 4, 4);
        old = widen<P>(raw, old);
        std::memcpy(dst + lane * 4, &old, 4);
    }
}
template <part P, int dwords> static STRATA_INLINE void store_lane(const uint8_t * src, int lane, void * to) {
    if constexpr (P == part::whole) {
        uint32_t data[dwords];
        for (int d = 0; d < dwords; d++) std::memcpy(&data[d], src + d * row_bytes + lane * 4, 4);
        std::memcpy(to, data, 4 * dwords);
    } else {
        constexpr bool high = P == part::hi_u8 || P == part::hi_b16;
        std::memcpy(to, src + lane * 4 + (high ? 2 : 0), part_bytes(P, 1));
    }
}

/// Lanes one at a time: apertures, several allocations, faults. False: the wave has stopped.
template <part P, int dwords, bool write, bool flat>
static __attribute__((noinline)) bool lane_by_lane(wave * w, const inst * i, uint64_t count, uint32_t lanes, const address_set & set) {
    constexpr uint32_t bytes = part_bytes(P, dwords);
    STRATA_EACH_LANE(lane, lanes) {
        place where;
        if (!locate(w, i, count, set.lane[lane], bytes, write, int(lane), flat, where)) return false;
        uint8_t buffer[16];
        uint8_t * p = where.pointer ? where.pointer : buffer;
        if constexpr (write) {
            store_lane<P, dwords>(w->v + i->src[1], int(lane), p);
            if (!where.pointer) scratch_copy(w, int(lane), where.scratch_address, buffer, bytes, true);
        } else {
            if (!where.pointer) scratch_copy(w, int(lane), where.scratch_address, buffer, bytes, false);
            load_lane<P, dwords>(w->v + i->dst, int(lane), p);
        }
    }
    return true;
}

template <part P, int dwords, bool flat> static STRATA_HANDLER(load) {
    constexpr uint32_t bytes = part_bytes(P, dwords);
    const uint32_t lanes = w->s[slot_exec];
    if (lanes == 0) STRATA_NEXT;
    address_set set;
    global_addresses(w, i, lanes, set);
    uint8_t * dst = w->v + i->dst;
    if (__builtin_expect((flat && has_aperture(set)) || !covered(w, i, set.low, set.high + bytes - set.low, false), 0)) {
        if (!lane_by_lane<P, dwords, false, flat>(w, i, count + i->weight, lanes, set)) return;
        STRATA_NEXT;
    }
    if (P == part::whole && lanes == 0xffffffffu) {
        const uint8_t * p = reinterpret_cast<const uint8_t *>(set.low);
        if (dwords == 1 && in_sequence(set, 4)) {
            u32v x;
            std::memcpy(&x, p, sizeof x);
            store_row(dst, x);
            STRATA_NEXT;
        }
        if (set.low == set.high) {
            for (int d = 0; d < dwords; d++) {
                uint32_t x;
                std::memcpy(&x, p + 4 * d, 4);
                store_row(dst + d * row_bytes, splat(x));
            }
            STRATA_NEXT;
        }
        gather<dwords>(dst, [&](int lane) STRATA_LAMBDA { return reinterpret_cast<const uint8_t *>(set.lane[lane]); });
        STRATA_NEXT;
    }
    STRATA_EACH_LANE(lane, lanes) load_lane<P, dwords>(dst, int(lane), reinterpret_cast<const void *>(set.lane[lane]));
    STRATA_NEXT;
}

template <part P, int dwords, bool flat> static STRATA_HANDLER(store) {
    constexpr uint32_t bytes = part_bytes(P, dwords);
    const uint32_t lanes = w->s[slot_exec];
    if (lanes == 0) STRATA_NEXT;
    address_set set;
    global_addresses(w, i, lanes, set);
    const uint8_t * src = w->v + i->src[1];
    if (__builtin_expect((flat && has_aperture(set)) || !covered(w, i, set.low, set.high + bytes - set.low, true), 0)) {
        if (!lane_by_lane<P, dwords, true, flat>(w, i, count + i->weight, lanes, set)) return;
        STRATA_NEXT;
    }
    if (P == part::whole && dwords == 1 && lanes == 0xffffffffu && in_sequence(set, 4)) {
        const u32v x = load_row(src);
        std::memcpy(reinterpret_cast<void *>(set.low), &x, sizeof x);
        STRATA_NEXT;
    }
    if (P == part::whole && lanes == 0xffffffffu) {
        scatter<dwords>(src, [&](int lane) STRATA_LAMBDA { return reinterpret_cast<uint8_t *>(set.lane[lane]); });
        STRATA_NEXT;
    }
    STRATA_EACH_LANE(lane, lanes) store_lane<P, dwords>(src, int(lane), reinterpret_cast<void *>(set.lane[lane]));
    STRATA_NEXT;
}

// Scratch.
template <part P, int dwords, bool write> static STRATA_HANDLER(scratch) {
    constexpr uint32_t bytes = part_bytes(P, dwords);
    const uint32_t lanes = w->s[slot_exec];
    if (lanes == 0) STRATA_NEXT;
    const u32v address = scratch_addresses(w, i);
    uint8_t * reg = w->v + (write ? i->src[1] : i->dst);
    if (P == part::whole && !(i->aux & memory_vaddr)) {  // the same for all lanes: whole rows
        const uint32_t a = address[0];
        if ((a & 3) == 0 && a <= w->scratch_size && bytes <= w->scratch_size - a) {
            uint8_t * p = w->scratch + uint64_t(a >> 2) * row_bytes;
            for (int d = 0; d < dwords; d++) {
                const u32v kept = load_row(p + d * row_bytes);
                if (write) store_row(p + d * row_bytes, select(mask_lanes(lanes), load_row(reg + d * row_bytes), kept));
                else put_row(w, i->dst + d * row_bytes, kept, lanes);
            }
            STRATA_NEXT;
        }
    }
    STRATA_EACH_LANE(lane, lanes) {
        const uint32_t a = address[lane];
        if (a > w->scratch_size || bytes > w->scratch_size - a) {
            stop_memory(w, i, count + i->weight, fault_note::reason::scratch, int(lane), a, bytes, write);
            return;
        }
        uint8_t buffer[16];
        if (write) {
            store_lane<P, dwords>(reg, int(lane), buffer);
            scratch_copy(w, int(lane), a, buffer, bytes, true);
        } else {
            scratch_copy(w, int(lane), a, buffer, bytes, false);
            load_lane<P, dwords>(reg, int(lane), buffer);
        }
    }
    STRATA_NEXT;
}

/// src[1] = data; the result goes to dst if memory_return is set. Workgroups run on several threads, so these are real atomics.
template <class T, auto F, bool flat> static STRATA_HANDLER(atomic) {
    const uint32_t lanes = w->s[slot_exec];
    if (lanes == 0) STRATA_NEXT;
    constexpr bool compare = __is_same(decltype(F), compare_swap);
    constexpr int dwords = sizeof(T) / 4;
    address_set set;
    global_addresses(w, i, lanes, set);
    STRATA_EACH_LANE(lane, lanes) {
        const uint64_t address = set.lane[lane];
        place where;
        if (!locate(w, i, count + i->weight, address, sizeof(T), true, int(lane), flat, where)) return;
        if (where.pointer && address % sizeof(T) != 0) {
            stop_memory(w, i, count + i->weight, fault_note::reason::misaligned, int(lane), address, sizeof(T), true);
            return;
        }
        T data, other{}, old;
        load_lanes(w->v + i->src[1], int(lane), data);
        if (compare) load_lanes(w->v + i->src[1] + dwords * row_bytes, int(lane), other);
        if (where.pointer) {
            old = atomic_update<T, F>(reinterpret_cast<T *>(where.pointer), data, other);
        } else {
            scratch_copy(w, int(lane), where.scratch_address, &old, sizeof(T), false);
            T now = F(old, data, other);
            scratch_copy(w, int(lane), where.scratch_address, &now, sizeof(T), true);
        }
        if (i->aux & memory_return) store_lanes(w->v + i->dst, int(lane), old);
    }
    STRATA_NEXT;
}

// base + offset + lane * 4
template <bool write> static STRATA_HANDLER(addtid) {
    const uint32_t lanes = w->s[slot_exec];
    uint64_t base = i->imm;
    if (i->aux & memory_saddr) {
        uint64_t s;
        std::memcpy(&s, &w->s[i->sdst], 8);
        base += s;
    }
    STRATA_EACH_LANE(lane, lanes) {
        const uint64_t address = base + lane * 4;
        if (!covered(w, i, address, 4, write)) {
            stop_memory(w, i, count + i->weight, fault_note::reason::memory, int(lane), address, 4, write);
            return;
        }
        if (write) std::memcpy(reinterpret_cast<void *>(address), w->v + i->src[1] + lane * 4, 4);
        else std::memcpy(w->v + i->dst + lane * 4, reinterpret_cast<const void *>(address), 4);
    }
    STRATA_NEXT;
}

#define MEMORY(NAME, FN, ...) {NAME, form::flat, type::none, type::none, type::none, type::none, nullptr, FN<__VA_ARGS__>, 0}
#define LOADS(NAME, P, DW) MEMORY("global_load_" NAME, load, P, DW, false), MEMORY("flat_load_" NAME, load, P, DW, true), \
    MEMORY("scratch_load_" NAME, scratch, P, DW, false)
#define STORES(NAME, P, DW) MEMORY("global_store_" NAME, store, P, DW, false), MEMORY("flat_store_" NAME, store, P, DW, true), \
    MEMORY("scratch_store_" NAME, scratch, P, DW, true)
#define ATOMIC(NAME, T, F) MEMORY("global_atomic_" NAME, atomic, T, F, false), MEMORY("flat_atomic_" NAME, atomic, T, F, true)

static const operation entries[] = {
    LOADS("u8", part::u8, 1), LOADS("i8", part::i8, 1), LOADS("u16", part::u16, 1), LOADS("i16", part::i16, 1),
    LOADS("b32", part::whole, 1), LOADS("b64", part::whole, 2), LOADS("b96", part::whole, 3), LOADS("b128", part::whole, 4),
    LOADS("d16_u8", part::d16_u8, 1), LOADS("d16_i8", part::d16_i8, 1), LOADS("d16_b16", part::d16_b16, 1),
    LOADS("d16_hi_u8", part::hi_u8, 1), LOADS("d16_hi_i8", part::hi_i8, 1), LOADS("d16_hi_b16", part::hi_b16, 1),
    STORES("b8", part::u8, 1), STORES("b16", part::u16, 1), STORES("b32", part::whole, 1), STORES("b64", part::whole, 2),
    STORES("b96", part::whole, 3), STORES("b128", part::whole, 4), STORES("d16_hi_b8", part::hi_u8, 1),
    STORES("d16_hi_b16", part::hi_b16, 1),
    MEMORY("global_load_addtid_b32", addtid, false), MEMORY("global_store_addtid_b32", addtid, true),
    STRATA_ATOMICS(ATOMIC)
};
STRATA_TABLE(global, entries)

}  // namespace strata::emulator::STRATA_ISA
