// Arguments of the attention kernels (ggml_hip_ext/attention/flash_attn_*.hip), shared by host and device.
#pragma once

#include "strata/args/kv_format.h"

namespace strata {

/// Query rows of one key/value head are packed: row r of a head group is query r / heads_per_kv, head r % heads_per_kv of
/// the group. Strides are in bytes; nb*[0..2] are ggml's nb[1..3]. Scores are kept in the base-2 domain: q_scale contains log2(e).
struct flash_attn_args {
    const void * q;       ///< f32 [k_size, n_q, n_head, n_batch]
    const void * k;       ///< [k_size, n_kv, n_head_kv, n_batch] of k_format
    const void * v;       ///< [v_size, n_kv, n_head_kv, n_batch] of v_format
    const void * mask;    ///< f16 [n_kv, >= n_q, mask_heads, mask_batches] or null
    const void * sinks;   ///< f32 [n_head] or null
    void * dst;           ///< f32 [v_size, n_head, n_q, n_batch], contiguous
    float * partial;      ///< n_splits > 1: unnormalised sums [n_splits][dst rows][v_size]
    float * partial_max;  ///< n_splits > 1: running maximum and sum of weights [n_splits][dst rows][2]
    uint64_t q_nb[3], k_nb[3], v_nb[3], mask_nb[3];
    kv_format k_format, v_format;
    uint32_t k_size, v_size;   ///< head sizes
    uint32_t n_q, n_head, n_head_kv, heads_per_kv, n_batch;
    uint32_t n_kv;
    uint32_t mask_heads, mask_batches;
    uint32_t n_splits, keys_per_split;
    float q_scale;        ///< scale * log2(e), or 2 * scale * log2(e) / softcap
    float softcap;        ///< softcap * log2(e), or 0
    float max_bias;       ///< ALiBi, or 0
    uint32_t alibi_heads; ///< greatest power of two <= n_head
};

constexpr uint32_t combine_waves = 8;   ///< of a workgroup that combines

/// Combines the partial results of a split: `row_waves` (a power of two up to combine_waves) waves a row of dst and 128 channels.
struct flash_attn_combine_args {
    const float * partial;
    const float * partial_max;
    const void * sinks;
    void * dst;
    uint32_t n_rows, n_head, head_size, n_splits;
    uint32_t row_waves;
};

}  // namespace strata
