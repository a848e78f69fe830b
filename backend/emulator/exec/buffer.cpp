// Buffer loads, stores and atomics: a 128-bit descriptor with base, stride and size; what lies outside reads 0 and is not written.
// Formats, swizzled and add-tid descriptors are not emulated.
#include "atomics.h"
#include "buffer_address.h"
#include "memory.h"
#include "tables.h"

namespace strata::emulator::STRATA_ISA {

enum class item { whole, u8, i8, u16, i16, d16_u8, d16_i8, d16_b16, hi_u8, hi_i8, hi_b16 };
static constexpr uint32_t item_bytes(item x, int dwords) {
    if (x == item::whole) return uint32_t(4 * dwords);
    return x == item::u8 || x == item::i8 || x == item::d16_u8 || x == item::d16_i8 || x == item::hi_u8 || x == item::hi_i8 ? 1 : 2;
}

template <item X, int dwords, bool write> static STRATA_HANDLER(access) {
    constexpr uint32_t bytes = item_bytes(X, dwords);
    const descriptor d = read_descriptor(w, i);
    if (!d.plain) {
        stop_with(w, i, count + i->weight, fault_note::reason::unsupported, "swizzled buffer descriptors are not emulated");
        return;
    }
    for (uint32_t rest = w->s[slot_exec]; rest; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        const target t = buffer_address(w, i, d, lane, bytes);
        if (t.inside && !covered(w, i, t.address, bytes, write)) {
            stop_memory(w, i, count + i->weight, fault_note::reason::memory, lane, t.address, bytes, write);
            return;
        }
        uint8_t * reg = w->v + i->dst + lane * 4;
        uint32_t data[4] = {};
        if (write) {
            if (!t.inside) continue;
            if (X == item::whole) {
                for (int n = 0; n < dwords; n++) std::memcpy(&data[n], reg + n * row_bytes, 4);
                std::memcpy(reinterpret_cast<void *>(t.address), data, bytes);
            } else {
                std::memcpy(reinterpret_cast<void *>(t.address), reg + (X == item::hi_u8 || X == item::hi_b16 ? 2 : 0), bytes);
            }
            continue;
        }
        if (t.inside) std::memcpy(data, reinterpret_cast<const void *>(t.address), bytes);
        if (X == item::whole) {
            for (int n = 0; n < dwords; n++) std::memcpy(reg + n * row_bytes, &data[n], 4);
            continue;
        }
        uint32_t old;
        std::memcpy(&old, reg, 4);
        switch (X) {
        case item::i8: old = uint32_t(int8_t(data[0])); break;
        case item::i16: old = uint32_t(int16_t(data[0])); break;
        case item::d16_u8: case item::d16_b16: old = (old & 0xffff0000u) | data[0]; break;
        case item::d16_i8: old = (old & 0xffff0000u) | uint16_t(int8_t(data[0])); break;
        case item::hi_u8: case item::hi_b16: old = (old & 0xffffu) | data[0] << 16; break;
        case item::hi_i8: old = (old & 0xffffu) | uint32_t(uint16_t(int8_t(data[0]))) << 16; break;
        default: old = data[0];
        }
        std::memcpy(reg, &old, 4);
    }
    STRATA_NEXT;
}

template <class T, auto F> static STRATA_HANDLER(atomic) {
    const descriptor d = read_descriptor(w, i);
    if (!d.plain) {
        stop_with(w, i, count + i->weight, fault_note::reason::unsupported, "swizzled buffer descriptors are not emulated");
        return;
    }
    for (uint32_t rest = w->s[slot_exec]; rest; rest &= rest - 1) {
        const int lane = __builtin_ctz(rest);
        const target t = buffer_address(w, i, d, lane, sizeof(T));
        T data, other{}, old{};
        load_lanes(w->v + i->src[1], lane, data);
        if (__is_same(decltype(F), compare_swap)) load_lanes(w->v + i->src[1] + int(sizeof(T) / 4) * row_bytes, lane, other);
        if (t.inside) {
            const bool aligned = t.address % sizeof(T) == 0;
            if (!aligned || !covered(w, i, t.address, sizeof(T), true)) {
                stop_memory(w, i, count + i->weight, aligned ? fault_note::reason::memory : fault_note::reason::misaligned, lane, t.address,
                            sizeof(T), true);
                return;
            }
            old = atomic_update<T, F>(reinterpret_cast<T *>(t.address), data, other);
        }
        if (i->aux & memory_return) store_lanes(w->v + i->dst, lane, old);
    }
    STRATA_NEXT;
}

#define BUFFER(NAME, ...) {"buffer_" NAME, form::buffer, type::none, type::none, type::none, type::none, nullptr, __VA_ARGS__, 0}
#define ATOMIC(NAME, T, F) BUFFER("atomic_" NAME, atomic<T, F>)

static const operation entries[] = {
    BUFFER("load_u8", access<item::u8, 1, false>), BUFFER("load_i8", access<item::i8, 1, false>),
    BUFFER("load_u16", access<item::u16, 1, false>), BUFFER("load_i16", access<item::i16, 1, false>),
    BUFFER("load_b32", access<item::whole, 1, false>), BUFFER("load_b64", access<item::whole, 2, false>),
    BUFFER("load_b96", access<item::whole, 3, false>), BUFFER("load_b128", access<item::whole, 4, false>),
    BUFFER("load_d16_u8", access<item::d16_u8, 1, false>), BUFFER("load_d16_i8", access<item::d16_i8, 1, false>),
    BUFFER("load_d16_b16", access<item::d16_b16, 1, false>), BUFFER("load_d16_hi_u8", access<item::hi_u8, 1, false>),
    BUFFER("load_d16_hi_i8", access<item::hi_i8, 1, false>), BUFFER("load_d16_hi_b16", access<item::hi_b16, 1, false>),
    BUFFER("store_b8", access<item::u8, 1, true>), BUFFER("store_b16", access<item::u16, 1, true>),
    BUFFER("store_b32", access<item::whole, 1, true>), BUFFER("store_b64", access<item::whole, 2, true>),
    BUFFER("store_b96", access<item::whole, 3, true>), BUFFER("store_b128", access<item::whole, 4, true>),
    BUFFER("store_d16_hi_b8", access<item::hi_u8, 1, true>), BUFFER("store_d16_hi_b16", access<item::hi_b16, 1, true>),
    STRATA_ATOMICS(ATOMIC)
};
STRATA_TABLE(buffer, entries)

}  // namespace strata::emulator::STRATA_ISA
