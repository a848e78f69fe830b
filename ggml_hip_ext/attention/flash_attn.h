// What the attention kernels share: row packing, ALiBi, softcap, and the end of the softmax.
//
// The softmax is computed online, in base 2, with a running maximum that is moved only when a score exceeds it by
// `max_slack`: the weights then stay below 2^max_slack (far from the largest half) and rescaling is rare. Each row decides
// for itself, so its result does not depend on its neighbours. A row without any unmasked key keeps the sum 0 and gives 0.
#pragma once

#include "common.h"
#include "strata/args/flash_attn.h"
#include "strata/device.h"
#include "strata/math.h"
#include "strata/memory.h"
#include "strata/packed_half.h"
#include "strata/reduce.h"

namespace strata::attention {

/// Start of the running maximum: below any score, but finite, so that differences are never NaN.
constexpr float lowest_max = -1e30f;
constexpr float max_slack = 8.0f;

STRATA_DEVICE uint32_t min(uint32_t a, uint32_t b) { return a < b ? a : b; }
using strata::min;

/// Which types of keys and values a kernel takes. Where only the arguments tell the types, the compiler cannot count the loads in
/// flight, and waits for more than it needs.
enum class kv_types { f16, q8_0, any };

template <kv_types Types>
STRATA_DEVICE kv_format format_of(const kv_format & given) {
    if constexpr (Types == kv_types::f16) {
        return {};
    } else if constexpr (Types == kv_types::q8_0) {
        return q8_0_kv_format;
    } else {
        return given;
    }
}

/// Where a packed query row lies.
struct query_row {
    uint32_t query, head;
};

STRATA_DEVICE query_row unpack_row(uint32_t heads_per_kv, uint32_t kv_head, uint32_t row) {
    const uint32_t query = row / heads_per_kv;
    return {query, kv_head * heads_per_kv + row - query * heads_per_kv};
}
STRATA_DEVICE query_row unpack_row(const flash_attn_args & a, uint32_t kv_head, uint32_t row) { return unpack_row(a.heads_per_kv, kv_head, row); }

STRATA_DEVICE uint32_t dst_row(const flash_attn_args & a, uint32_t batch, query_row r) { return (batch * a.n_q + r.query) * a.n_head + r.head; }

/// What the mask is multiplied by: the ALiBi slope of the head in the base-2 domain.
STRATA_DEVICE float mask_scale(const flash_attn_args & a, uint32_t head) {
    return alibi_slope(a.max_bias, a.alibi_heads, head) * log2_e;
}

/// Softcap of a score that was scaled by 2 scale log2(e) / softcap: softcap * tanh, in the base-2 domain.
STRATA_DEVICE float capped(float score, float softcap) { return fma(-2.0f * softcap, reciprocal(exp2_fast(score) + 1.0f), softcap); }

/// n / d and n % d of values that are the same in all lanes; the usual d = 1 costs nothing.
STRATA_DEVICE uint32_t quotient(uint32_t n, uint32_t d) { return d == 1 ? n : n / d; }
STRATA_DEVICE uint32_t remainder(uint32_t n, uint32_t d) { return d == 1 ? 0 : n % d; }

/// Byte offset of the mask row of a query row from the start of the mask.
STRATA_DEVICE uint32_t mask_offset(const flash_attn_args & a, uint32_t batch, query_row r) {
    return static_cast<uint32_t>(r.query * a.mask_nb[0] + remainder(r.head, a.mask_heads) * a.mask_nb[1] +
                                 remainder(batch, a.mask_batches) * a.mask_nb[2]);
}

/// Factor that turns the sum of a row into its result, the sink of its head (if any) taken into account.
STRATA_DEVICE float final_factor(const void * sinks, uint32_t head, float maximum, float sum) {
    if (sinks == nullptr) {
        return sum == 0.0f ? 0.0f : divide(1.0f, sum);
    }
    const float sink = load<float>(sinks, head * 4) * log2_e;
    const float m = max(maximum, sink);
    const float factor = exp2_fast(maximum - m);
    return divide(factor, fma(sum, factor, exp2_fast(sink - m)));
}

}  // namespace strata::attention
