// Floats to quantized blocks, bit for bit as ggml's reference (the quantize_row_*_ref functions) has it: the same arithmetic in the same
// order, ties and searches included. Where the reference leaves bits of an all-zero block as they were, they are zero here.
//
// A quantizer is a struct with
//   block                 its layout
//   lanes                 neighbouring lanes that make a block together
//   quantize(x, b, lane)  makes the block; x.read(e, values) reads its elements from e on, `lane` is this one of the lanes
#pragma once

#include "strata/args/rows.h"
#include "strata/blocks.h"
#include "strata/codebooks.h"
#include "strata/math.h"
#include "strata/memory.h"
#include "strata/reduce.h"

namespace strata::quantizers {

/// Below this magnitude the reference takes a sub-block for zero.
constexpr float group_epsilon = 1e-15f;

/// Towards zero. What no 32-bit integer holds becomes `otherwise`.
STRATA_DEVICE int32_t to_int(float x, int32_t otherwise = -0x7fffffff - 1) {
    return x >= -2147483648.0f && x < 2147483648.0f ? static_cast<int32_t>(x) : otherwise;
}

/// To nearest, ties to even, for magnitudes below 2^22.
STRATA_DEVICE int32_t nearest(float x) { return (bit_cast<int32_t>(x + 12582912.0f) & 0x7fffff) - 0x400000; }

STRATA_DEVICE int32_t clamp(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }

STRATA_DEVICE float inverse_or_zero(float x) { return x != 0.0f ? 1.0f / x : 0.0f; }

STRATA_DEVICE uint16_t half_bits(float x) {
    asm("" : "+v"(x));   // else a product and its conversion become one v_fma_mixlo_f16, which makes -0 of the product +0
    return bit_cast<uint16_t>(static_cast<half>(x));
}
/// The float that a half keeps of x.
STRATA_DEVICE float as_half(float x) { return static_cast<float>(static_cast<half>(x)); }

template <uint32_t Values>
STRATA_DEVICE float largest_magnitude(const float (&x)[Values]) {
    float largest = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < Values; ++i) {
        largest = max(largest, abs(x[i]));
    }
    return largest;
}

/// The first value of largest magnitude, or zero.
template <uint32_t Values>
STRATA_DEVICE float first_largest(const float (&x)[Values]) {
    float largest = 0.0f, value = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < Values; ++i) {
        if (largest < abs(x[i])) {
            largest = abs(x[i]);
            value = x[i];
        }
    }
    return value;
}

/// Of this lane and lane `lane_id() ^ Mask` the one that is `largest` wins, or the lower one.
template <uint32_t Mask>
STRATA_DEVICE void keep_first_largest(bool & largest, float & x) {
    const bool other = lane_xor<Mask>(largest ? 1u : 0u) != 0;
    const float other_x = lane_xor<Mask>(x);
    if (other && (!largest || (lane_id() & Mask) != 0)) {
        largest = true;
        x = other_x;
    }
}

/// The first of the lanes' values (8 or 16) that has the largest magnitude.
template <uint32_t Lanes>
STRATA_DEVICE float first_largest_of_lanes(float x) {
    bool largest = abs(x) == wave_max<Lanes>(abs(x));
    keep_first_largest<1>(largest, x);
    keep_first_largest<2>(largest, x);
    keep_first_largest<4>(largest, x);
    if constexpr (Lanes == 16) {
        keep_first_largest<8>(largest, x);
    }
    return x;
}

/// Bits of each of the lanes that differ in the bits of Masks.
template <uint32_t... Masks>
STRATA_DEVICE uint32_t join_lanes(uint32_t bits) {
    ((bits |= lane_xor<Masks>(bits)), ...);
    return bits;
}

/// Nibbles of elements i and i + 16 as bytes i; Get(i) is element i, below 16.
template <class Get>
STRATA_DEVICE uint4v pack_nibbles(const Get & get) {
    uint4v q = {};
#pragma unroll
    for (uint32_t i = 0; i < 16; ++i) {
        q[i / 4] |= (get(i) | (get(i + 16) & 15) << 4) << i % 4 * 8;
    }
    return q;
}

/// Range of 32 values.
struct value_range {
    float low, high;
};

STRATA_DEVICE value_range range_of(const float (&x)[32]) {
    value_range r = {3.402823466e+38f, -3.402823466e+38f};
#pragma unroll
    for (uint32_t i = 0; i < 32; ++i) {
        r.low = x[i] < r.low ? x[i] : r.low;
        r.high = x[i] > r.high ? x[i] : r.high;
    }
    return r;
}

struct q4_0 {
    using block = block_q4_0;
    static constexpr uint32_t lanes = quantizer_lanes::q4_0;
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t) {
        float x[32];
        source.read(0, x);
        const float d = first_largest(x) / -8.0f, inverse = inverse_or_zero(d);
        store(b, 0, half_bits(d));
        store(b, 2, pack_nibbles([&](uint32_t i) {
            const int32_t q = static_cast<int8_t>(to_int(x[i] * inverse + 8.5f));
            return static_cast<uint32_t>(q > 15 ? 15 : q) & 255;
        }));
    }
};

struct q4_1 {
    using block = block_q4_1;
    static constexpr uint32_t lanes = quantizer_lanes::q4_1;
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t) {
        float x[32];
        source.read(0, x);
        const value_range r = range_of(x);
        const float d = (r.high - r.low) / 15.0f, inverse = inverse_or_zero(d);
        store(b, 0, half_bits(d) | static_cast<uint32_t>(half_bits(r.low)) << 16);
        store(b, 4, pack_nibbles([&](uint32_t i) {
            const int32_t q = static_cast<int8_t>(to_int((x[i] - r.low) * inverse + 0.5f));
            return static_cast<uint32_t>(q > 15 ? 15 : q) & 255;
        }));
    }
};

/// The fifth bits of 32 values, bit i of value i.
STRATA_DEVICE uint32_t fifth_bits(const uint32_t (&q)[32]) {
    uint32_t bits = 0;
#pragma unroll
    for (uint32_t i = 0; i < 32; ++i) {
        bits |= (q[i] >> 4 & 1) << i;
    }
    return bits;
}

struct q5_0 {
    using block = block_q5_0;
    static constexpr uint32_t lanes = quantizer_lanes::q5_0;
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t) {
        float x[32];
        source.read(0, x);
        const float d = first_largest(x) / -16.0f, inverse = inverse_or_zero(d);
        uint32_t q[32];
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i) {
            const int32_t v = static_cast<int8_t>(to_int(x[i] * inverse + 16.5f));
            q[i] = static_cast<uint32_t>(v > 31 ? 31 : v);
        }
        store(b, 0, half_bits(d));
        store(b, 2, fifth_bits(q));
        store(b, 6, pack_nibbles([&](uint32_t i) { return q[i] & 15; }));
    }
};

struct q5_1 {
    using block = block_q5_1;
    static constexpr uint32_t lanes = quantizer_lanes::q5_1;
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t) {
        float x[32];
        source.read(0, x);
        const value_range r = range_of(x);
        const float d = (r.high - r.low) / 31.0f, inverse = inverse_or_zero(d);
        uint32_t q[32];
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i) {
            q[i] = static_cast<uint32_t>(to_int((x[i] - r.low) * inverse + 0.5f));
        }
        store(b, 0, half_bits(d) | static_cast<uint32_t>(half_bits(r.low)) << 16);
        store(b, 4, fifth_bits(q));
        store(b, 8, pack_nibbles([&](uint32_t i) { return q[i] & 15; }));
    }
};

/// From f32 the reference's arithmetic. Numbers of 11 or 8 bits often lie halfway between two quantized ones, and there the reference is at
/// the mercy of its rounded inverse; they are rounded to even, as ggml's CPU code for x86 does.
struct q8_0 {
    using block = block_q8_0;
    static constexpr uint32_t lanes = quantizer_lanes::q8_0;
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t lane) {
        float x[4];
        source.read(4 * lane, x);
        const float largest = wave_max<8>(largest_magnitude(x)), d = largest / 127.0f;
        const float inverse = source.is_f32() ? inverse_or_zero(d) : largest != 0.0f ? 127.0f / largest : 0.0f;
        uint32_t packed = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            const float q = x[i] * inverse;
            packed |= (static_cast<uint32_t>(to_int(source.is_f32() ? round(q) : round_even(q))) & 255) << 8 * i;
        }
        if (lane == 0) {
            store(b, 0, half_bits(d));
        }
        store(b, 2 + 4 * lane, packed);
    }
};

struct q1_0 {
    using block = block_q1_0;
    static constexpr uint32_t lanes = quantizer_lanes::q1_0;
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t) {
        float sum = 0.0f;
        uint32_t bits = 0;
        for (uint32_t i = 0; i < 128; i += 4) {
            float x[4];
            source.read(i, x);
#pragma unroll
            for (uint32_t j = 0; j < 4; ++j) {
                sum += abs(x[j]);
                bits |= (x[j] >= 0.0f ? 1u : 0u) << (i + j) % 32;
            }
            if (i % 32 == 28) {
                store(b, 2 + i / 32 * 4, bits);
                bits = 0;
            }
        }
        store(b, 0, half_bits(sum / 128.0f));
    }
};

struct q2_0 {
    using block = block_q2_0;
    static constexpr uint32_t lanes = quantizer_lanes::q2_0;
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t lane) {
        float x[32];
        source.read(32 * lane, x);
        const float d = wave_max<2>(largest_magnitude(x)), inverse = inverse_or_zero(d);
        uint2v q = {};
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i) {
            q[i / 16] |= static_cast<uint32_t>(clamp(to_int(round(x[i] * inverse)) + 1, 0, 3)) << i % 16 * 2;
        }
        store(b, 2 + 8 * lane, q);
        if (lane == 0) {
            store(b, 0, half_bits(d));
        }
    }
};

/// floor(log2f(x)) for x > 0: log2f rounds up to the next integer where x is that close to a power of two.
STRATA_DEVICE int32_t floor_of_log2(float x) {
    const uint32_t bits = bit_cast<uint32_t>(x), top = bits < 0x800000 ? 31 - __builtin_clz(bits | 1) : 23;
    const uint32_t biased = bits >> 23, mantissa = biased ? (bits & 0x7fffff) | 0x800000 : bits;   // top: its highest bit
    const int32_t exponent = static_cast<int32_t>(biased ? biased : 1) - 127 - 23 + static_cast<int32_t>(top), next = exponent + 1;
    const uint32_t distance = (2u << top) - 1 - mantissa, m = static_cast<uint32_t>(next > 0 ? next - 1 : -next);
    return distance < 88u >> (__builtin_clz(m | 1) - 24) >> (23 - top) ? next : exponent;
}

/// Index of the e2m1 value nearest to x in units of d; the first of equals.
STRATA_DEVICE uint32_t nearest_e2m1(float x, float d) {
    constexpr float values[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    uint32_t best = 0;
    float best_error = abs(0.0f * d - x);
#pragma unroll
    for (uint32_t i = 1; i < 16; ++i) {
        const float error = abs((i < 8 ? values[i] : -values[i - 8]) * d - x);
        if (error < best_error) {
            best = i;
            best_error = error;
        }
    }
    return best;
}

struct mxfp4 {
    using block = block_mxfp4;
    static constexpr uint32_t lanes = quantizer_lanes::mxfp4;
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t) {
        float x[32];
        source.read(0, x);
        const float largest = largest_magnitude(x);
        const uint32_t e = largest > 0.0f ? static_cast<uint32_t>(floor_of_log2(largest) - 2 + 127) & 255 : 0;
        const float d = e8m0_half(e);
        store(b, 0, static_cast<uint8_t>(e));
        store(b, 1, pack_nibbles([&](uint32_t i) { return nearest_e2m1(x[i], d); }));
    }
};

/// The unsigned e4m3 nearest to x.
STRATA_DEVICE uint32_t to_e4m3(float x) {
    if (!(x > 0.0f)) {
        return 0;
    }
    const uint32_t bits = bit_cast<uint32_t>(min(x, 448.0f));
    int32_t exponent = static_cast<int32_t>(bits >> 23) - 127 + 7;
    if (exponent <= 0) {
        const int32_t mantissa = static_cast<int32_t>(x * 512.0f + 0.5f);
        return static_cast<uint32_t>(mantissa > 7 ? 7 : mantissa);
    }
    uint32_t mantissa = (bits >> 20 & 7) + (bits >> 19 & 1);
    if (mantissa > 7) {
        mantissa = 0;
        ++exponent;
    }
    return exponent >= 15 ? 0x7e : static_cast<uint32_t>(exponent) << 3 | mantissa;
}

struct nvfp4 {
    using block = block_nvfp4;
    static constexpr uint32_t lanes = quantizer_lanes::nvfp4;
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t lane) {
        float x[16];
        source.read(16 * lane, x);
        const uint32_t scale = to_e4m3(largest_magnitude(x) / 6.0f);
        const float d = e4m3_half(scale);
        uint2v q = {};
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            q[i / 4] |= (nearest_e2m1(x[i], d) | nearest_e2m1(x[i + 8], d) << 4) << i % 4 * 8;
        }
        store(b, lane, static_cast<uint8_t>(scale));
        store(b, 4 + 8 * lane, q);
    }
};

/// Largest magnitude of 256 values in eight lanes.
template <class Source>
STRATA_DEVICE float largest_of_256(const Source & source, uint32_t lane) {
    float x[32];
    source.read(32 * lane, x);
    return wave_max<8>(largest_magnitude(x));
}

/// x / d rounded to -1, 0 or 1, plus 1.
STRATA_DEVICE uint32_t ternary(float x, float inverse) { return static_cast<uint32_t>(to_int(round(x * inverse), 0) + 1) & 3; }

struct tq1_0 {
    using block = block_tq1_0;
    static constexpr uint32_t lanes = quantizer_lanes::tq1_0;
    /// Four bytes of `Digits` digits, the first of them those of elements first to first + 3, others `step` elements on.
    template <uint32_t Digits, class Source>
    STRATA_DEVICE uint32_t four_bytes(const Source & source, uint32_t first, uint32_t step, float inverse) {
        uint32_t q[4] = {};
#pragma unroll
        for (uint32_t n = 0; n < Digits; ++n) {
            float x[4];
            source.read(first + n * step, x);
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) {
                q[i] = q[i] * 3 + ternary(x[i], inverse);
            }
        }
        uint32_t bytes = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            bytes |= (q[i] * (Digits == 4 ? 3 : 1) * 256 + 242) / 243 << 8 * i;
        }
        return bytes;
    }
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t lane) {
        const float d = largest_of_256(source, lane), inverse = inverse_or_zero(d);
        store(b, 4 * lane, four_bytes<5>(source, 4 * lane, 32, inverse));
        if (lane < 4) {
            store(b, 32 + 4 * lane, four_bytes<5>(source, 160 + 4 * lane, 16, inverse));
        } else if (lane == 4) {
            store(b, 48, four_bytes<4>(source, 240, 4, inverse));
        } else if (lane == 5) {
            store(b, 52, half_bits(d));
        }
    }
};

struct tq2_0 {
    using block = block_tq2_0;
    static constexpr uint32_t lanes = quantizer_lanes::tq2_0;
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t lane) {
        const float d = largest_of_256(source, lane), inverse = inverse_or_zero(d);
#pragma unroll
        for (uint32_t h = 0; h < 2; ++h) {
            uint32_t q = 0;
#pragma unroll
            for (uint32_t n = 0; n < 4; ++n) {
                float x[4];
                source.read(128 * h + 32 * n + 4 * lane, x);
#pragma unroll
                for (uint32_t i = 0; i < 4; ++i) {
                    q |= ternary(x[i], inverse) << (8 * i + 2 * n);
                }
            }
            store(b, 32 * h + 4 * lane, q);
        }
        if (lane == 0) {
            store(b, 64, half_bits(d));
        }
    }
};

/// Index of the value of iq4_nl that is nearest to x.
STRATA_DEVICE uint32_t nearest_iq4(float x) {
    constexpr float values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    if (x <= values[0]) {
        return 0;
    }
    if (x >= values[15]) {
        return 15;
    }
    uint32_t above = 1;
    float low = values[0], high = values[15];
#pragma unroll
    for (uint32_t i = 1; i < 15; ++i) {
        if (x >= values[i]) {
            low = values[i];
            ++above;
        }
    }
#pragma unroll
    for (uint32_t i = 14; i > 0; --i) {
        high = x < values[i] ? values[i] : high;
    }
    return x - low < high - x ? above - 1 : above;
}

STRATA_DEVICE float iq4_value(uint32_t index) { return static_cast<float>(look_up_one(iq4_values, index)); }

/// Sums over 32 values of weight * q * x and weight * q^2, weight x^2, q the table's value nearest to inverse * x.
struct iq4_fit {
    float qx, q2;
};

STRATA_DEVICE iq4_fit fit_iq4(const float (&x)[32], float inverse) {
    iq4_fit f = {0.0f, 0.0f};
#pragma unroll
    for (uint32_t i = 0; i < 32; ++i) {
        const float q = iq4_value(nearest_iq4(inverse * x[i])), weight = x[i] * x[i];
        f.qx += weight * q * x[i];
        f.q2 += weight * q * q;
    }
    return f;
}

struct iq4_nl {
    using block = block_iq4_nl;
    static constexpr uint32_t lanes = quantizer_lanes::iq4_nl;
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t) {
        float x[32];
        source.read(0, x);
        const float largest = first_largest(x);
        float d = 0.0f;
        uint4v q = {};
        if (!(abs(largest) < group_epsilon)) {
            const float inverse = 1.0f / (largest / -127.0f);
            const iq4_fit f = fit_iq4(x, inverse);
            d = f.q2 > 0.0f ? f.qx / f.q2 : 0.0f;
            q = pack_nibbles([&](uint32_t i) { return nearest_iq4(inverse * x[i]); });
        }
        store(b, 0, half_bits(d));
        store(b, 2, q);
    }
};

struct iq4_xs {
    using block = block_iq4_xs;
    static constexpr uint32_t lanes = quantizer_lanes::iq4_xs;
    static constexpr int32_t tries = 7;
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t lane) {
        float x[32];
        source.read(32 * lane, x);
        const float largest = first_largest(x);
        float scale = 0.0f;
        if (!(abs(largest) < group_epsilon)) {
            iq4_fit f = fit_iq4(x, 1.0f / (-largest / -127.0f));
            scale = f.q2 > 0.0f ? f.qx / f.q2 : 0.0f;
            float best = scale * f.qx;
#pragma clang loop unroll(disable)
            for (int32_t i = -tries; i <= tries; ++i) {
                f = fit_iq4(x, static_cast<float>(i - 127) / largest);
                if (f.q2 > 0.0f && f.qx * f.qx > best * f.q2) {
                    scale = f.qx / f.q2;
                    best = scale * f.qx;
                }
            }
        }
        const float d = -first_largest_of_lanes<8>(scale) / 32.0f;
        const int32_t steps = clamp(nearest(inverse_or_zero(d) * scale), -32, 31);
        const float inverse = inverse_or_zero(d * static_cast<float>(steps));
        store(b, 8 + 16 * lane, pack_nibbles([&](uint32_t i) { return nearest_iq4(inverse * x[i]); }));
        const uint32_t bits = static_cast<uint32_t>(steps + 32);
        const uint32_t low = join_lanes<1, 2, 4>((bits & 15) << 4 * lane), high = join_lanes<1, 2, 4>((bits >> 4) << 2 * lane);
        if (lane == 0) {
            store(b, 0, half_bits(d) | high << 16);
            store(b, 4, low);
        }
    }
};

/// What a search for scale and min found: values are scale * q + min with q = nearest(inverse * (x - origin)).
struct affine_fit {
    float scale, min;
    float inverse, origin;
    bool constant;   ///< all q are zero
};

/// Scale and min of q2_K, q4_K and q5_K, whose q go up to `Most`. The weight of a value is `weight` + |x|. Errors are absolute ones or
/// squares.
template <uint32_t Values, int32_t Most, bool Absolute>
STRATA_DEVICE affine_fit fit_affine(const float (&x)[Values], float weight, float first_step, uint32_t steps) {
    const auto weight_of = [&](uint32_t i) { return weight + abs(x[i]); };
    float low = x[0], high = x[0], sum_w = weight_of(0), sum_x = sum_w * x[0];
#pragma unroll
    for (uint32_t i = 1; i < Values; ++i) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        sum_w += weight_of(i);
        sum_x += weight_of(i) * x[i];
    }
    low = low > 0.0f ? 0.0f : low;
    if (high == low) {
        return {0.0f, low, 0.0f, low, true};
    }
    const auto q_of = [&](uint32_t i, float inverse, float origin) {
        return static_cast<float>(clamp(nearest(inverse * (x[i] - origin)), 0, Most));
    };
    const auto error_of = [&](float inverse, float origin, float scale, float min) {
        float error = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < Values; ++i) {
            const float difference = scale * q_of(i, inverse, origin) + min - x[i];
            error += weight_of(i) * (Absolute ? abs(difference) : difference * difference);
        }
        return error;
    };
    affine_fit best = {0.0f, low, static_cast<float>(Most) / (high - low), low, false};
    best.scale = 1.0f / best.inverse;
    float best_error = error_of(best.inverse, best.origin, best.scale, best.min);
#pragma clang loop unroll(disable)
    for (uint32_t step = 0; step <= steps; ++step) {
        const float origin = best.min;
        const float inverse = (first_step + 0.1f * static_cast<float>(step) + static_cast<float>(Most)) / (high - origin);
        float sum_q = 0.0f, sum_q2 = 0.0f, sum_xq = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < Values; ++i) {
            const float q = q_of(i, inverse, origin), w = weight_of(i);
            sum_q += w * q;
            sum_q2 += w * q * q;
            sum_xq += w * q * x[i];
        }
        const float determinant = sum_w * sum_q2 - sum_q * sum_q;
        if (determinant > 0.0f) {
            float scale = (sum_w * sum_xq - sum_x * sum_q) / determinant;
            float min = (sum_q2 * sum_x - sum_q * sum_xq) / determinant;
            if (min > 0.0f) {
                min = 0.0f;
                scale = sum_xq / sum_q2;
            }
            const float error = error_of(inverse, origin, scale, min);
            if (error < best_error) {
                best_error = error;
                best = {scale, min, inverse, origin, false};
            }
        }
    }
    return best;
}

/// The q of a value: with the block's rounded scale and min, or where this scale is zero those of the search.
template <int32_t Most>
STRATA_DEVICE uint32_t affine_q(const affine_fit & f, float d, float m, float x) {
    if (d != 0.0f) {
        return static_cast<uint32_t>(clamp(nearest((x + m) / d), 0, Most));
    }
    return f.constant ? 0 : static_cast<uint32_t>(clamp(nearest(f.inverse * (x - f.origin)), 0, Most));
}

struct q2_K {
    using block = block_q2_K;
    static constexpr uint32_t lanes = quantizer_lanes::q2_K;
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t lane) {
        float x[16];
        source.read(16 * lane, x);
        const affine_fit f = fit_affine<16, 3, true>(x, 0.0f, -0.5f, 15);
        const float most_scale = wave_max<16>(max(f.scale, 0.0f)), most_min = wave_max<16>(max(-f.min, 0.0f));
        uint32_t both = 0;
        if (most_scale > 0.0f) {
            both = static_cast<uint32_t>(nearest(15.0f / most_scale * f.scale)) & 255;
        }
        if (most_min > 0.0f) {
            both |= static_cast<uint32_t>(nearest(15.0f / most_min * -f.min)) << 4 & 255;
        }
        const float d = as_half(most_scale / 15.0f) * static_cast<float>(both & 15);
        const float m = as_half(most_min / 15.0f) * static_cast<float>(both >> 4);
        const uint32_t quarter = lane >> 1 & 3;
        uint4v q = {};
#pragma unroll
        for (uint32_t i = 0; i < 16; ++i) {
            q[i / 4] |= affine_q<3>(f, d, m, x[i]) << i % 4 * 8;
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            q[i] = join_lanes<2, 4>(q[i] << 2 * quarter);
        }
        store(b, lane, static_cast<uint8_t>(both));
        if (quarter == 0) {
            store(b, 16 + (lane >> 3) * 32 + (lane & 1) * 16, q);
        }
        if (lane == 0) {
            store(b, 80, half_bits(most_scale / 15.0f) | static_cast<uint32_t>(half_bits(most_min / 15.0f)) << 16);
        }
    }
};

/// q4_K (Most 15) and q5_K (Most 31): eight lanes, the same scales.
template <class Block, int32_t Most>
struct q45_K {
    using block = Block;
    static_assert(quantizer_lanes::q4_K == quantizer_lanes::q5_K);
    static constexpr uint32_t lanes = quantizer_lanes::q4_K;
    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t lane) {
        float x[32];
        source.read(32 * lane, x);
        float squares = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i) {
            squares += x[i] * x[i];
        }
        const affine_fit f = fit_affine<32, Most, false>(x, sqrt(squares / 32.0f), Most == 15 ? -1.0f : -0.5f, Most == 15 ? 20 : 15);
        const float most_scale = wave_max<8>(max(f.scale, 0.0f)), most_min = wave_max<8>(max(-f.min, 0.0f));
        const auto six_bits = [](float most, float value) {
            const uint32_t bits = static_cast<uint32_t>(nearest((most > 0.0f ? 63.0f / most : 0.0f) * value)) & 255;
            return bits > 63 ? 63 : bits;
        };
        const uint32_t scale = six_bits(most_scale, f.scale), min = six_bits(most_min, -f.min);
        const float d = as_half(most_scale / 63.0f) * static_cast<float>(scale), m = as_half(most_min / 63.0f) * static_cast<float>(min);
        uint32_t q[8] = {}, high[8] = {};
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i) {
            const uint32_t v = affine_q<Most>(f, d, m, x[i]);
            q[i / 4] |= (v & 15) << i % 4 * 8;
            high[i / 4] |= v >> 4 << i % 4 * 8;
        }
        constexpr uint32_t high_at = 16, low_at = Most == 31 ? 48 : 16;
        const bool odd = (lane & 1) != 0;
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
            q[i] = join_lanes<1>(odd ? q[i] << 4 : q[i]);
            if constexpr (Most == 31) {
                high[i] = join_lanes<1, 2, 4>(high[i] << lane);
            }
        }
        const uint4v first = {q[0], q[1], q[2], q[3]}, second = {q[4], q[5], q[6], q[7]};
        store(b, low_at + 16 * lane, odd ? second : first);
        if constexpr (Most == 31) {
            if (lane < 2) {
                const uint4v high_first = {high[0], high[1], high[2], high[3]}, high_second = {high[4], high[5], high[6], high[7]};
                store(b, high_at + 16 * lane, lane == 0 ? high_first : high_second);
            }
        }
        const uint32_t later_scale = lane_xor<4>(scale), later_min = lane_xor<4>(min);
        if (lane < 4) {
            store(b, 4 + lane, static_cast<uint8_t>(scale | later_scale >> 4 << 6));
            store(b, 8 + lane, static_cast<uint8_t>(min | later_min >> 4 << 6));
            store(b, 12 + lane, static_cast<uint8_t>((later_scale & 15) | (later_min & 15) << 4));
        }
        if (lane == 0) {
            store(b, 0, half_bits(most_scale / 63.0f) | static_cast<uint32_t>(half_bits(most_min / 63.0f)) << 16);
        }
    }
};

using q4_K = q45_K<block_q4_K, 15>;
using q5_K = q45_K<block_q5_K, 31>;

struct q3_K {
    using block = block_q3_K;
    static constexpr uint32_t lanes = quantizer_lanes::q3_K;

    /// Scale of sixteen values; q becomes their values -4 to 3, zero where the scale is.
    STRATA_DEVICE float fit(const float (&x)[16], int32_t (&q)[16]) {
        const float largest = first_largest(x);
        if (abs(largest) < group_epsilon) {
#pragma unroll
            for (uint32_t i = 0; i < 16; ++i) {
                q[i] = -4;
            }
            return 0.0f;
        }
        const float inverse = -4.0f / largest;
        float sum_xq = 0.0f, sum_q2 = 0.0f;
#pragma unroll
        for (uint32_t i = 0; i < 16; ++i) {
            q[i] = clamp(nearest(inverse * x[i]), -4, 3);
            const float w = x[i] * x[i], v = static_cast<float>(q[i]);
            sum_xq += w * x[i] * v;
            sum_q2 += w * v * v;
        }
#pragma clang loop unroll(disable)
        for (uint32_t round = 0; round < 5; ++round) {
            bool changed = false;
#pragma unroll
            for (uint32_t i = 0; i < 16; ++i) {
                const float w = x[i] * x[i], v = static_cast<float>(q[i]);
                float xq = sum_xq - w * x[i] * v;
                if (xq > 0.0f) {
                    float q2 = sum_q2 - w * v * v;
                    const int32_t better = clamp(nearest(x[i] * q2 / xq), -4, 3);
                    if (better != q[i]) {
                        const float u = static_cast<float>(better);
                        xq += w * x[i] * u;
                        q2 += w * u * u;
                        if (q2 > 0.0f && xq * xq * sum_q2 > sum_xq * sum_xq * q2) {
                            q[i] = better;
                            sum_xq = xq;
                            sum_q2 = q2;
                            changed = true;
                        }
                    }
                }
            }
            if (!changed) {
                break;
            }
        }
        return sum_q2 > 0.0f ? sum_xq / sum_q2 : 0.0f;
    }

    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t lane) {
        float x[16];
        source.read(16 * lane, x);
        int32_t q[16];
        const float scale = fit(x, q), most = first_largest_of_lanes<16>(scale);
        const float inverse = -32.0f / most, rounded = most != 0.0f ? as_half(1.0f / inverse) : 0.0f;
        const int32_t steps = most != 0.0f ? clamp(static_cast<int8_t>(nearest(inverse * scale)), -32, 31) : -32;
        const float d = rounded * static_cast<float>(steps);
        uint4v low = {}, high = {};
#pragma unroll
        for (uint32_t i = 0; i < 16; ++i) {
            const uint32_t v = static_cast<uint32_t>((d != 0.0f ? clamp(nearest(x[i] / d), -4, 3) : q[i]) + 4);
            low[i / 4] |= (v & 3) << i % 4 * 8;
            high[i / 4] |= v >> 2 << i % 4 * 8;
        }
        const uint32_t quarter = lane >> 1 & 3, half_block = lane >> 3;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            low[i] = join_lanes<2, 4>(low[i] << 2 * quarter);
            high[i] = join_lanes<2, 4, 8>(high[i] << (4 * half_block + quarter));
        }
        if (quarter == 0) {
            store(b, 32 + half_block * 32 + (lane & 1) * 16, low);
        }
        if (lane < 2) {
            store(b, 16 * lane, high);
        }
        const uint32_t bits = most != 0.0f ? static_cast<uint32_t>(steps + 32) : 0;
        const uint32_t nibbles = join_lanes<8>((bits & 15) << 4 * half_block);
        const uint32_t tops = join_lanes<4, 8>((bits >> 4) << 2 * (lane >> 2));
        if (lane < 8) {
            store(b, 96 + lane, static_cast<uint8_t>(nibbles));
        }
        if (lane < 4) {
            store(b, 104 + lane, static_cast<uint8_t>(tops));
        }
        if (lane == 0) {
            store(b, 108, half_bits(rounded));
        }
    }
};

struct q6_K {
    using block = block_q6_K;
    static constexpr uint32_t lanes = quantizer_lanes::q6_K;

    /// The scale of sixteen values and the inverse of it that made their q; both are zero for zeros.
    struct fit {
        float scale, inverse;
    };

    STRATA_DEVICE fit find_fit(const float (&x)[16]) {
        const float largest = first_largest(x);
        if (abs(largest) < group_epsilon) {
            return {0.0f, 0.0f};
        }
        fit best = {0.0f, -32.0f / largest};
        float best_product = 0.0f;
#pragma clang loop unroll(disable)
        for (int32_t step = -10; step <= 9; ++step) {   // -10 stands for the first try, without a step
            if (step == 0) {
                continue;
            }
            const float inverse = step == -10 ? best.inverse : -(32.0f + 0.1f * static_cast<float>(step)) / largest;
            float sum_xq = 0.0f, sum_q2 = 0.0f;
#pragma unroll
            for (uint32_t i = 0; i < 16; ++i) {
                const float q = static_cast<float>(clamp(nearest(inverse * x[i]), -32, 31)), w = x[i] * x[i];
                sum_xq += w * x[i] * q;
                sum_q2 += w * q * q;
            }
            if (step == -10) {
                best.scale = sum_q2 != 0.0f ? sum_xq / sum_q2 : 0.0f;
                best_product = best.scale * sum_xq;
            } else if (sum_q2 > 0.0f && sum_xq * sum_xq > best_product * sum_q2) {
                best = {sum_xq / sum_q2, inverse};
                best_product = best.scale * sum_xq;
            }
        }
        return best;
    }

    template <class Source>
    STRATA_DEVICE void quantize(const Source & source, char * b, uint32_t lane) {
        float x[16];
        source.read(16 * lane, x);
        const fit f = find_fit(x);
        const float most = first_largest_of_lanes<16>(f.scale);
        const bool zero = abs(most) < group_epsilon;
        const float inverse = -128.0f / most, rounded = zero ? 0.0f : as_half(1.0f / inverse);
        const int32_t nearest_steps = zero ? 0 : nearest(inverse * f.scale);
        const int32_t steps = static_cast<int8_t>(nearest_steps > 127 ? 127 : nearest_steps);
        const float d = rounded * static_cast<float>(steps);
        uint4v low = {}, high = {};
#pragma unroll
        for (uint32_t i = 0; i < 16; ++i) {
            const float scaled = d != 0.0f ? x[i] / d : f.inverse * x[i];
            const uint32_t v = zero || (d == 0.0f && f.inverse == 0.0f) ? 0 : static_cast<uint32_t>(clamp(nearest(scaled), -32, 31) + 32);
            low[i / 4] |= (v & 15) << i % 4 * 8;
            high[i / 4] |= v >> 4 << i % 4 * 8;
        }
        const uint32_t quarter = lane >> 1 & 3, half_block = lane >> 3;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            low[i] = join_lanes<4>(low[i] << (quarter & 2) * 2);
            high[i] = join_lanes<2, 4>(high[i] << 2 * quarter);
        }
        if (quarter < 2) {
            store(b, half_block * 64 + quarter * 32 + (lane & 1) * 16, low);
        }
        if (quarter == 0) {
            store(b, 128 + half_block * 32 + (lane & 1) * 16, high);
        }
        store(b, 192 + lane, static_cast<uint8_t>(steps));
        if (lane == 0) {
            store(b, 208, half_bits(rounded));
        }
    }
};

}  // namespace strata::quantizers
