// IM2COL and IM2COL_3D: the inputs that each output of a convolution meets, as rows of a matrix. COL2IM_1D: overlapping columns added up.
#include "strata/args/convolution.h"
#include "strata/element.h"

namespace strata {

// A work-item an element of the result.
template <class S, class D>
STRATA_DEVICE void im2col(const im2col_args & a) {
    const uint32_t i = block_x() * conv_block + thread_x();
    if (i >= a.count) {
        return;
    }
    uint32_t rest = i, k[3], o[3];
#pragma unroll
    for (uint32_t d = 0; d < 3; d++) {
        const uint32_t next = quotient(rest, a.window_size[d]);
        k[d] = remainder(rest, next, a.window_size[d]);
        rest = next;
    }
    uint32_t next = quotient(rest, a.channels);
    const uint32_t channel = remainder(rest, next, a.channels);
    rest = next;
#pragma unroll
    for (uint32_t d = 0; d < 3; d++) {
        next = quotient(rest, a.out[d]);
        o[d] = remainder(rest, next, a.out[d]);
        rest = next;
    }
    uint64_t offset = channel * a.src_step[3] + rest * a.src_step[4];
    bool inside = true;
#pragma unroll
    for (uint32_t d = 0; d < 3; d++) {
        const window & w = a.windows[d];
        const uint32_t at = o[d] * static_cast<uint32_t>(w.stride) + k[d] * static_cast<uint32_t>(w.dilation) - static_cast<uint32_t>(w.pad);
        inside = inside && at < w.size;
        offset += at * a.src_step[d];
    }
    float value = 0.0f;
    if (inside) {
        value = S::to_float(load<typename S::storage>(static_cast<const char *>(a.src) + offset));
    }
    static_cast<typename D::storage *>(a.dst)[i] = D::from_float(value);
}

template <class T>
STRATA_DEVICE void col2im(const col2im_args & a) {
    using storage = typename T::storage;
    const uint32_t i = block_x() * conv_block + thread_x();
    if (i >= a.count) {
        return;
    }
    const uint32_t channel = quotient(i, a.out);
    const uint32_t t = remainder(i, channel, a.out) + a.pad;
    // Columns that reach t begin at most kernel - 1 before it.
    const uint32_t last = smaller(quotient(t, a.stride), a.columns - 1);
    const uint32_t first = t < a.kernel ? 0 : quotient(t - a.kernel, a.stride) + 1;
    float sum = 0.0f;
    for (uint32_t column = first; column <= last; column++) {
        const uint32_t row = channel * a.kernel + (t - column * a.stride.divisor);
        sum += T::to_float(load<storage>(static_cast<const storage *>(a.src) + (static_cast<uint64_t>(column) * a.column_size + row)));
    }
    static_cast<storage *>(a.dst)[i] = T::from_float(sum);
}

}  // namespace strata

using namespace strata;

STRATA_KERNEL(conv_block) void im2col_f32_f32(im2col_args a) { im2col<f32, f32>(a); }
STRATA_KERNEL(conv_block) void im2col_f32_f16(im2col_args a) { im2col<f32, f16>(a); }
STRATA_KERNEL(conv_block) void im2col_f16_f16(im2col_args a) { im2col<f16, f16>(a); }

STRATA_KERNEL(conv_block) void col2im_f32(col2im_args a) { col2im<f32>(a); }
STRATA_KERNEL(conv_block) void col2im_f16(col2im_args a) { col2im<f16>(a); }
STRATA_KERNEL(conv_block) void col2im_bf16(col2im_args a) { col2im<bf16>(a); }
