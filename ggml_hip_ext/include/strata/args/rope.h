// Arguments of the rotary embedding.
#pragma once

#include "strata/args/division.h"

namespace strata {

/// Which of a token's position numbers an angle is made of.
enum rope_positions : uint32_t {
    rope_single = 0,       ///< one position a token
    rope_sections = 1,     ///< four, by section of the pairs (M-RoPE)
    rope_interleaved = 2,  ///< four, interleaved (IM-RoPE)
    rope_vision = 3,       ///< four, by section, frequencies restarting in each section
};

/// Tensors [row, heads, tokens, batches] with contiguous rows; the rest of the strides in bytes.
struct rope_args {
    void * dst;
    const void * src;
    const int32_t * positions;  ///< a number a token (four, one after the other, where positions != rope_single)
    const float * factors;      ///< divisors of the frequencies, one a pair, or null
    uint64_t dst_stride[3], src_stride[3];
    uint32_t heads, tokens;
    uint32_t heads_a_block;
    uint32_t pairs;             ///< rotated pairs a row
    uint32_t lane_shift;        ///< a head's pairs are spread over 2^lane_shift work-items
    uint32_t first;             ///< channel of the first pair
    uint32_t distance;          ///< channels between the members of a pair where they are not neighbours
    fast_divisor rest;          ///< channels that are only copied, 0 if none or in place
    uint32_t rotated;           ///< channels first .. first + rotated - 1 are rotated
    uint32_t position_kind;     ///< rope_positions
    uint32_t sections[4];
    fast_divisor section_sum;
    float exponent_high, exponent_low;  ///< pair k turns by 2^(k * exponent) a position
    float freq_scale;
    float ext_factor;           ///< weight of the extrapolated angle in YaRN, 0: off
    float ramp_low, ramp_width; ///< YaRN ramp, in pairs
    float magnitude;            ///< scale of the cosine
    float sine_magnitude;       ///< of the sine: the same, negative to turn backwards
};

constexpr uint32_t rope_block = 256;

}  // namespace strata
