// Arguments of the kernels that choose which keys a sparse attention sees. Strides in bytes.
#pragma once

#include "strata/args/division.h"

namespace strata {

/// dst[stream][block][i] = (sum over the members m of src[stream][cells[stream][block * members + m]][i]) * scale + bias.
struct block_mean_args {
    float * dst;               ///< f32, contiguous
    const void * src;          ///< rows of f16 or f32, contiguous each
    const void * cells;        ///< i32, contiguous for a stream
    uint64_t src_stride[2];    ///< between rows and streams
    uint64_t cells_stride;     ///< between streams
    uint32_t members;
    uint32_t count;            ///< elements of dst
    fast_divisor width, blocks;
    float scale, bias;
};

/// dst[i2][i1][i] = sum over slices s of f(src[s][i2][i1][i]), then times scale plus bias, or plus the element of `other`; f is relu or nothing.
struct slice_sum_args {
    float * dst;               ///< f32, contiguous
    const void * src;          ///< f32, contiguous along i
    const void * other;        ///< f32, contiguous along i, or null
    uint64_t src_stride[3];    ///< between i1, i2 and slices
    uint64_t other_stride[2];  ///< between i1 and i2
    uint32_t slices;
    uint32_t count;            ///< elements of dst
    fast_divisor ne0, ne1;
    uint32_t relu, scaled;
    float scale, bias;
};

/// dst[stream][token][key] = score[stream][token][cells[stream][key]] + mask[stream][token][key].
struct expand_args {
    float * dst;               ///< f32, contiguous
    const void * score;        ///< f32
    const void * cells;        ///< i32, contiguous for a stream
    const void * mask;         ///< f16 or f32, contiguous for a token
    uint64_t score_stride[3];  ///< between blocks, tokens and streams
    uint64_t cells_stride;     ///< between streams
    uint64_t mask_stride[2];   ///< between tokens and streams
    uint32_t count;            ///< elements of dst
    fast_divisor keys, tokens;
};

/// dst[row][key] = (the row's list has key ? in_list : otherwise) + mask[row][key]; a row is a token of a stream.
struct chosen_mask_args {
    void * dst;                ///< of the type of mask, contiguous
    const void * mask;         ///< f16 or f32, contiguous for a row
    const void * chosen;       ///< i32, contiguous for a row
    uint64_t mask_stride[2];   ///< between tokens and streams
    uint64_t chosen_stride[2]; ///< between tokens and streams
    uint32_t keys, listed;     ///< numbers a row of mask and of chosen
    fast_divisor tokens;
    float in_list, otherwise;  ///< numbers that the type can hold
};

constexpr uint32_t sparse_block = 256;                   ///< work-items a workgroup
constexpr uint32_t most_masked_keys = 1u << 18;          ///< of chosen_mask: a bit each, in LDS

/// LDS of chosen_mask.
constexpr uint32_t chosen_mask_lds(uint32_t keys) { return (keys + 31) / 32 * 4; }

}  // namespace strata
