// Operand types of VALU instructions, and how their values are read from and written to a wave.
#pragma once

#include "float16.h"

namespace strata::emulator::STRATA_ISA {

// A type says: code (for the decoder), v (32 lanes), rows (registers), sign (the bit that neg/abs act on; 0: no modifiers).
template <type Code, class Lanes, int Rows, int Bits, uint64_t Sign> struct operand_type {
    static constexpr type code = Code;
    using v = Lanes;
    static constexpr int rows = Rows, bits = Bits;
    static constexpr uint64_t sign = Sign;
};
struct U32 : operand_type<type::b32, u32v, 1, 32, 0> {};
struct I32 : operand_type<type::i32, i32v, 1, 32, 0> {};
struct F32 : operand_type<type::f32, f32v, 1, 32, 1u << 31> {};
/// f32 as its bits, with float modifiers.
struct R32 : operand_type<type::f32, u32v, 1, 32, 1u << 31> {};
struct U64 : operand_type<type::b64, u64v, 2, 64, 0> {};
struct I64 : operand_type<type::i64, i64v, 2, 64, 0> {};
struct F64 : operand_type<type::f64, f64v, 2, 64, 1ull << 63> {};
struct U16 : operand_type<type::b16, u32v, 1, 16, 0> {};
struct I16 : operand_type<type::i16, i32v, 1, 16, 0> {};
struct F16 : operand_type<type::f16, f32v, 1, 16, 0x8000> {};
/// f16 whose signalling NaNs arrive as such (min, max, class).
struct S16 : operand_type<type::f16, f32v, 1, 16, 0x8000> {};
/// f16 as its bits, with float modifiers.
struct R16 : operand_type<type::f16, u32v, 1, 16, 0x8000> {};
/// Packed halves as one word (the operation does its own selection).
struct P16 : operand_type<type::p16, u32v, 1, 32, 0> {};
struct PF16 : operand_type<type::pf16, u32v, 1, 32, 0> {};
/// A lane mask in an SGPR.
struct M : operand_type<type::mask, uint32_t, 0, 1, 0> {};
struct None { static constexpr type code = type::none; };

template <class T> static STRATA_INLINE typename T::v from_bits(u32v r) {
    if constexpr (__is_same(T, F16)) return half_to_float(r);
    else if constexpr (__is_same(T, S16)) return half_to_float_raw(r);
    else if constexpr (__is_same(T, I16)) return as<i32v>(r << 16) >> 16;
    else return as<typename T::v>(r);
}

static STRATA_INLINE const uint8_t * row(const wave * w, int32_t offset) { return (offset >= 0 ? w->v : w->constants) + offset; }

/// Source k of an instruction whose sources are all rows and have no modifiers.
template <class T> static STRATA_INLINE typename T::v get_row(const wave * w, const inst * i, int k) {
    if constexpr (__is_same(T, M)) {
        return w->s[i->src[k]] ^ uint32_t(i->imm);
    } else if constexpr (T::rows == 2) {
        const uint8_t * p = row(w, i->src[k]);
        return as<typename T::v>(join(load_row(p), load_row(p + row_bytes)));
    } else {
        u32v r = load_row(row(w, i->src[k]));
        if constexpr (T::bits == 16) r &= 0xffffu;
        return from_bits<T>(r);
    }
}

/// The 32-bit lanes of source k, without modifiers.
static STRATA_INLINE u32v fetch(const wave * w, const inst * i, int k) {
    if (i->kind[k] == source_row) return load_row(row(w, i->src[k]));
    if (i->kind[k] == source_sgpr) return splat(w->s[i->src[k]]);
    return load_row(w->dpp_row);
}

/// Source k in the general case.
template <class T> static STRATA_INLINE typename T::v get(const wave * w, const inst * i, int k) {
    if constexpr (__is_same(T, M)) {
        return w->s[i->src[k]] ^ uint32_t(i->imm);
    } else if constexpr (T::rows == 2) {
        u64v r;
        if (i->kind[k] == source_row) {
            const uint8_t * p = row(w, i->src[k]);
            r = join(load_row(p), load_row(p + row_bytes));
        } else {
            uint64_t x;
            std::memcpy(&x, &w->s[i->src[k]], 8);
            r = splat64(x);
        }
        if constexpr (T::sign != 0) {
            if (i->abs >> k & 1) r &= ~T::sign;
            if (i->neg >> k & 1) r ^= T::sign;
        }
        return as<typename T::v>(r);
    } else {
        u32v r = fetch(w, i, k);
        if constexpr (T::bits == 16) r = (i->opsel >> k & 1) ? r >> 16 : r & 0xffffu;
        if constexpr (T::sign != 0) {
            if (i->abs >> k & 1) r &= ~uint32_t(T::sign);
            if (i->neg >> k & 1) r ^= uint32_t(T::sign);
        }
        return from_bits<T>(r);
    }
}

/// Writes lanes of one register.
static STRATA_INLINE void put_row(wave * w, int32_t offset, u32v value, uint32_t lanes) {
    uint8_t * p = w->v + offset;
    if (__builtin_expect(lanes != 0xffffffffu, 0)) value = select(mask_lanes(lanes), value, load_row(p));
    store_row(p, value);
}

static STRATA_INLINE void put_half(wave * w, int32_t offset, u32v value, uint32_t lanes, bool high) {
    const u32v old = load_row(w->v + offset);
    put_row(w, offset, high ? (old & 0xffffu) | (value << 16) : (old & 0xffff0000u) | (value & 0xffffu), lanes);
}

template <class T> static STRATA_INLINE void put(wave * w, int32_t offset, typename T::v value, uint32_t lanes, bool high = false) {
    if constexpr (T::rows == 2) {
        const u64v r = as<u64v>(value);
        put_row(w, offset, low_half(r), lanes);
        put_row(w, offset + row_bytes, high_half(r), lanes);
    } else if constexpr (__is_same(T, F16) || __is_same(T, S16)) {
        put_half(w, offset, float_to_half(value), lanes, high);
    } else if constexpr (T::bits == 16) {
        put_half(w, offset, as<u32v>(value), lanes, high);
    } else {
        put_row(w, offset, as<u32v>(value), lanes);
    }
}

/// clamp and omod of float results. NaN clamps to 0 (DX10_CLAMP).
template <class V> static STRATA_INLINE V output_modifiers(const inst * i, V x) {
    if (i->omod == 1) x = x * 2.0f;
    if (i->omod == 2) x = x * 4.0f;
    if (i->omod == 3) x = x * 0.5f;
    if (i->clamp) {
        const V zero = V{};
        const V one = V{} + 1.0f;
        x = select(x > zero, x, zero);
        x = select(x < one, x, one);
    }
    return x;
}

/// Fills wave::dpp_row from the source register; returns the lanes that may be written.
uint32_t apply_dpp(wave * w, const inst * i);

/// Lanes to write: EXEC, less what DPP leaves out.
static STRATA_INLINE uint32_t active(wave * w, const inst * i, bool has_dpp = true) {
    uint32_t lanes = w->s[slot_exec];
    if (has_dpp && __builtin_expect(i->kind[0] == source_dpp, 0)) lanes &= apply_dpp(w, i);
    return lanes;
}

}  // namespace strata::emulator::STRATA_ISA
