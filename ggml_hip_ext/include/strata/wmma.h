// Matrix products of 16x16 tiles: D = A B + C with K = 16 (RDNA3 WMMA, wave32). The lane layout lives here and nowhere else:
//   A: lane l holds row l & 15, K ascending (lanes 16-31 repeat lanes 0-15);
//   B: lane l holds column l & 15, K ascending (lanes 16-31 repeat lanes 0-15);
//   C, D: element i of lane l is row 2 i + (l >> 4), column l & 15.
#pragma once

#include "strata/device.h"

namespace strata {

using half16 = half __attribute__((ext_vector_type(16)));          ///< A or B fragment of f16
using bf16x16 = short __attribute__((ext_vector_type(16)));        ///< A or B fragment of bf16, as bits
using int8x16 = int32_t __attribute__((ext_vector_type(4)));       ///< A or B fragment of int8, four a word
using float8 = float __attribute__((ext_vector_type(8)));          ///< C or D fragment of f32
using int8v = int32_t __attribute__((ext_vector_type(8)));         ///< C or D fragment of i32

/// Row (of A) or column (of B) whose values this lane holds, and the column of its C/D elements.
STRATA_DEVICE uint32_t wmma_lane_index() { return lane_id() & 15; }
/// Row of element i of a C/D fragment in this lane.
STRATA_DEVICE uint32_t wmma_row(uint32_t i) { return 2 * i + (lane_id() >> 4); }

#ifdef __GFX11__

STRATA_DEVICE float8 wmma(half16 a, half16 b, float8 c) { return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c); }
STRATA_DEVICE float8 wmma(bf16x16 a, bf16x16 b, float8 c) { return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c); }
/// Signed bytes on both sides; exact.
STRATA_DEVICE int8v wmma(int8x16 a, int8x16 b, int8v c) { return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a, true, b, c, false); }

#else  // kernels compile for other cards, and are never launched there

template <class Fragment, class Sum>
STRATA_DEVICE Sum wmma(Fragment, Fragment, Sum) {
    __builtin_trap();
}

#endif

/// A or B fragment of 16-bit values whose row (or column) of this lane starts at `from` in LDS, 16-byte aligned.
template <class Fragment>
STRATA_DEVICE Fragment load_fragment(const void * from) {
    struct __attribute__((aligned(16))) words {
        uint32_t w[8];
    };
    return bit_cast<Fragment>(*static_cast<const words *>(from));
}

}  // namespace strata
