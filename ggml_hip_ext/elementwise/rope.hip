// Rotary embedding. A workgroup turns some heads of one token: each work-item computes one sine and cosine and uses them for several heads.
#include "strata/args/rope.h"
#include "strata/element.h"
#include "strata/math.h"

namespace strata {

// The position that pair k of a token turns by, and the power of the frequency base it is multiplied with.
STRATA_DEVICE int32_t choose_position(const rope_args & a, uint32_t token, uint32_t k, uint32_t & power) {
    power = k;
    if (a.position_kind == rope_single) {
        return a.positions[token];
    }
    const uint32_t sector = remainder(k, quotient(k, a.section_sum), a.section_sum);
    const uint32_t end0 = a.sections[0], end1 = end0 + a.sections[1], end2 = end1 + a.sections[2];
    uint32_t which = 0;
    if (a.position_kind == rope_interleaved) {
        const uint32_t third = sector / 3, phase = sector - 3 * third;
        const uint32_t size = phase == 0 ? a.sections[0] : phase == 1 ? a.sections[1] : a.sections[2];
        which = sector < 3 * size ? phase : 3;
    } else {
        which = sector < end0 ? 0 : sector < end1 ? 1 : sector < end2 ? 2 : 3;
        if (a.position_kind == rope_vision) {
            power = sector - (which == 0 ? 0 : which == 1 ? end0 : which == 2 ? end1 : end2);
        }
    }
    return a.positions[token + which * a.tokens];
}

// 2^(k * exponent) to within about an ulp: the product in two parts.
STRATA_DEVICE float frequency(const rope_args & a, uint32_t k) {
    const float x = static_cast<float>(k);
    const float product = x * a.exponent_high;
    const float error = fma(x, a.exponent_high, -product) + x * a.exponent_low;
    const float whole = round_even(product);
    return ldexp(exp2_fast((product - whole) + error), static_cast<int32_t>(whole));
}

STRATA_DEVICE void rotation(const rope_args & a, uint32_t token, uint32_t k, float & sine, float & cosine) {
    uint32_t power;
    const int32_t position = choose_position(a, token, k, power);
    float extrapolated = static_cast<float>(position) * frequency(a, power);
    if (a.factors) {
        extrapolated = extrapolated / a.factors[k];
    }
    const float interpolated = a.freq_scale * extrapolated;
    float angle = interpolated;
    if (a.ext_factor != 0.0f) {
        const float ramp = (static_cast<float>(k) - a.ramp_low) / max(0.001f, a.ramp_width);
        const float mix = (1.0f - min(1.0f, max(0.0f, ramp))) * a.ext_factor;
        angle = interpolated * (1.0f - mix) + extrapolated * mix;
    }
    sincos(angle, sine, cosine);
    sine *= a.sine_magnitude;
    cosine *= a.magnitude;
}

// Neighbours: the members of a pair are neighbouring channels; otherwise they are `distance` apart.
template <class T, bool Neighbours>
STRATA_DEVICE void rope(const rope_args & a) {
    using storage = typename T::storage;
    typedef storage pair_type __attribute__((ext_vector_type(2)));
    const uint32_t token = block_x(), batch = block_z();
    const uint32_t first_head = block_y() * a.heads_a_block;
    const uint32_t heads = first_head + a.heads_a_block < a.heads ? a.heads_a_block : a.heads - first_head;
    char * const dst = static_cast<char *>(a.dst) + (first_head * a.dst_stride[0] + token * a.dst_stride[1] + batch * a.dst_stride[2]);
    const char * const src =
        static_cast<const char *>(a.src) + (first_head * a.src_stride[0] + token * a.src_stride[1] + batch * a.src_stride[2]);

    const uint32_t spread = 1u << a.lane_shift;
    for (uint32_t k = thread_x() & (spread - 1); k < a.pairs; k += rope_block) {
        float sine, cosine;
        rotation(a, token, k, sine, cosine);
        for (uint32_t head = thread_x() >> a.lane_shift; head < heads; head += rope_block >> a.lane_shift) {
            const char * const in = src + head * a.src_stride[0];
            char * const out = dst + head * a.dst_stride[0];
            const uint32_t at0 = (a.first + (Neighbours ? 2 * k : k)) * sizeof(storage);
            const uint32_t at1 = at0 + a.distance * sizeof(storage);
            pair_type pair;
            if constexpr (Neighbours) {
                pair = load<pair_type>(in, at0);
            } else {
                pair = pair_type{load<storage>(in, at0), load<storage>(in, at1)};
            }
            const float x = T::to_float(pair[0]), y = T::to_float(pair[1]);
            pair[0] = T::from_float(fma(x, cosine, -(y * sine)));
            pair[1] = T::from_float(fma(x, sine, y * cosine));
            if constexpr (Neighbours) {
                store(out, at0, pair);
            } else {
                store(out, at0, pair[0]);
                store(out, at1, pair[1]);
            }
        }
    }
    if (a.rest.divisor == 0) {
        return;
    }
    for (uint32_t i = thread_x(); i < heads * a.rest.divisor; i += rope_block) {
        const uint32_t head = quotient(i, a.rest);
        uint32_t channel = remainder(i, head, a.rest);
        channel += channel >= a.first ? a.rotated : 0;
        const uint32_t at = channel * sizeof(storage);
        store(dst + head * a.dst_stride[0], at, load<storage>(src + head * a.src_stride[0], at));
    }
}

}  // namespace strata

using namespace strata;

STRATA_KERNEL(rope_block) void rope_neighbours_f32(rope_args a) { rope<f32, true>(a); }
STRATA_KERNEL(rope_block) void rope_neighbours_f16(rope_args a) { rope<f16, true>(a); }
STRATA_KERNEL(rope_block) void rope_halves_f32(rope_args a) { rope<f32, false>(a); }
STRATA_KERNEL(rope_block) void rope_halves_f16(rope_args a) { rope<f16, false>(a); }
