// The bit layouts of RDNA3 instructions.
#pragma once

#include <cstdint>

namespace strata::emulator {

enum class encoding : uint8_t { sop1, sop2, sopc, sopk, sopp, smem, vop1, vop2, vopc, vop3, vop3p, vopd, ds, flat, mubuf, other };

inline encoding encoding_of(uint32_t word) {
    if (word >> 31 == 0) return word >> 25 == 0x3f ? encoding::vop1 : word >> 25 == 0x3e ? encoding::vopc : encoding::vop2;
    switch (word >> 23) {
    case 0x17d: return encoding::sop1;
    case 0x17e: return encoding::sopc;
    case 0x17f: return encoding::sopp;
    }
    if (word >> 28 == 0xb) return encoding::sopk;
    if (word >> 30 == 2) return encoding::sop2;
    if (word >> 24 == 0xcc) return encoding::vop3p;
    switch (word >> 26) {
    case 0x35: return encoding::vop3;
    case 0x32: return encoding::vopd;
    case 0x36: return encoding::ds;
    case 0x37: return encoding::flat;
    case 0x38: return encoding::mubuf;
    case 0x3d: return encoding::smem;
    }
    return encoding::other;
}

/// Bytes of the encoding without literal or DPP word.
inline unsigned base_size(encoding e) {
    switch (e) {
    case encoding::smem: case encoding::vop3: case encoding::vop3p: case encoding::vopd: case encoding::ds: case encoding::flat:
    case encoding::mubuf: return 8;
    default: return 4;
    }
}

/// Bits [high:low] of a word of up to 64 bits.
constexpr uint32_t bits(uint64_t word, int high, int low) { return uint32_t(word >> low & ((1ull << (high - low + 1)) - 1)); }

/// Source operand codes.
enum source_code : uint32_t {
    code_null = 124, code_m0 = 125, code_int_first = 128, code_int_last = 208, code_dpp8 = 233, code_dpp8_fi = 234, code_shared_base = 235,
    code_shared_limit = 236, code_private_base = 237, code_private_limit = 238, code_float_first = 240, code_float_last = 248,
    code_dpp16 = 250, code_scc = 253, code_literal = 255, code_vgpr = 256,
};

}  // namespace strata::emulator
