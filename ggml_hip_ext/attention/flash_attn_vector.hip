// Attention for few query rows (decode): a workgroup takes up to R packed query rows of one key/value head, so each key
// and value is read once for all of them. A group of lanes shares a key, each lane holding 8-channel chunks of it, 16 bytes a load;
// scores are summed over the group by DPP. Every group keeps its own online softmax over its keys (the groups of the four
// waves take turns), merged at the end through LDS. Long sequences are split over workgroups and combined by a second kernel.
// Keys and values of other types than f16 become f16 in registers.
#include "flash_attn.h"
#include "strata/kv.h"

namespace strata::attention {

/// `Typed`: keys and values have the types that the arguments say; else they are f16.
template <uint32_t D, uint32_t R, bool Typed>
struct vector_shape {
    static constexpr uint32_t chunks = D / 8;
    // Lanes a key. More rows, and decoding, need more registers a channel, hence fewer channels a lane.
    static constexpr uint32_t lanes_for(uint32_t chunks_a_lane) {
        uint32_t lanes = 1;
        while (lanes * chunks_a_lane < chunks) {
            lanes *= 2;
        }
        return lanes;
    }
    static constexpr uint32_t lanes = lanes_for(R > 4 || Typed ? 1 : D % 128 == 0 || D == 64 ? 2 : D == 96 ? 3 : 1);
    static constexpr uint32_t lane_chunks = (chunks + lanes - 1) / lanes;
    static constexpr uint32_t groups = 32 / lanes;
    static constexpr uint32_t unroll = 4;  // keys of a group in flight
    static constexpr uint32_t keys = groups * unroll;
    static constexpr uint32_t waves = 4;
    static constexpr uint32_t threads = waves * 32;
    static constexpr uint32_t padded = lanes * lane_chunks * 8;
    static_assert(D % 8 == 0 && lanes <= 32);
};

template <class Shape, uint32_t R>
struct vector_lds {
    alignas(16) float out[Shape::waves * Shape::groups][R][Shape::padded];
    alignas(16) float maximum[Shape::waves][R];
    alignas(16) float sum[Shape::waves][R];
};

/// Maximum and sum over the groups of `Lanes` lanes of a wave, of values that the lanes of a group share.
template <uint32_t Lanes>
STRATA_DEVICE float max_over_groups(float value) {
    if constexpr (Lanes <= 16) value = max(value, lane_xor<16>(value));
    if constexpr (Lanes <= 8) value = max(value, lane_xor<8>(value));
    if constexpr (Lanes <= 4) value = max(value, lane_xor<4>(value));
    static_assert(Lanes >= 4);
    return value;
}

template <uint32_t Lanes>
STRATA_DEVICE float sum_over_groups(float value) {
    if constexpr (Lanes <= 16) value += lane_xor<16>(value);
    if constexpr (Lanes <= 8) value += lane_xor<8>(value);
    if constexpr (Lanes <= 4) value += lane_xor<4>(value);
    static_assert(Lanes >= 4);
    return value;
}

/// Mask of 4 neighbouring keys of a row, of which only `count` exist.
STRATA_DEVICE uint2v tail_mask(const char * mask, uint32_t offset, int32_t count) {
    uint2v words;
    for (int32_t i = 0; i < 2; ++i) {
        const uint32_t low = 2 * i >= count ? 0xfc00u : mask ? load<uint16_t>(mask, offset + i * 4) : 0;
        const uint32_t high = 2 * i + 1 >= count ? 0xfc00u : mask ? load<uint16_t>(mask, offset + i * 4 + 2) : 0;
        words[i] = low | high << 16;
    }
    return words;
}

template <uint32_t D, uint32_t R, bool Typed>
STRATA_DEVICE void attention_vector(const flash_attn_args & a) {
    using shape = vector_shape<D, R, Typed>;
    constexpr uint32_t chunks = shape::lane_chunks;
    constexpr uint32_t unroll = shape::unroll;
    static_assert(unroll == 4);
    __shared__ vector_lds<shape, R> lds;
    const kv_format k_format = Typed ? a.k_format : kv_format{};
    const kv_format v_format = Typed ? a.v_format : kv_format{};

    const uint32_t wave = uniform(thread_x() / 32);
    const uint32_t group = lane_id() / shape::lanes;
    const uint32_t member = lane_id() % shape::lanes;
    const uint32_t kv_head = block_y();
    const uint32_t batch = quotient(block_z(), a.n_splits);
    const uint32_t split = remainder(block_z(), a.n_splits);
    const uint32_t n_rows = a.n_q * a.heads_per_kv;
    const uint32_t first_row = block_x() * R;

    // Rows behind the last one repeat it.
    query_row where[R];
    where[0] = unpack_row(a, kv_head, first_row);
    for (uint32_t r = 1; r < R; ++r) {
        where[r] = where[r - 1];
        if (first_row + r < n_rows) {
            const bool same_query = ++where[r].head < (kv_head + 1) * a.heads_per_kv;
            where[r].head = same_query ? where[r].head : kv_head * a.heads_per_kv;
            where[r].query += same_query ? 0 : 1;
        }
    }

    // Chunk j of this lane covers channels 8 (j lanes + member) and following; chunks behind the head read the first one, times 0.
    uint32_t chunk_channel[chunks];
    kv_place k_place[chunks], v_place[chunks];
    for (uint32_t j = 0; j < chunks; ++j) {
        const uint32_t chunk = j * shape::lanes + member;
        chunk_channel[j] = shape::padded == D || chunk < shape::chunks ? chunk * 8 : 0;
        k_place[j] = place_of(k_format, chunk_channel[j]);
        v_place[j] = place_of(v_format, chunk_channel[j]);
    }
    half2 q[R][chunks][4];
    float slope[R];
    uint32_t mask_row[R];
    for (uint32_t r = 0; r < R; ++r) {
        const char * source = static_cast<const char *>(a.q) + where[r].query * a.q_nb[0] + where[r].head * a.q_nb[1] + batch * a.q_nb[2];
        for (uint32_t j = 0; j < chunks; ++j) {
            const bool exists = shape::padded == D || j * shape::lanes + member < shape::chunks;
            const float scale = exists ? a.q_scale : 0.0f;
            for (uint32_t i = 0; i < 2; ++i) {
                const float4v x = load<float4v>(source, chunk_channel[j] * 4 + i * 16) * scale;
                q[r][j][2 * i] = half2{static_cast<half>(x[0]), static_cast<half>(x[1])};
                q[r][j][2 * i + 1] = half2{static_cast<half>(x[2]), static_cast<half>(x[3])};
            }
        }
        slope[r] = mask_scale(a, where[r].head);
        if constexpr (shape::groups > 1) {
            // In a scalar register; those are short where a wave has one group, whose offsets are the same in all lanes.
            slope[r] = bit_cast<float>(uniform(bit_cast<uint32_t>(slope[r])));
        }
        mask_row[r] = mask_offset(a, batch, where[r]);
    }
    // With one query and one mask for all heads, all rows share their mask.
    const bool shared_mask = a.n_q == 1 && a.mask_heads == 1;

    const char * k = static_cast<const char *>(a.k) + kv_head * a.k_nb[1] + batch * a.k_nb[2];
    const char * v = static_cast<const char *>(a.v) + kv_head * a.v_nb[1] + batch * a.v_nb[2];
    const char * mask = static_cast<const char *>(a.mask);
    const uint32_t k_nb = static_cast<uint32_t>(a.k_nb[0]);
    const uint32_t v_nb = static_cast<uint32_t>(a.v_nb[0]);

    float out[R][chunks][8];
    float maximum[R], sum[R];
    for (uint32_t r = 0; r < R; ++r) {
        for (uint32_t j = 0; j < chunks; ++j) {
            for (uint32_t i = 0; i < 8; ++i) {
                out[r][j][i] = 0.0f;
            }
        }
        maximum[r] = lowest_max;
        sum[r] = 0.0f;
    }

    const uint32_t begin = split * a.keys_per_split;
    const uint32_t end = min(begin + a.keys_per_split, a.n_kv);
    for (uint32_t first = begin + wave * shape::keys; first < end; first += shape::waves * shape::keys) {
        const uint32_t key = first + group * unroll;
        const bool partial = first + shape::keys > end;

        uint2v words[R];
        if (partial) {
            for (uint32_t r = 0; r < R; ++r) {
                words[r] = tail_mask(mask, mask_row[r] + key * 2, static_cast<int32_t>(end - key));
            }
        } else if (mask) {
            words[0] = load<uint2v>(mask, mask_row[0] + key * 2);
            if (shared_mask) {
                for (uint32_t r = 1; r < R; ++r) {
                    words[r] = words[0];
                }
            } else {
                for (uint32_t r = 1; r < R; ++r) {
                    words[r] = load<uint2v>(mask, mask_row[r] + key * 2);
                }
            }
        } else {
            for (uint32_t r = 0; r < R; ++r) {
                words[r] = uint2v{0, 0};
            }
        }
        uint32_t any = 0;
        for (uint32_t r = 0; r < R; ++r) {
            any |= (words[r][0] ^ packed_minus_infinity) | (words[r][1] ^ packed_minus_infinity);
        }
        if (!any_lane(any != 0)) {
            continue;
        }

        const char * k_first = k + first * a.k_nb[0];
        const char * v_first = v + first * a.v_nb[0];
        const uint32_t last = end - 1 - first;
        uint32_t k_offset[unroll], v_offset[unroll];
        const uint32_t group_row = Typed ? recomputed(group * unroll) : group * unroll;   // else the offsets would occupy registers all the time
        for (uint32_t u = 0; u < unroll; ++u) {
            const uint32_t row = partial ? min(group_row + u, last) : group_row + u;
            k_offset[u] = row * k_nb;
            v_offset[u] = row * v_nb;
        }
        uint4v keys[unroll][chunks], values[unroll][chunks];
        const auto all = [](uint32_t) { return true; };
        const auto k_at = [&](uint32_t i) { return k_place[i % chunks]; };
        const auto v_at = [&](uint32_t i) { return v_place[i % chunks]; };
        load_eights<unroll * chunks>(k_format, k_first, keys[0], k_at, [&](uint32_t i) { return k_offset[i / chunks] + k_at(i).offset; }, all);
        const auto load_values = [&] {
            load_eights<unroll * chunks>(v_format, v_first, values[0], v_at, [&](uint32_t i) { return v_offset[i / chunks] + v_at(i).offset; }, all);
        };
        if constexpr (Typed) {
            decode_eights<unroll * chunks>(k_format, keys[0], k_at);
        } else {
            load_values();
        }

        float s[R][unroll];
        for (uint32_t r = 0; r < R; ++r) {
            for (uint32_t u = 0; u < unroll; ++u) {
                float dot = 0.0f;
                for (uint32_t j = 0; j < chunks; ++j) {
                    for (uint32_t i = 0; i < 4; ++i) {
                        dot = dot2(bit_cast<half2>(keys[u][j][i]), q[r][j][i], dot);
                    }
                }
                s[r][u] = wave_sum<shape::lanes>(dot);
            }
        }
        if (a.softcap != 0.0f) {
            for (uint32_t r = 0; r < R; ++r) {
                for (uint32_t u = 0; u < unroll; ++u) {
                    s[r][u] = capped(s[r][u], a.softcap);
                }
            }
        }
        float highest[R];
        bool moves = false;
        for (uint32_t r = 0; r < R; ++r) {
            for (uint32_t u = 0; u < unroll; ++u) {
                s[r][u] = fma(static_cast<float>(half_of(words[r], u)), slope[r], s[r][u]);
            }
            highest[r] = max(max(s[r][0], s[r][1]), max(s[r][2], s[r][3]));
            moves |= highest[r] > maximum[r] + max_slack;
        }
        if (any_lane(moves)) {
            for (uint32_t r = 0; r < R; ++r) {
                const float moved = highest[r] > maximum[r] + max_slack ? highest[r] : maximum[r];
                const float factor = exp2_fast(maximum[r] - moved);
                maximum[r] = moved;
                sum[r] *= factor;
                for (uint32_t j = 0; j < chunks; ++j) {
                    for (uint32_t i = 0; i < 8; ++i) {
                        out[r][j][i] *= factor;
                    }
                }
            }
        }
        if constexpr (Typed) {
            // Not earlier: registers are short.
            keep_order();
            load_values();
            decode_eights<unroll * chunks>(v_format, values[0], v_at);
        }
        // Two keys at a time: weights and values as f16 pairs.
        for (uint32_t u = 0; u < unroll; u += 2) {
            half2 p[R];
            for (uint32_t r = 0; r < R; ++r) {
                p[r] = pack_towards_zero(exp2_fast(s[r][u] - maximum[r]), exp2_fast(s[r][u + 1] - maximum[r]));
                // The sum takes the rounded weights, so that rounding does not bias the mean.
                sum[r] = dot2(p[r], half2{1, 1}, sum[r]);
            }
            for (uint32_t j = 0; j < chunks; ++j) {
                for (uint32_t i = 0; i < 4; ++i) {
                    const half2 even = bit_cast<half2>(pack_low(values[u][j][i], values[u + 1][j][i]));
                    const half2 odd = bit_cast<half2>(pack_high(values[u][j][i], values[u + 1][j][i]));
                    for (uint32_t r = 0; r < R; ++r) {
                        out[r][j][2 * i] = dot2(even, p[r], out[r][j][2 * i]);
                        out[r][j][2 * i + 1] = dot2(odd, p[r], out[r][j][2 * i + 1]);
                    }
                }
            }
        }
    }

    // The maximum of all groups of all waves, then everything relative to it.
    float wave_maximum[R];
    for (uint32_t r = 0; r < R; ++r) {
        wave_maximum[r] = max_over_groups<shape::lanes>(maximum[r]);
    }
    if (lane_id() == 0) {
        for (uint32_t r = 0; r < R; ++r) {
            lds.maximum[wave][r] = wave_maximum[r];
        }
    }
    lds_barrier();
    for (uint32_t r = 0; r < R; ++r) {
        float m = lds.maximum[0][r];
        for (uint32_t w = 1; w < shape::waves; ++w) {
            m = max(m, lds.maximum[w][r]);
        }
        const float factor = exp2_fast(maximum[r] - m);
        for (uint32_t j = 0; j < chunks; ++j) {
            float * to = lds.out[wave * shape::groups + group][r] + (j * shape::lanes + member) * 8;
            for (uint32_t i = 0; i < 2; ++i) {
                const float * o = out[r][j] + 4 * i;
                *reinterpret_cast<float4v *>(to + 4 * i) = float4v{o[0] * factor, o[1] * factor, o[2] * factor, o[3] * factor};
            }
        }
        sum[r] = sum_over_groups<shape::lanes>(sum[r] * factor);
    }
    if (lane_id() == 0) {
        for (uint32_t r = 0; r < R; ++r) {
            lds.sum[wave][r] = sum[r];
        }
    }
    lds_barrier();

    const uint32_t rows = min(R, n_rows - first_row);
    constexpr uint32_t quads = D / 4;
    for (uint32_t index = thread_x(); index < rows * quads; index += shape::threads) {
        const uint32_t r = index / quads;
        const uint32_t channel = index % quads * 4;
        float m = lds.maximum[0][r];
        float total = lds.sum[0][r];
        for (uint32_t w = 1; w < shape::waves; ++w) {
            m = max(m, lds.maximum[w][r]);
            total += lds.sum[w][r];
        }
        float4v o = *reinterpret_cast<const float4v *>(lds.out[0][r] + channel);
        for (uint32_t g = 1; g < shape::waves * shape::groups; ++g) {
            o += *reinterpret_cast<const float4v *>(lds.out[g][r] + channel);
        }
        const query_row at = unpack_row(a, kv_head, first_row + r);
        const uint64_t to = dst_row(a, batch, at);
        if (a.n_splits == 1) {
            store(static_cast<char *>(a.dst) + (to * D + channel) * 4, 0, o * final_factor(a.sinks, at.head, m, total));
        } else {
            const uint64_t slot = static_cast<uint64_t>(split) * (a.n_batch * a.n_q * a.n_head) + to;
            store(a.partial + slot * D + channel, 0, o);
            if (channel == 0) {
                store(a.partial_max + slot * 2, 0, float2v{m, total});
            }
        }
    }
}

/// A wave a row of dst: the partial results of at most 32 splits, weighted.
STRATA_DEVICE void attention_combine(const flash_attn_combine_args & a) {
    const uint32_t row = block_x() * 4 + uniform(thread_x() / 32);
    if (row >= a.n_rows) {
        return;
    }
    const uint32_t lane = lane_id();
    float2v own = {lowest_max, 0.0f};
    if (lane < a.n_splits) {
        own = load<float2v>(a.partial_max + (static_cast<uint64_t>(lane) * a.n_rows + row) * 2);
    }
    const float maximum = wave_max(own[0]);
    const float weight = exp2_fast(own[0] - maximum);
    const float factor = final_factor(a.sinks, row % a.n_head, maximum, wave_sum(own[1] * weight));
    for (uint32_t first = 0; first < a.head_size; first += 128) {
        // All lanes stay active, as weights are read from them; those behind the head load its first channels and store nothing.
        const uint32_t channel = first + lane * 4;
        const uint32_t from = channel < a.head_size ? channel : 0;
        float4v o = {0, 0, 0, 0};
        for (uint32_t s = 0; s < a.n_splits; ++s) {
            const float w = lane_value(weight, s);
            const float4v x = load<float4v>(a.partial + (static_cast<uint64_t>(s) * a.n_rows + row) * a.head_size, from * 4);
            for (uint32_t i = 0; i < 4; ++i) {
                o[i] = fma(x[i], w, o[i]);
            }
        }
        if (channel < a.head_size) {
            store(static_cast<char *>(a.dst) + static_cast<uint64_t>(row) * a.head_size * 4, channel * 4, o * factor);
        }
    }
}

}  // namespace strata::attention

#define STRATA_ATTENTION_VECTOR(D, R, suffix, typed)                \
    STRATA_KERNEL((strata::attention::vector_shape<D, R, typed>::threads)) \
    void flash_attn_vector_d##D##_r##R##suffix(strata::flash_attn_args a) { strata::attention::attention_vector<D, R, typed>(a); }

#define STRATA_ATTENTION_VECTOR_ROWS(D)         \
    STRATA_ATTENTION_VECTOR(D, 1, , false)      \
    STRATA_ATTENTION_VECTOR(D, 2, , false)      \
    STRATA_ATTENTION_VECTOR(D, 3, , false)      \
    STRATA_ATTENTION_VECTOR(D, 4, , false)      \
    STRATA_ATTENTION_VECTOR(D, 8, , false)      \
    STRATA_ATTENTION_VECTOR(D, 1, _typed, true) \
    STRATA_ATTENTION_VECTOR(D, 4, _typed, true) \
    STRATA_ATTENTION_VECTOR(D, 8, _typed, true)

STRATA_ATTENTION_VECTOR_ROWS(40)
STRATA_ATTENTION_VECTOR_ROWS(64)
STRATA_ATTENTION_VECTOR_ROWS(72)
STRATA_ATTENTION_VECTOR_ROWS(80)
STRATA_ATTENTION_VECTOR_ROWS(96)
STRATA_ATTENTION_VECTOR_ROWS(112)
STRATA_ATTENTION_VECTOR_ROWS(128)
STRATA_ATTENTION_VECTOR_ROWS(256)

STRATA_KERNEL(128) void flash_attn_combine(strata::flash_attn_combine_args a) { strata::attention::attention_combine(a); }
