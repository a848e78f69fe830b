// Arguments of the convolutions, their rearrangements (im2col), pooling and resampling. Strides are in bytes.
#pragma once

#include "strata/args/division.h"

namespace strata {

/// How a window moves over one dimension of the input: output o, window element k meets input o * stride + k * dilation - pad.
struct window {
    uint32_t size;     ///< of the input
    uint32_t extent;   ///< elements of the window
    int32_t stride, pad, dilation;
};

/// dst, contiguous, from the innermost: window elements w, h, d, channels; outputs w, h, d; images.
struct im2col_args {
    void * dst;
    const void * src;
    uint32_t count;                               ///< elements of dst, < 2^31
    fast_divisor window_size[3], channels;        ///< of dst
    fast_divisor out[3];
    window windows[3];
    uint64_t src_step[5];                         ///< w, h, d, channel, image
};

/// dst[t, c] = sum of col[c * kernel + k, i] over i * stride + k = t + pad.
struct col2im_args {
    void * dst;
    const void * src;
    uint32_t count;                               ///< elements of dst, < 2^31
    fast_divisor out;                             ///< positions t
    fast_divisor stride;
    uint32_t kernel, columns, column_size, pad;
};

/// A work-item an output pixel and conv_channels output channels. dst is contiguous, from the innermost: w, h, d, channels, images.
struct conv_args {
    float * dst;
    const float * src;
    const void * kernel;
    uint32_t pixels;                              ///< outputs of a channel in all images, < 2^31
    uint32_t channels_in, channels_out;
    fast_divisor out[3];
    window windows[3];
    uint64_t src_step[5], kernel_step[5];         ///< w, h, d, input channel, image or output channel
};

constexpr uint32_t conv_channels = 8;

/// Each channel with a window of its own. A work-item an output, in the order of the loops.
struct conv_dw_args {
    float * dst;
    const float * src;
    const void * kernel;
    uint32_t count;                               ///< outputs, < 2^31
    struct dim {                                  ///< a loop over the outputs, innermost first
        fast_divisor size;
        uint32_t dst_step, src_step, kernel_step; ///< src_step of w and h is 0
        int32_t x, y;                             ///< what a step moves the window by
    } dims[4];
    window windows[2];
    uint64_t src_step[2], kernel_step[2];         ///< w, h
};

/// Transposed convolution: dst[o] = sum of src[i] * kernel[k] over i * stride + k = o, in two dimensions. dst is contiguous, from the
/// innermost: w, h, channels, images.
struct conv_transpose_args {
    float * dst;
    const float * src;
    const void * kernel;
    uint32_t count;                               ///< outputs, < 2^31
    uint32_t channels_in;
    fast_divisor out[2], channels_out;
    fast_divisor stride;
    uint32_t size[2], extent[2];                  ///< of src and of the kernel
    uint64_t src_step[4], kernel_step[4];         ///< w, h, input channel, image or output channel
};

enum pool_kind : uint32_t {
    pool_max = 0,
    pool_average = 1,         ///< of the whole window, where it is outside of the input with zeros
    pool_average_inside = 2,  ///< of the elements inside of the input
};

/// dst is contiguous, from the innermost: w, h, channels, images.
struct pool_args {
    float * dst;
    const void * src;
    uint32_t count;                               ///< outputs, < 2^31
    uint32_t kind;                                ///< pool_kind
    fast_divisor out[2], channels;
    window windows[2];
    uint64_t src_step[4];                         ///< w, h, channel, image
};

enum upscale_kind : uint32_t {
    upscale_nearest = 0,
    upscale_bilinear = 1,
    upscale_bicubic = 2,
    upscale_antialias = 3,  ///< a triangle as wide as a pixel of the coarser grid
};

/// w and h are interpolated, the other two dimensions take the nearest. dst is contiguous.
struct upscale_args {
    float * dst;
    const float * src;
    uint32_t count;                               ///< outputs, < 2^31
    uint32_t kind;                                ///< upscale_kind
    fast_divisor out[3];
    uint32_t size[4];                             ///< of src
    float scale[4];                               ///< outputs an input
    float offset;                                 ///< of a pixel's centre
    uint64_t src_step[4];
};

constexpr uint32_t conv_block = 256;  ///< work-items a workgroup of all of these

}  // namespace strata
