// The first 1201 bits of 2/pi, for v_trig_preop_f64.
#pragma once

#include <cstdint>

namespace strata::emulator::STRATA_ISA {

/// Bits [shift, shift + 53) of the fraction of 2/pi, the most significant bit being number 0; zeros after bit 1200.
static inline uint64_t two_over_pi_bits(int shift) {
    static constexpr uint64_t words[] = {
        0xa2f9836e4e441529ull, 0xfc2757d1f534ddc0ull, 0xdb6295993c439041ull, 0xfe5163abdebbc561ull,
        0xb7246e3a424dd2e0ull, 0x06492eea09d1921cull, 0xfe1deb1cb129a73eull, 0xe88235f52ebb4484ull,
        0xe99c7026b45f7e41ull, 0x3991d639835339f4ull, 0x9c845f8bbdf9283bull, 0x1ff897ffde05980full,
        0xef2f118b5a0a6d1full, 0x6d367ecf27cb09b7ull, 0x4f463f669e5fea2dull, 0x7527bac7ebe5f17bull,
        0x3d0739f78a5292eaull, 0x6bfb5fb11f8d5d08ull, 0x56033046fc7b0000ull,
    };
    uint64_t r = 0;
    for (int n = shift; n < shift + 53; n++) r = r << 1 | (n < 1201 ? words[n / 64] >> (63 - n % 64) & 1 : 0);
    return r;
}

}  // namespace strata::emulator::STRATA_ISA
