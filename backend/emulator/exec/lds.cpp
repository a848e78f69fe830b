// LDS: loads, stores, atomics. ds_permute, ds_bpermute and ds_swizzle are in cross_lane.cpp.
#include "atomics.h"
#include "memory.h"
#include "shuffle.h"
#include "tables.h"

namespace strata::emulator::STRATA_ISA {

/// Whether all active lanes' accesses lie in the workgroup's LDS; stops the wave if not.
static STRATA_INLINE bool inside(wave * w, const inst * i, uint64_t count, u32v address, uint32_t bytes, uint32_t lanes, bool write) {
    // address + bytes <= size, without wrapping
    const i32v bad = w->lds_size >= bytes ? i32v(address > w->lds_size - bytes) : i32v{} - 1;
    const uint32_t bits = lane_bits(bad) & lanes;
    if (__builtin_expect(bits == 0, 1)) return true;
    const int lane = __builtin_ctz(bits);
    stop_memory(w, i, count + i->weight, fault_note::reason::lds, lane, address[lane], bytes, write);
    return false;
}

enum class narrow { none, u8, i8, u16, i16, d16_u8, d16_i8, d16_u16, hi_u8, hi_i8, hi_u16 };
static constexpr uint32_t narrow_bytes(narrow n) {
    switch (n) {
    case narrow::u8: case narrow::i8: case narrow::d16_u8: case narrow::d16_i8: case narrow::hi_u8: case narrow::hi_i8: return 1;
    default: return 2;
    }
}

/// dwords of consecutive bytes a lane.
template <int dwords, bool write> static STRATA_HANDLER(wide_access) {
    const uint32_t lanes = w->s[slot_exec];
    const u32v address = load_row(w->v + i->src[0]) + uint32_t(i->imm);
    if (!inside(w, i, count, address, 4 * dwords, lanes, write)) return;
    uint8_t * reg = w->v + (write ? i->src[1] : i->dst);
    if (lanes == 0xffffffffu) {
        const uint32_t first = address[0];
        if (dwords == 1 && lane_bits(i32v(address != lane_number * 4u + first)) == 0) {
            u32v x;
            if (write) {
                x = load_row(reg);
                std::memcpy(w->lds + first, &x, sizeof x);
            } else {
                std::memcpy(&x, w->lds + first, sizeof x);
                store_row(reg, x);
            }
            STRATA_NEXT;
        }
        alignas(64) uint32_t at[32];
        std::memcpy(at, &address, sizeof at);
        const auto place = [&](int lane) STRATA_LAMBDA { return w->lds + at[lane]; };
        if (write) scatter<dwords>(reg, place);
        else gather<dwords>(reg, place);
        STRATA_NEXT;
    }
    alignas(64) uint32_t at[32];
    std::memcpy(at, &address, sizeof at);
    STRATA_EACH_LANE(lane, lanes) {
        for (int d = 0; d < dwords; d++) {
            if (write) std::memcpy(w->lds + at[lane] + 4 * d, reg + d * row_bytes + lane * 4, 4);
            else std::memcpy(reg + d * row_bytes + lane * 4, w->lds + at[lane] + 4 * d, 4);
        }
    }
    STRATA_NEXT;
}

/// Two accesses of `dwords` each, at offset0 and offset1 times unit bytes.
template <int dwords, int unit, bool write> static STRATA_HANDLER(two_addresses) {
    const uint32_t lanes = w->s[slot_exec];
    const u32v base = load_row(w->v + i->src[0]);
    const u32v a0 = base + (uint32_t(i->imm) & 0xff) * unit, a1 = base + (uint32_t(i->imm) >> 8) * unit;
    if (!inside(w, i, count, a0, 4 * dwords, lanes, write) || !inside(w, i, count, a1, 4 * dwords, lanes, write)) return;
    alignas(64) uint32_t at[2][32];
    std::memcpy(at[0], &a0, sizeof at[0]);
    std::memcpy(at[1], &a1, sizeof at[1]);
    if (lanes == 0xffffffffu) {
        const auto first = [&](int lane) STRATA_LAMBDA { return w->lds + at[0][lane]; };
        const auto second = [&](int lane) STRATA_LAMBDA { return w->lds + at[1][lane]; };
        if (write) {
            scatter<dwords>(w->v + i->src[1], first);
            scatter<dwords>(w->v + i->src[2], second);
        } else {
            gather<dwords>(w->v + i->dst, first);
            gather<dwords>(w->v + i->dst + dwords * row_bytes, second);
        }
        STRATA_NEXT;
    }
    if (write) {
        STRATA_EACH_LANE(lane, lanes) {
            for (int part = 0; part < 2; part++) {
                const uint8_t * from = w->v + i->src[1 + part] + lane * 4;
                for (int d = 0; d < dwords; d++) std::memcpy(w->lds + at[part][lane] + 4 * d, from + d * row_bytes, 4);
            }
        }
    } else {
        STRATA_EACH_LANE(lane, lanes) {
            for (int part = 0; part < 2; part++) {
                for (int d = 0; d < dwords; d++) {
                    std::memcpy(w->v + i->dst + (part * dwords + d) * row_bytes + lane * 4, w->lds + at[part][lane] + 4 * d, 4);
                }
            }
        }
    }
    STRATA_NEXT;
}

template <narrow N> static STRATA_HANDLER(narrow_load) {
    const uint32_t lanes = w->s[slot_exec];
    const u32v address = load_row(w->v + i->src[0]) + uint32_t(i->imm);
    if (!inside(w, i, count, address, narrow_bytes(N), lanes, false)) return;
    STRATA_EACH_LANE(lane, lanes) {
        uint32_t raw = 0, x;
        uint8_t * p = w->v + i->dst + lane * 4;
        std::memcpy(&raw, w->lds + address[lane], narrow_bytes(N));
        std::memcpy(&x, p, 4);
        switch (N) {
        case narrow::i8: x = uint32_t(int8_t(raw)); break;
        case narrow::i16: x = uint32_t(int16_t(raw)); break;
        case narrow::d16_u8: case narrow::d16_u16: x = (x & 0xffff0000u) | raw; break;
        case narrow::d16_i8: x = (x & 0xffff0000u) | uint16_t(int8_t(raw)); break;
        case narrow::hi_u8: case narrow::hi_u16: x = (x & 0xffffu) | raw << 16; break;
        case narrow::hi_i8: x = (x & 0xffffu) | uint32_t(uint16_t(int8_t(raw))) << 16; break;
        default: x = raw;
        }
        std::memcpy(p, &x, 4);
    }
    STRATA_NEXT;
}
template <int bytes, bool high> static STRATA_HANDLER(narrow_store) {
    const uint32_t lanes = w->s[slot_exec];
    const u32v address = load_row(w->v + i->src[0]) + uint32_t(i->imm);
    if (!inside(w, i, count, address, bytes, lanes, true)) return;
    STRATA_EACH_LANE(lane, lanes) std::memcpy(w->lds + address[lane], w->v + i->src[1] + lane * 4 + (high ? 2 : 0), bytes);
    STRATA_NEXT;
}

template <bool write> static STRATA_HANDLER(addtid) {
    const uint32_t lanes = w->s[slot_exec];
    const u32v address = lane_number * 4u + (uint32_t(i->imm) + (w->s[slot_m0] & 0xffff));
    if (!inside(w, i, count, address, 4, lanes, write)) return;
    STRATA_EACH_LANE(lane, lanes) {
        if (write) std::memcpy(w->lds + address[lane], w->v + i->src[1] + lane * 4, 4);
        else std::memcpy(w->v + i->dst + lane * 4, w->lds + address[lane], 4);
    }
    STRATA_NEXT;
}

/// The lanes take turns, in order; waves of a workgroup run on one thread.
template <class T, auto F, bool returns> static STRATA_HANDLER(atomic) {
    const uint32_t lanes = w->s[slot_exec];
    const u32v address = load_row(w->v + i->src[0]) + uint32_t(i->imm);
    if (!inside(w, i, count, address, sizeof(T), lanes, true)) return;
    STRATA_EACH_LANE(lane, lanes) {
        T data, other, old;
        load_lanes(w->v + i->src[1], int(lane), data);
        load_lanes(w->v + i->src[2], int(lane), other);
        std::memcpy(&old, w->lds + address[lane], sizeof old);
        const T now = F(old, data, other);
        std::memcpy(w->lds + address[lane], &now, sizeof now);
        if (returns) store_lanes(w->v + i->dst, int(lane), old);
    }
    STRATA_NEXT;
}
struct wrap {
    template <class T> STRATA_INLINE T operator()(T old, T data, T data2) const { return old >= data ? old - data : old + data2; }
};
struct mask_or {
    template <class T> STRATA_INLINE T operator()(T old, T data, T data2) const { return (old & ~data) | data2; }
};

template <class T, int unit> static STRATA_HANDLER(exchange_two) {
    constexpr int dwords = sizeof(T) / 4;
    const uint32_t lanes = w->s[slot_exec];
    const u32v base = load_row(w->v + i->src[0]);
    const u32v a0 = base + (uint32_t(i->imm) & 0xff) * unit, a1 = base + (uint32_t(i->imm) >> 8) * unit;
    if (!inside(w, i, count, a0, sizeof(T), lanes, true) || !inside(w, i, count, a1, sizeof(T), lanes, true)) return;
    STRATA_EACH_LANE(lane, lanes) {
        T d0, d1, o0, o1;
        load_lanes(w->v + i->src[1], int(lane), d0);
        load_lanes(w->v + i->src[2], int(lane), d1);
        std::memcpy(&o0, w->lds + a0[lane], sizeof o0);
        std::memcpy(&o1, w->lds + a1[lane], sizeof o1);
        std::memcpy(w->lds + a0[lane], &d0, sizeof d0);
        std::memcpy(w->lds + a1[lane], &d1, sizeof d1);
        store_lanes(w->v + i->dst, int(lane), o0);
        store_lanes(w->v + i->dst + dwords * row_bytes, int(lane), o1);
    }
    STRATA_NEXT;
}

/// append and consume count active lanes at M0[31:16] + offset.
template <bool add> static STRATA_HANDLER(append) {
    const uint32_t lanes = w->s[slot_exec];
    const u32v address = splat((w->s[slot_m0] >> 16) + uint32_t(i->imm));
    if (!inside(w, i, count, address, 4, lanes, true)) return;
    if (lanes == 0) STRATA_NEXT;
    uint32_t old;
    std::memcpy(&old, w->lds + address[0], 4);
    const uint32_t n = uint32_t(__builtin_popcount(lanes));
    const uint32_t now = add ? old + n : old - n;
    std::memcpy(w->lds + address[0], &now, 4);
    put_row(w, i->dst, splat(old), lanes);
    STRATA_NEXT;
}

#define DS(NAME, ...) {NAME, form::ds, type::none, type::none, type::none, type::none, nullptr, __VA_ARGS__, 0}
#define ATOMIC_AS(NAME, NAME_RTN, T, F) DS(NAME, atomic<T, F, false>), DS(NAME_RTN, atomic<T, F, true>)
#define ATOMIC(NAME, SUFFIX, T, F) ATOMIC_AS("ds_" NAME "_" SUFFIX, "ds_" NAME "_rtn_" SUFFIX, T, F)
#define BOTH(NAME, U, T, F) ATOMIC(NAME, U "32", T##32_t, F), ATOMIC(NAME, U "64", T##64_t, F)

static const operation entries[] = {
    DS("ds_load_b32", wide_access<1, false>), DS("ds_load_b64", wide_access<2, false>), DS("ds_load_b96", wide_access<3, false>),
    DS("ds_load_b128", wide_access<4, false>), DS("ds_store_b32", wide_access<1, true>), DS("ds_store_b64", wide_access<2, true>),
    DS("ds_store_b96", wide_access<3, true>), DS("ds_store_b128", wide_access<4, true>),
    DS("ds_load_2addr_b32", two_addresses<1, 4, false>), DS("ds_load_2addr_b64", two_addresses<2, 8, false>),
    DS("ds_load_2addr_stride64_b32", two_addresses<1, 256, false>), DS("ds_load_2addr_stride64_b64", two_addresses<2, 512, false>),
    DS("ds_store_2addr_b32", two_addresses<1, 4, true>), DS("ds_store_2addr_b64", two_addresses<2, 8, true>),
    DS("ds_store_2addr_stride64_b32", two_addresses<1, 256, true>), DS("ds_store_2addr_stride64_b64", two_addresses<2, 512, true>),
    DS("ds_load_u8", narrow_load<narrow::u8>), DS("ds_load_i8", narrow_load<narrow::i8>), DS("ds_load_u16", narrow_load<narrow::u16>),
    DS("ds_load_i16", narrow_load<narrow::i16>), DS("ds_load_u8_d16", narrow_load<narrow::d16_u8>),
    DS("ds_load_i8_d16", narrow_load<narrow::d16_i8>), DS("ds_load_u16_d16", narrow_load<narrow::d16_u16>),
    DS("ds_load_u8_d16_hi", narrow_load<narrow::hi_u8>), DS("ds_load_i8_d16_hi", narrow_load<narrow::hi_i8>),
    DS("ds_load_u16_d16_hi", narrow_load<narrow::hi_u16>),
    DS("ds_store_b8", narrow_store<1, false>), DS("ds_store_b16", narrow_store<2, false>), DS("ds_store_b8_d16_hi", narrow_store<1, true>),
    DS("ds_store_b16_d16_hi", narrow_store<2, true>),
    DS("ds_load_addtid_b32", addtid<false>), DS("ds_store_addtid_b32", addtid<true>),
    DS("ds_append", append<true>), DS("ds_consume", append<false>),
    BOTH("add", "u", uint, fn_add), BOTH("sub", "u", uint, fn_sub), BOTH("rsub", "u", uint, fn_rsub), BOTH("inc", "u", uint, fn_inc),
    BOTH("dec", "u", uint, fn_dec), BOTH("min", "i", int, fn_min), BOTH("max", "i", int, fn_max), BOTH("min", "u", uint, fn_min),
    BOTH("max", "u", uint, fn_max), BOTH("and", "b", uint, fn_and), BOTH("or", "b", uint, fn_or), BOTH("xor", "b", uint, fn_xor),
    BOTH("mskor", "b", uint, mask_or{}), BOTH("cmpstore", "b", uint, compare_swap{}),
    ATOMIC("cmpstore", "f32", float, compare_swap{}), ATOMIC("cmpstore", "f64", double, compare_swap{}),
    ATOMIC("min", "f32", float, fn_fmin), ATOMIC("max", "f32", float, fn_fmax), ATOMIC("min", "f64", double, fn_fmin),
    ATOMIC("max", "f64", double, fn_fmax), ATOMIC("add", "f32", float, fn_add),
    DS("ds_storexchg_rtn_b32", atomic<uint32_t, fn_swap, true>), DS("ds_storexchg_rtn_b64", atomic<uint64_t, fn_swap, true>),
    DS("ds_storexchg_2addr_rtn_b32", exchange_two<uint32_t, 4>), DS("ds_storexchg_2addr_rtn_b64", exchange_two<uint64_t, 8>),
    DS("ds_storexchg_2addr_stride64_rtn_b32", exchange_two<uint32_t, 256>),
    DS("ds_storexchg_2addr_stride64_rtn_b64", exchange_two<uint64_t, 512>),
    DS("ds_wrap_rtn_b32", atomic<uint32_t, wrap{}, true>),
};
STRATA_TABLE(lds, entries)

}  // namespace strata::emulator::STRATA_ISA
