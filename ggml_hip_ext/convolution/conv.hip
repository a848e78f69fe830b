// Convolutions in f32 with weights of f32 or f16: CONV_2D and CONV_3D, CONV_2D_DW (each channel by itself), CONV_TRANSPOSE_1D and _2D.
#include "strata/args/convolution.h"
#include "strata/element.h"
#include "strata/math.h"

namespace strata {

template <class W>
STRATA_DEVICE float weight(const char * at) {
    return W::to_float(load<typename W::storage>(at));
}

// The weights are the same in all lanes of a wave, and each is used for as many pixels as there are lanes.
template <class W>
STRATA_DEVICE void conv(const conv_args & a) {
    const uint32_t pixel = block_x() * conv_block + thread_x();
    const bool active = pixel < a.pixels;
    uint32_t rest = active ? pixel : 0, o[3];
#pragma unroll
    for (uint32_t d = 0; d < 3; d++) {
        const uint32_t next = quotient(rest, a.out[d]);
        o[d] = remainder(rest, next, a.out[d]) * static_cast<uint32_t>(a.windows[d].stride) - static_cast<uint32_t>(a.windows[d].pad);
        rest = next;
    }
    const uint32_t image = rest, first = block_y() * conv_channels;
    const char * const src = reinterpret_cast<const char *>(a.src) + image * a.src_step[4];
    const char * weights[conv_channels];
#pragma unroll
    for (uint32_t c = 0; c < conv_channels; c++) {
        weights[c] = static_cast<const char *>(a.kernel) + smaller(first + c, a.channels_out - 1) * a.kernel_step[4];
    }
    float sums[conv_channels] = {};
    for (uint32_t kz = 0; kz < a.windows[2].extent; kz++) {
        const uint32_t z = o[2] + kz * static_cast<uint32_t>(a.windows[2].dilation);
        for (uint32_t ky = 0; ky < a.windows[1].extent; ky++) {
            const uint32_t y = o[1] + ky * static_cast<uint32_t>(a.windows[1].dilation);
            for (uint32_t kx = 0; kx < a.windows[0].extent; kx++) {
                const uint32_t x = o[0] + kx * static_cast<uint32_t>(a.windows[0].dilation);
                const bool inside = active && x < a.windows[0].size && y < a.windows[1].size && z < a.windows[2].size;
                if (!any_lane(inside)) {
                    continue;
                }
                // Lanes outside read the first pixel and take a zero instead.
                const char * in = src + (inside ? x * a.src_step[0] + y * a.src_step[1] + z * a.src_step[2] : 0);
                uint64_t at = kx * a.kernel_step[0] + ky * a.kernel_step[1] + kz * a.kernel_step[2];
                for (uint32_t c = 0; c < a.channels_in; c++) {
                    const float loaded = load<float>(in);
                    const float value = inside ? loaded : 0.0f;
#pragma unroll
                    for (uint32_t i = 0; i < conv_channels; i++) {
                        sums[i] = fma(value, weight<W>(weights[i] + at), sums[i]);
                    }
                    in += a.src_step[3];
                    at += a.kernel_step[3];
                }
            }
        }
    }
    if (!active) {
        return;
    }
    const uint32_t area = a.out[0].divisor * a.out[1].divisor * a.out[2].divisor;
    float * const dst = a.dst + (static_cast<uint64_t>(image) * a.channels_out + first) * area + (pixel - image * area);
#pragma unroll
    for (uint32_t c = 0; c < conv_channels; c++) {
        if (first + c < a.channels_out) {
            dst[static_cast<uint64_t>(c) * area] = sums[c];
        }
    }
}

template <class W>
STRATA_DEVICE void conv_dw(const conv_dw_args & a) {
    uint32_t rest = block_x() * conv_block + thread_x();
    if (rest >= a.count) {
        return;
    }
    uint32_t x0 = -static_cast<uint32_t>(a.windows[0].pad), y0 = -static_cast<uint32_t>(a.windows[1].pad);
    uint64_t dst_offset = 0, src_offset = 0, kernel_offset = 0;
#pragma unroll
    for (uint32_t d = 0; d < 4; d++) {
        const conv_dw_args::dim & dim = a.dims[d];
        const uint32_t next = quotient(rest, dim.size);
        const uint32_t index = remainder(rest, next, dim.size);
        rest = next;
        dst_offset += static_cast<uint64_t>(index) * dim.dst_step;
        src_offset += static_cast<uint64_t>(index) * dim.src_step;
        kernel_offset += static_cast<uint64_t>(index) * dim.kernel_step;
        x0 += index * static_cast<uint32_t>(dim.x);
        y0 += index * static_cast<uint32_t>(dim.y);
    }
    const char * const src = reinterpret_cast<const char *>(a.src) + src_offset;
    const char * const kernel = static_cast<const char *>(a.kernel) + kernel_offset;
    float sum = 0.0f;
    for (uint32_t ky = 0; ky < a.windows[1].extent; ky++) {
        const uint32_t y = y0 + ky * static_cast<uint32_t>(a.windows[1].dilation);
        for (uint32_t kx = 0; kx < a.windows[0].extent; kx++) {
            const uint32_t x = x0 + kx * static_cast<uint32_t>(a.windows[0].dilation);
            if (x < a.windows[0].size && y < a.windows[1].size) {
                const float value = load<float>(src + (x * a.src_step[0] + y * a.src_step[1]));
                sum = fma(value, weight<W>(kernel + (kx * a.kernel_step[0] + ky * a.kernel_step[1])), sum);
            }
        }
    }
    *reinterpret_cast<float *>(reinterpret_cast<char *>(a.dst) + dst_offset) = sum;
}

// The inputs i of one dimension that reach output o with a kernel of `extent`: first .. last, none if last < first.
struct reach {
    uint32_t first, last;
};

STRATA_DEVICE reach find_reach(uint32_t o, uint32_t extent, uint32_t size, const fast_divisor & stride) {
    const uint32_t last = quotient(o, stride);
    return {o < extent ? 0 : quotient(o - extent, stride) + 1, smaller(last, size - 1)};
}

template <class W>
STRATA_DEVICE void conv_transpose(const conv_transpose_args & a) {
    const uint32_t i = block_x() * conv_block + thread_x();
    if (i >= a.count) {
        return;
    }
    uint32_t next = quotient(i, a.out[0]);
    const uint32_t ox = remainder(i, next, a.out[0]);
    uint32_t rest = next;
    next = quotient(rest, a.out[1]);
    const uint32_t oy = remainder(rest, next, a.out[1]);
    const uint32_t image = quotient(next, a.channels_out), channel = remainder(next, image, a.channels_out);
    const char * const src = reinterpret_cast<const char *>(a.src) + image * a.src_step[3];
    const char * const kernel = static_cast<const char *>(a.kernel) + channel * a.kernel_step[3];
    const reach columns = find_reach(ox, a.extent[0], a.size[0], a.stride), lines = find_reach(oy, a.extent[1], a.size[1], a.stride);
    float sum = 0.0f;
    for (uint32_t y = lines.first; y <= lines.last; y++) {
        const uint32_t ky = oy - y * a.stride.divisor;
        for (uint32_t x = columns.first; x <= columns.last; x++) {
            const uint32_t kx = ox - x * a.stride.divisor;
            const char * in = src + (x * a.src_step[0] + y * a.src_step[1]);
            const char * w = kernel + (kx * a.kernel_step[0] + ky * a.kernel_step[1]);
            for (uint32_t c = 0; c < a.channels_in; c++) {
                sum = fma(load<float>(in), weight<W>(w), sum);
                in += a.src_step[2];
                w += a.kernel_step[2];
            }
        }
    }
    a.dst[i] = sum;
}

}  // namespace strata

using namespace strata;

STRATA_KERNEL(conv_block) void conv_f32(conv_args a) { conv<f32>(a); }
STRATA_KERNEL(conv_block) void conv_f16(conv_args a) { conv<f16>(a); }
STRATA_KERNEL(conv_block) void conv_dw_f32(conv_dw_args a) { conv_dw<f32>(a); }
STRATA_KERNEL(conv_block) void conv_dw_f16(conv_dw_args a) { conv_dw<f16>(a); }
STRATA_KERNEL(conv_block) void conv_transpose_f32(conv_transpose_args a) { conv_transpose<f32>(a); }
STRATA_KERNEL(conv_block) void conv_transpose_f16(conv_transpose_args a) { conv_transpose<f16>(a); }
