// Arguments of the causal convolution along the tokens.
#pragma once

#ifdef __AMDGCN__
#include "strata/device.h"
#else
#include <cstdint>
#endif

namespace strata {

/// dst[token][channel] = sum over k < taps of src[channel][token + k] * weights[channel][k], for each sequence. Strides in bytes.
struct ssm_conv_args {
    void * dst;                ///< f32 [sequences][tokens][channels]
    const void * src;          ///< f32 rows of tokens + taps - 1
    const void * weights;      ///< f32 rows of taps
    uint64_t src_stride, weight_stride;            ///< between channels
    uint64_t src_sequence_stride;
    uint32_t channels, tokens, taps;
    const void * bias;         ///< f32, one a channel, added to each result; null: none
    uint32_t silu;             ///< 1: the result is silu() of that
};

constexpr uint32_t ssm_conv_block = 256;    ///< work-items a workgroup
constexpr uint32_t ssm_conv_channels = 32;  ///< of a workgroup of the tiled kernels
constexpr uint32_t ssm_conv_tokens = 64;    ///< of a workgroup of the tiled kernels
constexpr uint32_t ssm_conv_taps = 65;      ///< most of the tiled kernels

}  // namespace strata
