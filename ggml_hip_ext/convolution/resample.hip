// POOL_1D, POOL_2D and UPSCALE: a work-item an output, computed in f32.
#include "strata/args/convolution.h"
#include "strata/element.h"
#include "strata/math.h"

namespace strata {

template <class S>
STRATA_DEVICE void pool(const pool_args & a) {
    const uint32_t i = block_x() * conv_block + thread_x();
    if (i >= a.count) {
        return;
    }
    uint32_t rest = quotient(i, a.out[0]);
    const uint32_t x0 = remainder(i, rest, a.out[0]) * static_cast<uint32_t>(a.windows[0].stride) - static_cast<uint32_t>(a.windows[0].pad);
    uint32_t next = quotient(rest, a.out[1]);
    const uint32_t y0 = remainder(rest, next, a.out[1]) * static_cast<uint32_t>(a.windows[1].stride) - static_cast<uint32_t>(a.windows[1].pad);
    const uint32_t image = quotient(next, a.channels), channel = remainder(next, image, a.channels);
    const char * const src = static_cast<const char *>(a.src) + (channel * a.src_step[2] + image * a.src_step[3]);
    float result = a.kind == pool_max ? -0x1.fffffep+127f : 0.0f;
    uint32_t met = 0;
    for (uint32_t ky = 0; ky < a.windows[1].extent; ky++) {
        for (uint32_t kx = 0; kx < a.windows[0].extent; kx++) {
            const uint32_t x = x0 + kx, y = y0 + ky;
            if (x < a.windows[0].size && y < a.windows[1].size) {
                const float value = S::to_float(load<typename S::storage>(src + (x * a.src_step[0] + y * a.src_step[1])));
                if (a.kind == pool_max) {
                    result = value < result ? result : value;
                } else {
                    result += value;
                }
                met++;
            }
        }
    }
    if (a.kind == pool_average) {
        result = result / static_cast<float>(a.windows[0].extent * a.windows[1].extent);
    } else if (a.kind == pool_average_inside && met > 0) {
        result = result / static_cast<float>(met);
    }
    a.dst[i] = result;
}

// The nearest index at or before a place; places outside take the first or last.
STRATA_DEVICE uint32_t clamp_index(int32_t i, uint32_t size) {
    return i < 0 ? 0 : smaller(static_cast<uint32_t>(i), size - 1);
}

STRATA_DEVICE uint32_t nearest(uint32_t o, float scale, uint32_t size) {
    return clamp_index(static_cast<int32_t>(static_cast<float>(o) / scale), size);
}

// The centre of output o on the input's grid.
STRATA_DEVICE float place(const upscale_args & a, uint32_t o, uint32_t d) { return (static_cast<float>(o) + a.offset) / a.scale[d]; }

STRATA_DEVICE float pixel(const upscale_args & a, const char * plane, uint32_t x, uint32_t y) {
    return load<float>(plane + (x * a.src_step[0] + y * a.src_step[1]));
}

STRATA_DEVICE float bilinear(const upscale_args & a, const char * plane, uint32_t ox, uint32_t oy) {
    const float x = place(a, ox, 0) - a.offset, y = place(a, oy, 1) - a.offset;
    const int32_t left = static_cast<int32_t>(floor(x)), top = static_cast<int32_t>(floor(y));
    const uint32_t x0 = clamp_index(left, a.size[0]), x1 = clamp_index(left + 1, a.size[0]);
    const uint32_t y0 = clamp_index(top, a.size[1]), y1 = clamp_index(top + 1, a.size[1]);
    const float dx = max(0.0f, min(x - static_cast<float>(x0), 1.0f)), dy = max(0.0f, min(y - static_cast<float>(y0), 1.0f));
    return pixel(a, plane, x0, y0) * (1.0f - dx) * (1.0f - dy) + pixel(a, plane, x1, y0) * dx * (1.0f - dy) +
           pixel(a, plane, x0, y1) * (1.0f - dx) * dy + pixel(a, plane, x1, y1) * dx * dy;
}

// Convolution with Keys' kernel, a = -3/4: weights of the four neighbours at -1, 0, 1, 2.
STRATA_DEVICE void cubic_weights(float x, float (&weights)[4]) {
    constexpr float a = -0.75f;
    const float rest = 1.0f - x;
    const auto near = [](float t) { return ((a + 2.0f) * t - (a + 3.0f)) * t * t + 1.0f; };
    const auto far = [](float t) { return ((a * t - 5.0f * a) * t + 8.0f * a) * t - 4.0f * a; };
    weights[0] = far(x + 1.0f);
    weights[1] = near(x);
    weights[2] = near(rest);
    weights[3] = far(rest + 1.0f);
}

STRATA_DEVICE float bicubic(const upscale_args & a, const char * plane, uint32_t ox, uint32_t oy) {
    const float x = place(a, ox, 0) - a.offset, y = place(a, oy, 1) - a.offset;
    const float left = floor(x), top = floor(y);
    float across[4], down[4];
    cubic_weights(x - left, across);
    cubic_weights(y - top, down);
    float sum = 0.0f;
#pragma unroll
    for (int32_t j = 0; j < 4; j++) {
        const uint32_t line = clamp_index(static_cast<int32_t>(top) + j - 1, a.size[1]);
        float row = 0.0f;
#pragma unroll
        for (int32_t i = 0; i < 4; i++) {
            row = row + pixel(a, plane, clamp_index(static_cast<int32_t>(left) + i - 1, a.size[0]), line) * across[i];
        }
        sum = sum + row * down[j];
    }
    return sum;
}

// The inputs that a triangle around a place meets, and its weights.
struct triangle {
    float centre, scale;
    uint32_t begin, end;
};

STRATA_DEVICE triangle find_triangle(const upscale_args & a, uint32_t o, uint32_t d) {
    const float centre = place(a, o, d), support = max(1.0f, 1.0f / a.scale[d]);
    const int32_t begin = static_cast<int32_t>(centre - support + a.offset), end = static_cast<int32_t>(centre + support + a.offset);
    return {centre, 1.0f / support, begin < 0 ? 0 : static_cast<uint32_t>(begin), smaller(static_cast<uint32_t>(end), a.size[d])};
}

STRATA_DEVICE float triangle_weight(const upscale_args & a, const triangle & t, uint32_t i) {
    return max(1.0f - abs((static_cast<float>(i) - t.centre + a.offset) * t.scale), 0.0f);
}

STRATA_DEVICE float antialias(const upscale_args & a, const char * plane, uint32_t ox, uint32_t oy) {
    const triangle across = find_triangle(a, ox, 0), down = find_triangle(a, oy, 1);
    float sum = 0.0f, total = 0.0f;
    for (uint32_t y = down.begin; y < down.end; y++) {
        const float line_weight = triangle_weight(a, down, y);
        for (uint32_t x = across.begin; x < across.end; x++) {
            const float weight = triangle_weight(a, across, x) * line_weight;
            if (weight > 0.0f) {
                sum = sum + pixel(a, plane, x, y) * weight;
                total = total + weight;
            }
        }
    }
    return total > 0.0f ? sum / total : sum;
}

}  // namespace strata

using namespace strata;

STRATA_KERNEL(conv_block) void pool_f32(pool_args a) { pool<f32>(a); }
STRATA_KERNEL(conv_block) void pool_f16(pool_args a) { pool<f16>(a); }

STRATA_KERNEL(conv_block) void upscale(upscale_args a) {
    const uint32_t i = block_x() * conv_block + thread_x();
    if (i >= a.count) {
        return;
    }
    uint32_t o[4];
    uint32_t rest = i;
#pragma unroll
    for (uint32_t d = 0; d < 3; d++) {
        const uint32_t next = quotient(rest, a.out[d]);
        o[d] = remainder(rest, next, a.out[d]);
        rest = next;
    }
    o[3] = rest;
    const char * const plane = reinterpret_cast<const char *>(a.src) +
                               (nearest(o[2], a.scale[2], a.size[2]) * a.src_step[2] + nearest(o[3], a.scale[3], a.size[3]) * a.src_step[3]);
    switch (a.kind) {
        case upscale_nearest: a.dst[i] = pixel(a, plane, nearest(o[0], a.scale[0], a.size[0]), nearest(o[1], a.scale[1], a.size[1])); break;
        case upscale_bilinear: a.dst[i] = bilinear(a, plane, o[0], o[1]); break;
        case upscale_bicubic: a.dst[i] = bicubic(a, plane, o[0], o[1]); break;
        default: a.dst[i] = antialias(a, plane, o[0], o[1]); break;
    }
}
