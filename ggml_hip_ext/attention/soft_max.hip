// Softmax of rows, with mask, ALiBi and sinks. Rows of up to 1024 values belong to a wave, of up to 4096 to a workgroup, and stay in
// registers; longer ones are read twice, maximum and sum being kept online in between. A thread handles four neighbouring values at a time.
// A row that is -inf throughout gives NaN, as the sum of its weights is 0.
#include "soft_max_weight.h"
#include "strata/args/soft_max.h"
#include "strata/device.h"
#include "strata/math.h"
#include "strata/memory.h"
#include "strata/packed_half.h"
#include "strata/read_together.h"
#include "strata/reduce.h"

namespace strata::attention {

/// One row: where it is, and what it is multiplied by.
struct soft_max_row {
    const char * src;
    const char * mask;
    char * dst;
    soft_max_mask kind;
    uint32_t width;
    float scale, slope;
};

STRATA_DEVICE soft_max_row row_of(const soft_max_args & a, uint32_t row) {
    const uint32_t head = block_y();
    const uint32_t batch = block_z();
    soft_max_row r;
    r.src = static_cast<const char *>(a.src) + row * a.src_nb[0] + head * a.src_nb[1] + batch * a.src_nb[2];
    r.dst = static_cast<char *>(a.dst) + row * a.dst_nb[0] + head * a.dst_nb[1] + batch * a.dst_nb[2];
    r.mask = nullptr;
    if (a.mask_kind != soft_max_mask::none) {
        r.mask = static_cast<const char *>(a.mask) + row * a.mask_nb[0] + head % a.mask_heads * a.mask_nb[1] + batch % a.mask_batches * a.mask_nb[2];
    }
    r.kind = a.mask_kind;
    r.width = a.width;
    r.scale = a.scale;
    r.slope = alibi_slope(a.max_bias, a.alibi_heads, head);
    return r;
}

/// Values first ... first + 3 of the row, which has them, scaled and masked.
STRATA_DEVICE float4v masked_quad(const soft_max_row & r, uint32_t first, float4v values) {
    float4v x = values * r.scale;
    if (r.kind == soft_max_mask::f16) {
        const uint2v words = load<uint2v>(r.mask, first * 2);
        for (uint32_t i = 0; i < 4; ++i) {
            x[i] = fma(static_cast<float>(half_of(words, i)), r.slope, x[i]);
        }
    } else if (r.kind == soft_max_mask::f32) {
        const float4v mask = load<float4v>(r.mask, first * 4);
        for (uint32_t i = 0; i < 4; ++i) {
            x[i] = fma(mask[i], r.slope, x[i]);
        }
    }
    return x;
}

/// Scaled and masked values 4 quad ... 4 quad + 3 of the row; -inf behind its end.
STRATA_DEVICE float4v load_quad(const soft_max_row & r, uint32_t quad) {
    const uint32_t first = quad * 4;
    float4v x;
    if (first + 4 <= r.width) {
        x = masked_quad(r, first, load<float4v>(r.src, first * 4));
    } else {
        for (uint32_t i = 0; i < 4; ++i) {
            x[i] = -infinity();
            if (first + i < r.width) {
                x[i] = load<float>(r.src, (first + i) * 4) * r.scale;
                if (r.kind == soft_max_mask::f16) {
                    x[i] = fma(static_cast<float>(load<half>(r.mask, (first + i) * 2)), r.slope, x[i]);
                } else if (r.kind == soft_max_mask::f32) {
                    x[i] = fma(load<float>(r.mask, (first + i) * 4), r.slope, x[i]);
                }
            }
        }
    }
    return x;
}

STRATA_DEVICE void store_quad(const soft_max_row & r, uint32_t quad, float4v x) {
    const uint32_t first = quad * 4;
    if (first + 4 <= r.width) {
        store(r.dst, first * 4, x);
    } else {
        for (uint32_t i = 0; i < 4; ++i) {
            if (first + i < r.width) {
                store(r.dst, (first + i) * 4, x[i]);
            }
        }
    }
}

/// Maximum (sum) over the threads that share a row: a wave, or a workgroup of `Waves`, in wave order.
template <uint32_t Waves>
STRATA_DEVICE float row_max(float value) {
    value = wave_max(value);
    if constexpr (Waves > 1) {
        __shared__ float parts[Waves];
        if (lane_id() == 0) {
            parts[thread_x() / 32] = value;
        }
        lds_barrier();
        for (uint32_t w = 0; w < Waves; ++w) {
            value = max(value, parts[w]);
        }
    }
    return value;
}

template <uint32_t Waves>
STRATA_DEVICE float row_sum(float value) {
    value = wave_sum(value);
    if constexpr (Waves > 1) {
        __shared__ float parts[Waves];
        if (lane_id() == 0) {
            parts[thread_x() / 32] = value;
        }
        lds_barrier();
        value = 0.0f;
        for (uint32_t w = 0; w < Waves; ++w) {
            value += parts[w];
        }
    }
    return value;
}

/// Rows whose values stay in registers, `Quads` times four a thread.
template <uint32_t Waves, uint32_t Quads>
STRATA_DEVICE void soft_max_short(const soft_max_args & a) {
    constexpr uint32_t threads = Waves * 32;
    const uint32_t thread = Waves > 1 ? thread_x() : lane_id();
    const uint32_t row = Waves > 1 ? block_x() : block_x() * 4 + uniform(thread_x() / 32);
    read_together(a.n_rows, a.src, a.dst, a.mask, a.sinks, a.mask_kind, a.width, a.scale, a.max_bias, a.src_nb[0], a.src_nb[1], a.src_nb[2],
                  a.dst_nb[0], a.dst_nb[1], a.dst_nb[2]);
    if (row >= a.n_rows) {
        return;
    }
    const soft_max_row r = row_of(a, row);
    float4v x[Quads];
    const bool fours = r.width % 4 == 0;
    if (fours) {   // without conditions, behind the end the last four again: all are asked for at once
        for (uint32_t i = 0; i < Quads; ++i) {
            x[i] = load<float4v>(r.src, smaller((i * threads + thread) * 4, r.width - 4) * 4);
        }
    }
    float maximum = lowest;
    for (uint32_t i = 0; i < Quads; ++i) {
        const uint32_t first = (i * threads + thread) * 4;
        if (!fours) {
            x[i] = load_quad(r, i * threads + thread);
        } else if (first < r.width) {
            x[i] = masked_quad(r, first, x[i]);
        } else {
            x[i] = float4v{-infinity(), -infinity(), -infinity(), -infinity()};
        }
        maximum = max(maximum, largest(x[i]));
    }
    maximum = row_max<Waves>(maximum);
    float sink_weight = 0.0f;
    if (a.sinks) {
        const float sink = load<float>(a.sinks, block_y() * 4);
        maximum = max(maximum, sink);
        sink_weight = weight(sink, maximum);
    }
    float sum = 0.0f;
    for (uint32_t i = 0; i < Quads; ++i) {
        for (uint32_t j = 0; j < 4; ++j) {
            x[i][j] = weight(x[i][j], maximum);
            sum += x[i][j];
        }
    }
    const float factor = divide(1.0f, row_sum<Waves>(sum) + sink_weight);
    for (uint32_t i = 0; i < Quads; ++i) {
        store_quad(r, i * threads + thread, x[i] * factor);
    }
}

/// Rows of any width.
template <uint32_t Waves>
STRATA_DEVICE void soft_max_long(const soft_max_args & a) {
    constexpr uint32_t threads = Waves * 32;
    const soft_max_row r = row_of(a, block_x());
    const uint32_t quads = (r.width + 3) / 4;
    float maximum = lowest;
    float sum = 0.0f;
    for (uint32_t quad = thread_x(); quad < quads; quad += threads) {
        const float4v x = load_quad(r, quad);
        const float moved = max(maximum, largest(x));
        if (any_lane(moved > maximum)) {
            sum *= weight(maximum, moved);
            maximum = moved;
        }
        for (uint32_t j = 0; j < 4; ++j) {
            sum += weight(x[j], maximum);
        }
    }
    float all = row_max<Waves>(maximum);
    float sink_weight = 0.0f;
    if (a.sinks) {
        const float sink = load<float>(a.sinks, block_y() * 4);
        all = max(all, sink);
        sink_weight = weight(sink, all);
    }
    const float factor = divide(1.0f, row_sum<Waves>(sum * weight(maximum, all)) + sink_weight);
    for (uint32_t quad = thread_x(); quad < quads; quad += threads) {
        float4v x = load_quad(r, quad);
        for (uint32_t j = 0; j < 4; ++j) {
            x[j] = weight(x[j], all) * factor;
        }
        store_quad(r, quad, x);
    }
}

}  // namespace strata::attention

STRATA_KERNEL(128) void soft_max_128(strata::soft_max_args a) { strata::attention::soft_max_short<1, 1>(a); }
STRATA_KERNEL(128) void soft_max_256(strata::soft_max_args a) { strata::attention::soft_max_short<1, 2>(a); }
STRATA_KERNEL(128) void soft_max_512(strata::soft_max_args a) { strata::attention::soft_max_short<1, 4>(a); }
STRATA_KERNEL(128) void soft_max_1024(strata::soft_max_args a) { strata::attention::soft_max_short<1, 8>(a); }
STRATA_KERNEL(256) void soft_max_4096(strata::soft_max_args a) { strata::attention::soft_max_short<8, 4>(a); }
STRATA_KERNEL(512) void soft_max_any(strata::soft_max_args a) { strata::attention::soft_max_long<16>(a); }
