// The rotary embedding of f32 heads with what stands around it: the RMS norm and its weight before, the copy into an f16 cache behind. A
// workgroup does up to eight heads of one token, a wave each, which share the sines and cosines. Each part rounds as the kernel of its own op
// does (norm.hip, rope.hip, rows.hip): the same bits.
#include "rotation.h"
#include "row_norm.h"
#include "strata/args/rope_chain.h"
#include "strata/element.h"
#include "strata/read_together.h"

namespace strata {

constexpr uint32_t chain_heads = rope_chain_block / wave_size;

/// What a workgroup shares.
struct chain_space {
    float rows[chain_heads][rope_chain_length];
    float sines[rope_chain_length], cosines[rope_chain_length];
};

/// A group of heads of the token block_x() and the batch block_z().
template <bool Norm, bool Neighbours, bool Cache>
STRATA_DEVICE void rope_chain(const rope_chain_args & a, uint32_t group, chain_space & space) {
    auto & [rows, sines, cosines] = space;
    constexpr uint32_t steps = rope_chain_length / wave_step;
    const rope_args & r = a.rope;
    const uint32_t token = block_x(), batch = block_z(), wave = uniform(thread_x() / wave_size), head = group * chain_heads + wave;
    const uint32_t first = 4 * lane_id();

    // Everything is asked for before the angles are computed.
    read_together(r.positions, r.factors, r.pairs, r.exponent_high, r.exponent_low, r.freq_scale, r.ext_factor, r.magnitude, r.sine_magnitude,
                  r.position_kind, r.heads, r.src, r.src_stride[0], r.src_stride[1], r.src_stride[2], r.first, r.distance, r.rotated, a.length);
    if constexpr (Norm) {
        read_together(a.weight.data, a.weight.stride[0], a.weight.stride[1], a.weight.stride[2], a.eps);
    }
    char * dst;
    if constexpr (Cache) {
        read_together(a.index, a.index_stride, a.cache, a.cache_stride);
        const uint32_t row = load<uint32_t>(static_cast<const char *>(a.index) + token * a.index_stride);
        dst = static_cast<char *>(a.cache) + (row * a.cache_stride + static_cast<uint64_t>(head) * a.length * sizeof(half));
    } else {
        read_together(r.dst, r.dst_stride[0], r.dst_stride[1], r.dst_stride[2]);
        dst = static_cast<char *>(r.dst) + (head * r.dst_stride[0] + token * r.dst_stride[1] + batch * r.dst_stride[2]);
    }
    float4v values[steps], weights[steps];
    if (head < r.heads) {
        const auto at = [&](const void * data, const uint64_t (&stride)[3]) {
            return reinterpret_cast<const float *>(static_cast<const char *>(data) + (head * stride[0] + token * stride[1] + batch * stride[2]));
        };
#pragma unroll
        for (uint32_t k = 0; k < steps; k++) {
            if (k * wave_step >= a.length) {
                break;
            }
            values[k] = load_part<true>(at(r.src, r.src_stride), first + k * wave_step, a.length);
            if constexpr (Norm) {
                weights[k] = load_part<true>(at(a.weight.data, a.weight.stride), first + k * wave_step, a.length);
            }
        }
    }
    for (uint32_t k = thread_x(); k < r.pairs; k += rope_chain_block) {
        rotation(r, token, k, sines[k], cosines[k]);
    }
    if (head < r.heads) {
        float scale = 1.0f;
        if constexpr (Norm) {
            float4v sums = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (uint32_t k = 0; k < steps; k++) {
                if (k * wave_step >= a.length) {
                    break;
                }
                add_squares(sums, values[k]);
            }
            scale = rms_scale(wave_sum(lane_total(sums)), a.length, a.eps);
        }
#pragma unroll
        for (uint32_t k = 0; k < steps; k++) {
            const uint32_t e = first + k * wave_step;
            if (k * wave_step >= a.length) {
                break;
            }
            if (e < a.length) {
                if constexpr (Norm) {
                    values[k] = values[k] * scale * weights[k];
                }
                for (uint32_t i = 0; i < 4; i++) {
                    rows[wave][e + i] = values[k][i];
                }
            }
        }
    }
    barrier();
    if (head >= r.heads) {
        return;
    }
    const auto write = [&](uint32_t channel, float value) {
        if constexpr (Cache) {
            store(dst, channel * sizeof(half), f16::from_float(value));
        } else {
            store(dst, channel * sizeof(float), value);
        }
    };
    for (uint32_t k = lane_id(); k < r.pairs; k += wave_size) {
        const uint32_t channel = r.first + (Neighbours ? 2 * k : k), partner = channel + r.distance;
        const float x = rows[wave][channel], y = rows[wave][partner];
        write(channel, turned_first(x, y, sines[k], cosines[k]));
        write(partner, turned_second(x, y, sines[k], cosines[k]));
    }
    for (uint32_t i = lane_id(); i < a.length - r.rotated; i += wave_size) {
        const uint32_t channel = i + (i >= r.first ? r.rotated : 0);
        write(channel, rows[wave][channel]);
    }
}

/// Grid: tokens, groups of heads of q and of k, then groups of 4 * rope_chain_block numbers of v.
template <bool Neighbours>
STRATA_DEVICE void rope_qkv(const rope_qkv_args & a, chain_space & space) {
    if (block_y() < a.q_groups) {
        rope_chain<true, Neighbours, false>(a.q, block_y(), space);
        return;
    }
    const uint32_t group = block_y() - a.q_groups;
    if (group < a.k_groups) {
        rope_chain<true, Neighbours, true>(a.k, group, space);
        return;
    }
    const uint32_t e = 4 * ((group - a.k_groups) * rope_chain_block + thread_x()), token = block_x();
    if (e < a.v_length) {
        const uint32_t row = load<uint32_t>(static_cast<const char *>(a.v_index) + token * a.v_index_stride);
        const float4v v = load<float4v>(static_cast<const char *>(a.v) + token * a.v_stride, e * sizeof(float));
        four_t<f16> halves;
        for (uint32_t i = 0; i < 4; i++) {
            halves[i] = f16::from_float(v[i]);
        }
        store(static_cast<char *>(a.v_cache) + row * a.v_cache_stride, e * sizeof(half), halves);
    }
}

}  // namespace strata

using namespace strata;

#define ROPE_CHAIN(name, norm, neighbours, cache)                           \
    STRATA_KERNEL(rope_chain_block) void name(rope_chain_args a) {          \
        __shared__ chain_space space;                                       \
        rope_chain<norm, neighbours, cache>(a, block_y(), space);           \
    }

// Grid: tokens, groups of heads, batches.
ROPE_CHAIN(norm_rope_neighbours, true, true, false)
ROPE_CHAIN(norm_rope_halves, true, false, false)
ROPE_CHAIN(norm_rope_neighbours_cache, true, true, true)
ROPE_CHAIN(norm_rope_halves_cache, true, false, true)
ROPE_CHAIN(rope_neighbours_cache, false, true, true)
ROPE_CHAIN(rope_halves_cache, false, false, true)

STRATA_KERNEL(rope_chain_block) void rope_qkv_neighbours(rope_qkv_args a) {
    __shared__ chain_space space;
    rope_qkv<true>(a, space);
}
STRATA_KERNEL(rope_chain_block) void rope_qkv_halves(rope_qkv_args a) {
    __shared__ chain_space space;
    rope_qkv<false>(a, space);
}
