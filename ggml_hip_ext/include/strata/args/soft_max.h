// Arguments of the softmax kernels (ggml_hip_ext/attention/soft_max.hip), shared by host and device.
#pragma once

#ifdef __AMDGCN__
#include "strata/device.h"
#else
#include <cstdint>
#endif

namespace strata {

enum class soft_max_mask : uint32_t { none, f16, f32 };

/// dst = softmax(scale src + slope mask) over rows. Strides are in bytes; nb[0..2] are ggml's nb[1..3].
struct soft_max_args {
    const void * src;    ///< f32 [width, n_rows, n_heads, n_batch]
    const void * mask;   ///< f16 or f32 [width, >= n_rows, mask_heads, mask_batches]
    const void * sinks;  ///< f32 [n_heads] or null
    void * dst;          ///< f32, shape of src; may be src
    uint64_t src_nb[3], dst_nb[3], mask_nb[3];
    soft_max_mask mask_kind;
    uint32_t width, n_rows;
    uint32_t mask_heads, mask_batches;
    float scale;
    float max_bias;        ///< ALiBi, or 0
    uint32_t alibi_heads;  ///< greatest power of two <= n_heads
};

}  // namespace strata
