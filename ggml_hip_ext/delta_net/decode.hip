// A delta net's layer from the convolution to the gated norm, in two launches, with the states where the cache has them. Each step adds in
// the order of its own kernel (ssm_conv, norm_chain, gated_delta_net): the same bits as one launch a step.
#include "../elementwise/row_norm.h"
#include "delta_rule.h"
#include "strata/args/delta_net_decode.h"
#include "strata/q8_1.h"

namespace strata {

constexpr uint32_t kept_taps = delta_net_taps - 1;
constexpr uint32_t state_lanes = delta_net_block / delta_net_columns;   // that a column is spread over, as in gated_delta_net

/// No sequence's state is where another one's goes to: each can be computed on its own.
STRATA_DEVICE bool states_are_apart(const delta_net_decode_args & a) {
    bool apart = true;
    for (uint32_t s = 0; s < a.sequences; s++) {
        const uint32_t row = uniform(load<uint32_t>(a.rows, s * 4));
        const uint32_t to = remainder(row, quotient(row, a.snapshot_rows), a.snapshot_rows) - a.first_row;
        apart &= to == s || to >= a.sequences;
    }
    return apart;
}

/// What a work-item knows of a channel: the taps, what they were given before, and the new numbers.
struct conv_channel {
    float4v weight;
    float window[kept_taps];
    float now[delta_net_tokens];

    __device__ __attribute__((always_inline)) void load(const delta_net_decode_args & a, const char * weights, const char * x,
                                                        uint32_t channel) {
        weight = strata::load<float4v>(weights + channel * a.weight_stride);
#pragma unroll
        for (uint32_t t = 0; t < delta_net_tokens; t++) {
            if (t < a.tokens) {
                now[t] = strata::load<float>(x + t * a.input.token_stride, channel * 4);
            }
        }
    }

    __device__ __attribute__((always_inline)) void load_before(const char * states, uint32_t channel) {
        for (uint32_t k = 0; k < kept_taps; k++) {
            window[k] = strata::load<float>(states, channel * (kept_taps * 4), k * 4);
        }
    }

    /// What the taps were given before, for delta_net_finish.
    __device__ __attribute__((always_inline)) void keep(char * to) const {
        for (uint32_t k = 0; k < kept_taps; k++) {
            store(to, k * 4, window[k]);
        }
    }

    /// SiLU of the results, `pitch` numbers apart.
    __device__ __attribute__((always_inline)) void convolve(const delta_net_decode_args & a, float * results, uint32_t pitch) {
#pragma unroll
        for (uint32_t t = 0; t < delta_net_tokens; t++) {
            if (t < a.tokens) {
                float sum = 0.0f;
                for (uint32_t k = 0; k < kept_taps; k++) {
                    sum = fma(window[k], weight[k], sum);
                }
                results[t * pitch] = silu(fma(now[t], weight[kept_taps], sum));
                for (uint32_t k = 0; k + 1 < kept_taps; k++) {
                    window[k] = window[k + 1];
                }
                window[kept_taps - 1] = now[t];
            }
        }
    }
};

/// A workgroup has delta_net_columns columns of a head's state. Grid: columns, heads, sequences. Where states are not apart, the workgroups
/// of the first sequence compute all of them, after they have set the states aside: every work-item reads what it wrote itself.
template <uint32_t Size>
STRATA_DEVICE void delta_net_decode(const delta_net_decode_args & a) {
    using rule = delta_rule<false>;
    constexpr uint32_t quads = Size / (4 * state_lanes);
    constexpr uint64_t head_bytes = Size * Size * sizeof(float);
    using part = vector_part<quads>;
    __shared__ float4v keys[delta_net_tokens][2][Size / 4];
    __shared__ float values[delta_net_tokens][delta_net_columns];
    __shared__ float decays[delta_net_tokens];
    __shared__ float betas[delta_net_tokens];

    const uint32_t head = block_y(), first_column = block_x() * delta_net_columns;
    const uint32_t lane = thread_x() % state_lanes, own = thread_x() / state_lanes;
    const uint32_t group = quotient(head, a.key_heads), member = remainder(head, group, a.key_heads);
    const uint32_t key_head = a.neighbours ? group : member;
    // One workgroup of those that need a key's channels keeps what they were.
    const bool keeps_key = first_column == 0 && (a.neighbours ? member : group) == 0;

    // All pointers are read here: the compiler knows them for pointers to global memory only as long as nothing was written.
    const char * const conv_states = static_cast<const char *>(a.input.states);
    const char * const x = static_cast<const char *>(a.input.x);
    char * const before = static_cast<char *>(a.input.before);
    const char * const weights = static_cast<const char *>(a.weights);
    const char * const rows = reinterpret_cast<const char *>(a.rows);
    const char * const decay = static_cast<const char *>(a.decay);
    const char * const beta = static_cast<const char *>(a.beta);
    const uint64_t column_offset = head * head_bytes + (first_column + own) * (Size * sizeof(float));
    const char * const states = static_cast<const char *>(a.states) + column_offset;
    char * const new_states = static_cast<char *>(a.new_states) + column_offset;
    char * const aside = static_cast<char *>(a.aside) + column_offset;
    char * const out = static_cast<char *>(a.out);

    const auto load_state = [&](const char * from) {
        part state;
        for (uint32_t m = 0; m < quads; m++) {
            state.quads[m] = load<float4v>(from, 16 * (lane + state_lanes * m));
        }
        return state;
    };
    const auto store_state = [&](char * to, const part & state) {
        for (uint32_t m = 0; m < quads; m++) {
            store(to, 16 * (lane + state_lanes * m), state.quads[m]);
        }
    };
    // A work-item's channel of the convolution: first those of q, then of k, then of v. Those behind double the last one.
    constexpr uint32_t channels = 2 * Size + delta_net_columns;
    static_assert(channels <= delta_net_block);
    const bool has_channel = thread_x() < channels;
    const uint32_t place = smaller(thread_x(), channels - 1), which = place / Size, element = place % Size;
    const bool of_value = which >= 2;
    // As scalars: a choice of arguments would be a load.
    const uint32_t first_channels[3] = {uniform(a.keys[0].channel) + key_head * Size, uniform(a.keys[1].channel) + key_head * Size,
                                        uniform(a.value_channel) + head * Size + first_column};
    const uint32_t channel = element + (which == 0 ? first_channels[0] : which == 1 ? first_channels[1] : first_channels[2]);

    const bool apart = a.sequences == 1 || states_are_apart(a);
    if (!apart) {
        if (block_z() != 0) {
            return;
        }
        for (uint32_t s = 0; s < a.sequences; s++) {
            const uint32_t row = uniform(load<uint32_t>(rows, s * 4));
            store_state(aside + s * (a.heads * head_bytes), load_state(states + row * a.state_stride));
        }
    }
    const uint32_t end = apart ? block_z() + 1 : a.sequences;
    for (uint32_t sequence = block_z(); sequence < end; sequence++) {
        // Everything is asked for at once, and the state last: memory answers in this order.
        const uint32_t loaded_row = load<uint32_t>(rows, sequence * 4);
        conv_channel conv;
        conv.load(a, weights, x + sequence * a.input.sequence_stride, channel);
        const uint64_t token = sequence * static_cast<uint64_t>(a.tokens) + smaller(thread_x(), a.tokens - 1);
        const uint64_t number = (token * a.heads + head) * sizeof(float);
        const float own_decay = load<float>(decay + number), own_beta = load<float>(beta + number);
        keep_order();
        const uint32_t row = uniform(loaded_row);
        conv.load_before(conv_states + row * a.input.state_stride, channel);
        keep_order();
        part state = load_state(apart ? states + row * a.state_stride : aside + sequence * (a.heads * head_bytes));
        keep_order();
        if (has_channel) {
            if (of_value || keeps_key) {
                conv.keep(before + (sequence * static_cast<uint64_t>(a.input.channels) + channel) * (kept_taps * 4));
            }
            conv.convolve(a, of_value ? &values[0][element] : &reinterpret_cast<float *>(keys[0][which])[element],
                          of_value ? delta_net_columns : 2 * Size);
        }
        if (thread_x() < a.tokens) {
            decays[thread_x()] = exp(own_decay);
            betas[thread_x()] = own_beta;
        }
        lds_barrier();

        // The norm of q and k: a wave a vector.
        for (uint32_t i = uniform(thread_x() / wave_size); i < 2 * a.tokens; i += delta_net_block / wave_size) {
            const delta_net_key & key = a.keys[i % 2];
            float4v * const at = &keys[i / 2][i % 2][lane_id()];
            const bool has_elements = 4 * lane_id() < Size;
            float4v v = {0.0f, 0.0f, 0.0f, 0.0f}, sums = {0.0f, 0.0f, 0.0f, 0.0f};
            if (has_elements) {
                v = *at;
            }
            add_squares(sums, v);
            v *= rms_scale(wave_sum(lane_total(sums)), Size, key.eps);
            for (uint32_t e = 0; e < 4; e++) {
                v[e] = fma(v[e], key.scale, key.bias);
            }
            if (has_elements) {
                *at = v;
            }
        }
        lds_barrier();

        // The recurrence.
        for (uint32_t t = 0; t < a.tokens; t++) {
            const float numbers[rule::numbers] = {values[t][own], betas[t], decays[t]};
            const auto key = [&](uint32_t r) {
                part v;
                for (uint32_t m = 0; m < quads; m++) {
                    v.quads[m] = keys[t][r][lane + state_lanes * m];
                }
                return v;
            };
            const float result = rule::step<state_lanes>(state, key, [&](uint32_t n) { return numbers[n]; }, state);
            if (lane == 0) {
                const uint64_t at = ((sequence * static_cast<uint64_t>(a.tokens) + t) * a.heads + head) * Size;
                store(out + at * sizeof(float), (first_column + own) * 4, result * a.scale);
            }
            const uint32_t left = a.tokens - 1 - t;
            if (left < a.snapshots) {
                store_state(new_states + (sequence * a.state_stride + left * a.snapshot_stride), state);
            }
        }
        lds_barrier();  // before the next sequence is staged
    }
}

STRATA_KERNEL(delta_net_block) void delta_net_decode_64(delta_net_decode_args a) { delta_net_decode<64>(a); }
STRATA_KERNEL(delta_net_block) void delta_net_decode_128(delta_net_decode_args a) { delta_net_decode<128>(a); }

/// The norm of a head's result times SiLU or the sigmoid of the gate: a wave a row.
STRATA_DEVICE void gated_norm(const delta_net_finish_args & a) {
    const uint32_t row = uniform(block_x() * norm_waves + thread_x() / wave_size), sequence = block_y();
    if (row >= a.tokens * a.heads.divisor) {
        return;
    }
    const uint32_t token = quotient(row, a.heads), head = remainder(row, token, a.heads), e = 4 * lane_id();
    const uint64_t first = (sequence * static_cast<uint64_t>(a.tokens * a.heads.divisor) + row) * a.size;
    float * const out = static_cast<float *>(a.out) + first;
    const float * const gate = reinterpret_cast<const float *>(
        static_cast<const char *>(a.gate.data) + (head * a.gate.stride[0] + token * a.gate.stride[1] + sequence * a.gate.stride[2]));
    float4v v = load_part<true>(out, e, a.size), sums = {0.0f, 0.0f, 0.0f, 0.0f};
    const float4v weight = load_part<true>(static_cast<const float *>(a.weight), e, a.size), g = load_part<true>(gate, e, a.size);
    add_squares(sums, v);
    v *= rms_scale(wave_sum(lane_total(sums)), a.size, a.eps);
    v *= weight;
    for (uint32_t i = 0; i < 4; i++) {
        v[i] *= a.sigmoid_gate ? sigmoid(g[i]) : silu(g[i]);
    }
    store_part<true>(out, e, a.size, v);
    if (a.values && e < a.size) {
        store_q8_1(static_cast<char *>(a.values) + first, static_cast<char *>(a.meta) + first / 32 * sizeof(q8_1_meta), e, v);
    }
}

/// The last numbers of a channel, as they are after each of the tokens that are asked for.
STRATA_DEVICE void keep_inputs(const delta_net_finish_args & a) {
    const uint32_t channel = (block_x() - a.norm_blocks) * norm_block + thread_x(), sequence = block_y();
    if (channel >= a.input.channels) {
        return;
    }
    const char * const before = static_cast<const char *>(a.input.before) +
                                (sequence * static_cast<uint64_t>(a.input.channels) + channel) * (kept_taps * 4);
    const char * const x = static_cast<const char *>(a.input.x) + (sequence * a.input.sequence_stride + channel * 4);
    for (uint32_t c = 0; c < a.copy_count; c++) {
        char * const to = static_cast<char *>(a.copies[c]) + (sequence * a.copy_stride + channel * (kept_taps * 4));
        for (uint32_t k = 0; k < kept_taps; k++) {
            const uint32_t from = a.first[c] + k;
            store(to, k * 4, from < kept_taps ? load<float>(before, from * 4) : load<float>(x + (from - kept_taps) * a.input.token_stride));
        }
    }
}

/// Grid: rows of norms, then channels; sequences.
STRATA_KERNEL(norm_block) void delta_net_finish(delta_net_finish_args a) {
    if (block_x() < a.norm_blocks) {
        gated_norm(a);
    } else {
        keep_inputs(a);
    }
}

}  // namespace strata
