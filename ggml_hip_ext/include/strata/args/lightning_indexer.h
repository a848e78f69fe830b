// Arguments of the lightning indexer (ggml_hip_ext/attention/lightning_indexer.hip), shared by host and device.
#pragma once

#include "strata/args/kv_format.h"

namespace strata {

/// dst[stream][token][key] = sum over heads of weights[token][head] * max(q[token][head] . k[key], 0) + mask[token][key]. Strides in bytes.
struct lightning_indexer_args {
    const void * q;         ///< f32 [head_size, n_head, n_tokens, n_streams]
    const void * k;         ///< [head_size, 1, n_kv, n_streams] of k_format
    const void * weights;   ///< f32 [n_head, n_tokens, 1, n_streams]
    const void * mask;      ///< f16 [n_kv, n_tokens, 1, mask_streams]
    void * dst;             ///< f32 [n_kv, n_tokens, 1, n_streams], contiguous
    uint64_t q_head, q_token, q_stream;
    uint64_t k_key, k_stream;
    uint64_t weights_token, weights_stream;
    uint64_t mask_token, mask_stream;
    kv_format k_format;
    uint32_t head_size, n_head, n_tokens, n_kv, mask_streams;
};

}  // namespace strata
