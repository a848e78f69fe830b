// The angle that a pair of channels turns by.
#pragma once

#include "strata/args/rope.h"
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

// A pair of channels, turned.
STRATA_DEVICE float turned_first(float x, float y, float sine, float cosine) { return fma(x, cosine, -(y * sine)); }
STRATA_DEVICE float turned_second(float x, float y, float sine, float cosine) { return fma(x, sine, y * cosine); }

}  // namespace strata
