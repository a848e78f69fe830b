// Arguments of the router of a mixture of experts: probabilities, the experts with the greatest of them, and their weights.
#pragma once

#ifdef __AMDGCN__
#include "strata/device.h"
#else
#include <cstdint>
#endif

namespace strata {

enum class router_kind : uint32_t {
    soft_max,         ///< weights are softmax(logits) of the chosen experts
    soft_max_norm,    ///< the same over their sum
    soft_max_chosen,  ///< weights are the softmax over the chosen experts' logits
};

/// Rows of f32, a token each; strides in bytes.
struct router_args {
    const void * logits;
    int32_t * ids;              ///< the best `used` experts of each token, in descending order
    float * weights;            ///< `used` a token, contiguous
    uint64_t logits_stride, ids_stride;
    uint32_t experts, used, tokens;
    router_kind kind;
    float scale;                ///< of the logits
    float lowest_sum, highest_sum;  ///< soft_max_norm: bounds of the sum
};

constexpr uint32_t router_block = 128;     ///< work-items a workgroup, a wave a token
constexpr uint32_t router_experts = 1024;  ///< most experts
constexpr uint32_t router_used = 32;       ///< most chosen experts

}  // namespace strata
