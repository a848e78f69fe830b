// Backward passes, in f32: SILU_BACK, RMS_NORM_BACK, SOFT_MAX_BACK, REPEAT_BACK, GET_ROWS_BACK.
#include "../elementwise/pointwise.h"
#include "strata/args/backward.h"
#include "strata/reduce.h"

namespace strata {

STRATA_DEVICE float silu_back(const pointwise_args &, float gradient, float x) {
    const float s = sigmoid(x);
    return gradient * s * (1.0f + x * (1.0f - s));
}

struct back_rows {
    char * dst;
    const char * gradient;
    const char * forward;
};

STRATA_DEVICE back_rows find_rows(const row_back_args & a, uint32_t row) {
    const uint32_t rest = quotient(row, a.ne1), i1 = remainder(row, rest, a.ne1);
    const uint32_t i3 = quotient(rest, a.ne2), i2 = remainder(rest, i3, a.ne2);
    const auto at = [&](const uint64_t (&stride)[3]) { return i1 * stride[0] + i2 * stride[1] + i3 * stride[2]; };
    return {static_cast<char *>(a.dst) + at(a.dst_stride), static_cast<const char *>(a.gradient) + at(a.gradient_stride),
            static_cast<const char *>(a.forward) + at(a.forward_stride)};
}

// A wave a row: calls each(element, gradient, forward value), elements in steps of a wave.
template <class Each>
STRATA_DEVICE void for_row(const row_back_args & a, const back_rows & at, Each each) {
    for (uint32_t e = lane_id(); e < a.row; e += wave_size) {
        each(e, load<float>(at.gradient, e * sizeof(float)), load<float>(at.forward, e * sizeof(float)));
    }
}

STRATA_DEVICE uint32_t wave_row() { return uniform(block_x() * (backward_block / wave_size) + thread_x() / wave_size); }

template <class S>
STRATA_DEVICE void get_rows_back(const get_rows_back_args & a) {
    const uint32_t i = block_x() * backward_block + thread_x();
    if (i >= a.count) {
        return;
    }
    const uint32_t row = quotient(i, a.row), e = remainder(i, row, a.row);
    float sum = 0.0f;
    for (uint32_t r = 0; r < a.rows; r++) {
        if (static_cast<uint32_t>(a.index[r]) == row) {
            const char * const src = static_cast<const char *>(a.src) + r * a.src_stride;
            sum += S::to_float(load<typename S::storage>(src, e * sizeof(typename S::storage)));
        }
    }
    a.dst[i] = sum;
}

}  // namespace strata

using namespace strata;

STRATA_POINTWISE(silu_back_f32, f32, f32, f32, silu_back)

STRATA_KERNEL(backward_block) void rms_norm_back(row_back_args a) {
    const uint32_t row = wave_row();
    if (row >= a.rows) {
        return;
    }
    const back_rows at = find_rows(a, row);
    float squares = 0.0f, products = 0.0f;
    for_row(a, at, [&](uint32_t, float gradient, float x) {
        squares = fma(x, x, squares);
        products = fma(x, gradient, products);
    });
    squares = wave_sum(squares);
    products = wave_sum(products);
    const float size = static_cast<float>(a.row);
    const float scale = 1.0f / sqrt(squares / size + a.param), along = -products / (squares + a.param * size);
    for_row(a, at, [&](uint32_t e, float gradient, float x) { store(at.dst, e * sizeof(float), fma(x, along, gradient) * scale); });
}

STRATA_KERNEL(backward_block) void soft_max_back(row_back_args a) {
    const uint32_t row = wave_row();
    if (row >= a.rows) {
        return;
    }
    const back_rows at = find_rows(a, row);
    float products = 0.0f;
    for_row(a, at, [&](uint32_t, float gradient, float y) { products = fma(y, gradient, products); });
    products = wave_sum(products);
    for_row(a, at, [&](uint32_t e, float gradient, float y) { store(at.dst, e * sizeof(float), (gradient - products) * y * a.param); });
}

STRATA_KERNEL(backward_block) void repeat_back(repeat_back_args a) {
    const uint32_t i = block_x() * backward_block + thread_x();
    if (i >= a.count) {
        return;
    }
    uint32_t rest = i;
    const char * src = static_cast<const char *>(a.src);
#pragma unroll
    for (uint32_t d = 0; d < 3; d++) {
        const uint32_t next = quotient(rest, a.size[d]);
        src += remainder(rest, next, a.size[d]) * a.step[d];
        rest = next;
    }
    src += rest * a.step[3];
    float sum = 0.0f;
    for (uint32_t r3 = 0; r3 < a.repeats[3]; r3++) {
        for (uint32_t r2 = 0; r2 < a.repeats[2]; r2++) {
            for (uint32_t r1 = 0; r1 < a.repeats[1]; r1++) {
                const char * at = src + (r1 * a.repeat_step[1] + r2 * a.repeat_step[2] + r3 * a.repeat_step[3]);
                for (uint32_t r0 = 0; r0 < a.repeats[0]; r0++) {
                    sum += load<float>(at + r0 * a.repeat_step[0]);
                }
            }
        }
    }
    a.dst[i] = sum;
}

STRATA_KERNEL(backward_block) void get_rows_back_f32(get_rows_back_args a) { get_rows_back<f32>(a); }
STRATA_KERNEL(backward_block) void get_rows_back_f16(get_rows_back_args a) { get_rows_back<f16>(a); }
