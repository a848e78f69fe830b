// Addresses of flat, global and scratch instructions, and access to one lane's bytes in any of the three memories.
#pragma once

#include "memory.h"

namespace strata::emulator::STRATA_ISA {

enum class space { global, flat, scratch };

/// The addresses of the active lanes of a global or flat access, with the lowest and highest.
struct address_set {
    alignas(64) uint64_t lane[32];
    uint64_t low, high;
};

static STRATA_INLINE uint64_t reduce_min(u64v x) { return uint64_t(__builtin_reduce_min(as<i64v>(x))); }
static STRATA_INLINE uint64_t reduce_max(u64v x) { return uint64_t(__builtin_reduce_max(as<i64v>(x))); }

/// Fills the set for the active lanes (EXEC is not 0); the other lanes get an arbitrary address of an active lane's range.
static STRATA_INLINE void global_addresses(const wave * w, const inst * i, uint32_t lanes, address_set & set) {
    const uint8_t * p = w->v + i->src[0];
    if (i->aux & memory_saddr) {
        uint64_t base;
        std::memcpy(&base, &w->s[i->sdst], 8);
        base += i->imm;
        u32v offset = load_row(p);
        if (__builtin_expect(lanes != 0xffffffffu, 0)) offset = select(mask_lanes(lanes), offset, splat(offset[__builtin_ctz(lanes)]));
        set.low = base + __builtin_reduce_min(offset);
        set.high = base + __builtin_reduce_max(offset);
        const u64v a = convert<u64v>(offset) + base;
        std::memcpy(set.lane, &a, sizeof a);
    } else {
        u64v a = join(load_row(p), load_row(p + row_bytes)) + i->imm;
        if (__builtin_expect(lanes != 0xffffffffu, 0)) a = select(mask_lanes64(lanes), a, splat64(a[__builtin_ctz(lanes)]));
        set.low = reduce_min(a);
        set.high = reduce_max(a);
        std::memcpy(set.lane, &a, sizeof a);
    }
}

/// Whether lane l's address is low + l * bytes, for all lanes.
static STRATA_INLINE bool in_sequence(const address_set & set, uint32_t bytes) {
    if (set.high - set.low != 31 * bytes) return false;
    u64v a;
    std::memcpy(&a, set.lane, sizeof a);
    const u64v expected = convert<u64v>(lane_number * bytes) + set.low;
    return lane_bits(i64v(a != expected)) == 0;
}

/// Copies between a lane's private memory (dwords interleaved over lanes) and a buffer.
static STRATA_INLINE void scratch_copy(const wave * w, int lane, uint32_t address, void * buffer, uint32_t bytes, bool write) {
    uint8_t * b = static_cast<uint8_t *>(buffer);
    for (uint32_t n = 0; n < bytes; n++, address++) {
        uint8_t * p = w->scratch + (uint64_t(address >> 2) * 32 + lane) * 4 + (address & 3);
        if (write) *p = b[n];
        else b[n] = *p;
    }
}

/// Where the bytes of one lane's access lie, for accesses that are not simply global. Stops the wave if they are nowhere.
struct place {
    uint8_t * pointer = nullptr;  ///< null: scratch
    uint32_t scratch_address = 0;
};
static STRATA_INLINE bool locate(wave * w, const inst * i, uint64_t count, uint64_t address, uint32_t bytes, bool write, int lane,
                                 bool flat, place & where) {
    const uint32_t high = uint32_t(address >> 32), low = uint32_t(address);
    if (flat && high == lds_aperture) {
        if (low <= w->lds_size && bytes <= w->lds_size - low) {
            where.pointer = w->lds + low;
            return true;
        }
        stop_memory(w, i, count, fault_note::reason::lds, lane, low, bytes, write);
        return false;
    }
    if (flat && high == scratch_aperture) {
        if (low <= w->scratch_size && bytes <= w->scratch_size - low) {
            where.pointer = nullptr;
            where.scratch_address = low;
            return true;
        }
        stop_memory(w, i, count, fault_note::reason::scratch, lane, low, bytes, write);
        return false;
    }
    if (covered(w, i, address, bytes, write)) {
        where.pointer = reinterpret_cast<uint8_t *>(address);
        return true;
    }
    stop_memory(w, i, count, fault_note::reason::memory, lane, address, bytes, write);
    return false;
}
static STRATA_INLINE bool has_aperture(const address_set & set) { return (set.high >> 32) >= lds_aperture; }

/// The scratch addresses of all lanes.
static STRATA_INLINE u32v scratch_addresses(const wave * w, const inst * i) {
    u32v a = splat(uint32_t(i->imm));
    if (i->aux & memory_saddr) a += w->s[i->sdst];
    if (i->aux & memory_vaddr) a += load_row(w->v + i->src[0]);
    return a;
}

}  // namespace strata::emulator::STRATA_ISA
