// Attention for few query rows (decode): a workgroup takes up to R packed query rows of one key/value head, so each key
// and value is read once for all of them. A group of lanes shares a key, each lane holding 8-channel chunks of it, 16 bytes a load. The
// scores of a group's four keys with all rows are summed over its lanes so that each lane ends with its own of them: mask, maximum and
// exponential are computed once a score, and the weights come back to all lanes of the group by DPP or as scalars.
// Every group keeps its own online softmax over its keys (the groups of the four waves take turns), merged at the end through LDS. The
// next keys are asked for as soon as these have met the queries, the next values when these are added. Steps that the mask excludes for all
// rows are found beforehand, 32 at a time, and skipped. Long sequences are split over workgroups and combined by a second kernel.
// Keys and values of other types than f16 become f16 in registers.
#include "flash_attn.h"
#include "strata/kv.h"
#include "strata/lane_share.h"

namespace strata::attention {

template <uint32_t D, uint32_t R, kv_types Types>
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
    static constexpr uint32_t lanes = lanes_for(R > 4 || Types != kv_types::f16 ? 1 : D % 128 == 0 || D == 64 ? 2 : D == 96 && R <= 2 ? 3 : 1);
    static constexpr uint32_t lane_chunks = (chunks + lanes - 1) / lanes;
    static constexpr uint32_t groups = 32 / lanes;
    static constexpr uint32_t unroll = 4;  // keys of a group and step
    static constexpr uint32_t keys = groups * unroll;
    static constexpr uint32_t waves = 4;
    static constexpr uint32_t threads = waves * 32;
    static constexpr uint32_t padded = lanes * lane_chunks * 8;
    // Scores of a group and step, row by row, as if the rows were a power of two: lane `member` gets those from member * scores / lanes on.
    static constexpr uint32_t row_slots = R > 4 ? 8 : R > 2 ? 4 : R;
    static constexpr uint32_t scores = row_slots * unroll;
    static constexpr uint32_t lane_scores = scores > lanes ? scores / lanes : 1;
    static constexpr uint32_t score_lanes = scores < lanes ? lanes / scores : 1;           // that have the same score
    static constexpr uint32_t pair_lanes = lane_scores == 1 ? 2 * score_lanes : 1;         // that have the scores of two neighbouring keys
    static constexpr uint32_t row_lanes = lanes / row_slots;                               // that have scores of a row
    static_assert(D % 8 == 0 && lanes >= 4 && lanes <= 32 && R <= 8 && lane_scores <= unroll);
};

template <class Shape, uint32_t R>
struct vector_lds {
    alignas(16) float out[Shape::waves * Shape::groups][R][Shape::padded];
    alignas(16) float maximum[Shape::waves][R];
    alignas(16) float sum[Shape::waves][R];
};

/// Sums `Values` values over groups of 2 * Mask lanes; those from `Present` on are left out. A step halves how many a lane goes on with, as
/// long as there are several: it keeps the upper ones if its bit `Mask` is set.
template <uint32_t Mask, uint32_t Values, uint32_t Present>
STRATA_DEVICE void spread_sums(float * values) {
    if constexpr (Mask > 0) {
        constexpr uint32_t kept = Values > 1 ? Values / 2 : 1;
        const bool upper = (lane_id() & Mask) != 0;
#pragma unroll
        for (uint32_t i = 0; i < kept; ++i) {
            if (Values > 1 && i + kept < Present) {
                const float low = values[i], high = values[i + kept];   // as values: a choice of array elements would index registers
                const float mine = upper ? high : low, other = upper ? low : high;
                values[i] = mine + lane_xor<Mask>(other);
            } else if (i < Present) {
                values[i] += lane_xor<Mask>(values[i]);
            }
        }
        spread_sums<Mask / 2, kept, kept < Present ? kept : Present>(values);
    }
}

/// Maximum (sum) over lanes that differ in the bits from `First` up to below `End`.
template <uint32_t First, uint32_t End>
STRATA_DEVICE float max_over_lanes(float value) {
    if constexpr (First < End) {
        return max_over_lanes<First * 2, End>(max(value, lane_xor<First>(value)));
    } else {
        return value;
    }
}

template <uint32_t First, uint32_t End>
STRATA_DEVICE float sum_over_lanes(float value) {
    if constexpr (First < End) {
        return sum_over_lanes<First * 2, End>(value + lane_xor<First>(value));
    } else {
        return value;
    }
}

/// The steps in which some row has an unmasked key, of 32 that begin at `from` and are `stride` keys apart: a bit each. Steps that are
/// not whole, or lie behind the end, count as if they had one.
template <class Shape, uint32_t R>
STRATA_DEVICE uint32_t unmasked_steps(const flash_attn_args & a, const char * mask, uint32_t batch, uint32_t kv_head, uint32_t first_row, uint32_t from,
                                      uint32_t stride, uint32_t end) {
    uint32_t heads_per_kv = a.heads_per_kv;
    if constexpr (R > 4) {
        // Computed anew each time: kept from call to call, what follows from these takes scalar registers that decoding needs.
        asm volatile("" : "+s"(first_row), "+s"(heads_per_kv));
    }
    const uint32_t first = from + lane_id() * stride;
    bool wanted = true;
    if (first + Shape::keys <= end) {
        const uint32_t last_row = min(first_row + R, a.n_q * heads_per_kv) - 1;
        const query_row place = unpack_row(heads_per_kv, kv_head, first_row);
        // Rows of one query share their mask, if all heads do.
        const bool by_query = a.mask_heads == 1;
        const uint32_t masks = by_query ? unpack_row(heads_per_kv, kv_head, last_row).query - place.query + 1 : last_row - first_row + 1;
        uint32_t any = 0;
        for (uint32_t n = 0; n < masks; ++n) {
            const query_row of = by_query ? query_row{place.query + n, 0} : unpack_row(heads_per_kv, kv_head, first_row + n);
            const uint32_t offset = mask_offset(a, batch, of) + first * 2;
            for (uint32_t i = 0; i < Shape::groups; ++i) {
                const uint2v words = load<uint2v>(mask, offset, i * 8);
                any |= (words[0] ^ packed_minus_infinity) | (words[1] ^ packed_minus_infinity);
            }
        }
        wanted = any != 0;
    }
    return lanes_where(wanted);
}

template <uint32_t D, uint32_t R, kv_types Types>
STRATA_DEVICE void attention_vector(const flash_attn_args & a) {
    using shape = vector_shape<D, R, Types>;
    constexpr uint32_t chunks = shape::lane_chunks;
    constexpr uint32_t unroll = shape::unroll;
    constexpr uint32_t lanes = shape::lanes;
    constexpr uint32_t lane_scores = shape::lane_scores;
    static_assert(unroll == 4);
    __shared__ vector_lds<shape, R> lds;
    kv_format k_format = format_of<Types>(a.k_format);
    kv_format v_format = format_of<Types>(a.v_format);
    if constexpr (Types == kv_types::any && R > 4) {
        // Vector registers are left over, scalar ones are not.
        k_format.biased = recomputed(k_format.biased);
        v_format.biased = recomputed(v_format.biased);
    }

    const uint32_t wave = uniform(thread_x() / 32);
    const uint32_t group = shape::groups == 1 ? 0 : lane_id() / lanes;
    const uint32_t member = lane_id() % lanes;
    const uint32_t kv_head = block_y();
    const uint32_t batch = quotient(block_z(), a.n_splits);
    const uint32_t split = remainder(block_z(), a.n_splits);
    const uint32_t n_rows = a.n_q * a.heads_per_kv;
    const uint32_t first_row = block_x() * R;

    // Chunk j of this lane covers channels 8 (j lanes + member) and following; chunks behind the head read the first one, times 0.
    uint32_t chunk_channel[chunks];
    kv_place k_place[chunks], v_place[chunks];
    for (uint32_t j = 0; j < chunks; ++j) {
        const uint32_t chunk = j * lanes + member;
        chunk_channel[j] = shape::padded == D || chunk < shape::chunks ? chunk * 8 : 0;
        k_place[j] = place_of(k_format, chunk_channel[j]);
        v_place[j] = place_of(v_format, chunk_channel[j]);
    }
    float4v queries[R][chunks][2];
    query_row place = unpack_row(a, kv_head, first_row);
    for (uint32_t r = 0; r < R; ++r) {
        const char * source = static_cast<const char *>(a.q) + place.query * a.q_nb[0] + place.head * a.q_nb[1] + batch * a.q_nb[2];
        for (uint32_t j = 0; j < chunks; ++j) {
            for (uint32_t i = 0; i < 2; ++i) {
                queries[r][j][i] = load<float4v>(source, chunk_channel[j] * 4 + i * 16);
            }
        }
        // Rows behind the last one repeat it.
        place.head += first_row + r + 1 < n_rows ? 1 : 0;
        const bool next_query = place.head == (kv_head + 1) * a.heads_per_kv;
        place.head -= next_query ? a.heads_per_kv : 0;
        place.query += next_query ? 1 : 0;
    }

    // This lane's scores: of `lane_scores` keys of a step from my_key on, with row my_row.
    const uint32_t my_score = member * shape::scores / lanes;
    const uint32_t my_row = my_score / unroll;
    const uint32_t my_key = group * unroll + my_score % unroll;
    const query_row my_place = unpack_row(a, kv_head, min(first_row + min(my_row, R - 1), n_rows - 1));
    const float slope = mask_scale(a, my_place.head);

    const char * k = static_cast<const char *>(a.k) + kv_head * a.k_nb[1] + batch * a.k_nb[2];
    const char * v = static_cast<const char *>(a.v) + kv_head * a.v_nb[1] + batch * a.v_nb[2];
    const char * mask = static_cast<const char *>(a.mask);
    // Without a mask, keys are read in its place and count as 0: the number of loads in flight is then always the same.
    const char * mask_or_keys = mask ? mask : k;
    const uint32_t my_mask = (mask ? mask_offset(a, batch, my_place) : 0) + my_key * 2;
    const uint32_t k_nb = static_cast<uint32_t>(a.k_nb[0]);
    const uint32_t v_nb = static_cast<uint32_t>(a.v_nb[0]);

    const uint32_t begin = split * a.keys_per_split;
    const uint32_t end = min(begin + a.keys_per_split, a.n_kv);
    constexpr uint32_t stride = shape::waves * shape::keys;
    // Steps of this wave with an unmasked key, of 32 from the key `from` on.
    const auto steps_from = [&](uint32_t from) {
        if (from >= end) {
            return 0u;
        }
        const uint32_t steps = min((end - from + stride - 1) / stride, 32);
        const uint32_t exist = steps == 32 ? ~0u : (1u << steps) - 1;
        return mask ? exist & unmasked_steps<shape, R>(a, mask, batch, kv_head, first_row, from, stride, end) : exist;
    };
    uint4v keys[unroll][chunks], values[unroll][chunks];
    half mine[lane_scores];   // mask of this lane's keys
    const auto all = [](uint32_t) { return true; };
    const auto k_at = [&](uint32_t i) { return k_place[i % chunks]; };
    const auto v_at = [&](uint32_t i) { return v_place[i % chunks]; };
    // Row of a key of the step that begins at `first`; the last one that exists stands in for those that do not.
    const auto row_of = [&](uint32_t first, uint32_t u) { return min(group * unroll + u, end - 1 - first); };
    const auto fetch_keys = [&](uint32_t first) {
        const char * masks = mask_or_keys + first * 2;
        if (lane_scores == 1 || first + shape::keys > end) {
            for (uint32_t i = 0; i < lane_scores; ++i) {
                const uint32_t behind = my_key + i - min(my_key + i, end - 1 - first);
                mine[i] = load<half>(masks, my_mask + (i - behind) * 2);
            }
        } else {
            using halves = half __attribute__((ext_vector_type(lane_scores)));
            const halves several = load<halves>(masks, my_mask);
            for (uint32_t i = 0; i < lane_scores; ++i) {
                mine[i] = several[i];
            }
        }
        uint32_t row[unroll];
        for (uint32_t u = 0; u < unroll; ++u) {
            row[u] = row_of(first, u) * k_nb;
        }
        load_eights<unroll * chunks>(k_format, k + first * a.k_nb[0], keys[0], k_at, [&](uint32_t i) { return row[i / chunks] + k_at(i).offset; },
                                     all);
    };
    const auto fetch_values = [&](uint32_t first) {
        uint32_t row[unroll];
        for (uint32_t u = 0; u < unroll; ++u) {
            row[u] = row_of(first, u) * v_nb;
        }
        load_eights<unroll * chunks>(v_format, v + first * a.v_nb[0], values[0], v_at, [&](uint32_t i) { return row[i / chunks] + v_at(i).offset; },
                                     all);
    };

    uint32_t from = begin + wave * shape::keys;
    // The first step is asked for before it is known whether the mask excludes it.
    const uint32_t fetched = from < end ? from : begin;
    fetch_keys(fetched);
    fetch_values(fetched);
    uint32_t todo = steps_from(from);

    half2 q[R][chunks][4];
    float out[R][chunks][8];
    for (uint32_t r = 0; r < R; ++r) {
        for (uint32_t j = 0; j < chunks; ++j) {
            const bool exists = shape::padded == D || j * lanes + member < shape::chunks;
            const float scale = exists ? a.q_scale : 0.0f;
            for (uint32_t i = 0; i < 2; ++i) {
                const float4v x = queries[r][j][i] * scale;
                q[r][j][2 * i] = half2{static_cast<half>(x[0]), static_cast<half>(x[1])};
                q[r][j][2 * i + 1] = half2{static_cast<half>(x[2]), static_cast<half>(x[3])};
            }
            for (uint32_t i = 0; i < 8; ++i) {
                out[r][j][i] = 0.0f;
            }
        }
    }
    // Of my_row, over this group's keys; the sum only over those of this lane.
    float maximum = lowest_max, sum = 0.0f;

    for (; from < end; from += 32 * stride, todo = steps_from(from)) {
        if (todo == 0) {
            continue;
        }

        uint32_t first = from + __builtin_ctz(todo) * stride;
        if (first != fetched) {
            fetch_keys(first);
            fetch_values(first);
        }
        while (true) {
            todo &= todo - 1;
            const bool more = todo != 0;
            const uint32_t next = more ? from + __builtin_ctz(todo) * stride : first;

            decode_eights<unroll * chunks>(k_format, keys[0], k_at);
            float score[shape::scores];
            for (uint32_t r = 0; r < R; ++r) {
                for (uint32_t u = 0; u < unroll; ++u) {
                    float dot = 0.0f;
                    for (uint32_t j = 0; j < chunks; ++j) {
                        for (uint32_t i = 0; i < 4; ++i) {
                            dot = dot2(bit_cast<half2>(keys[u][j][i]), q[r][j][i], dot);
                        }
                    }
                    score[r * unroll + u] = dot;
                }
            }
            float added[lane_scores];
            for (uint32_t i = 0; i < lane_scores; ++i) {
                const float weighted = mask ? static_cast<float>(mine[i]) * slope : 0.0f;
                added[i] = first + my_key + i < end ? weighted : -infinity();
            }
            // Without a branch, so that the compiler knows how many loads there are: after the last step its keys are read again.
            keep_order();
            fetch_keys(next);
            keep_order();

            spread_sums<lanes / 2, shape::scores, R * unroll>(score);
            float highest = -infinity();
            for (uint32_t i = 0; i < lane_scores; ++i) {
                score[i] = (a.softcap != 0.0f ? capped(score[i], a.softcap) : score[i]) + added[i];
                highest = max(highest, score[i]);
            }
            highest = max_over_lanes<shape::score_lanes, shape::row_lanes>(highest);
            const bool moves = highest > maximum + max_slack;
            if (any_lane(moves)) {
                const float moved = moves ? highest : maximum;
                const float factor = exp2_fast(maximum - moved);
                maximum = moved;
                sum *= factor;
                float factors[R];
                values_of_members<lanes, shape::row_lanes, R>(factor, factors);
                for (uint32_t r = 0; r < R; ++r) {
                    for (uint32_t j = 0; j < chunks; ++j) {
                        for (uint32_t i = 0; i < 8; ++i) {
                            out[r][j][i] *= factors[r];
                        }
                    }
                }
            }
            // Weights of two neighbouring keys as f16 pairs. The sum takes the rounded weights, so that rounding does not bias the mean.
            half2 weights[2][R];
            if constexpr (lane_scores == 4) {
                for (uint32_t i = 0; i < 2; ++i) {
                    const half2 pair = pack_towards_zero(exp2_fast(score[2 * i] - maximum), exp2_fast(score[2 * i + 1] - maximum));
                    sum = dot2(pair, half2{1, 1}, sum);
                    values_of_members<lanes, 1, R>(pair, weights[i]);
                }
            } else {
                const float weight = exp2_fast(score[0] - maximum);
                const float other = lane_scores == 1 ? lane_xor<shape::score_lanes>(weight) : exp2_fast(score[lane_scores - 1] - maximum);
                const half2 pair = pack_towards_zero(weight, other);   // lanes with an odd key have them the other way round, and are not read
                sum = dot2(pair, half2{1, 1}, sum);
                values_of_members<lanes, shape::row_lanes, R>(pair, weights[0]);
                values_of_members<lanes, shape::row_lanes, R, shape::row_lanes / 2>(pair, weights[1]);
            }

            decode_eights<unroll * chunks>(v_format, values[0], v_at);
            for (uint32_t pair = 0; pair < 2; ++pair) {
                for (uint32_t j = 0; j < chunks; ++j) {
                    for (uint32_t i = 0; i < 4; ++i) {
                        const uint32_t low = values[2 * pair][j][i], high = values[2 * pair + 1][j][i];
                        const half2 even = bit_cast<half2>(pack_low(low, high)), odd = bit_cast<half2>(pack_high(low, high));
                        for (uint32_t r = 0; r < R; ++r) {
                            out[r][j][2 * i] = dot2(even, weights[pair][r], out[r][j][2 * i]);
                            out[r][j][2 * i + 1] = dot2(odd, weights[pair][r], out[r][j][2 * i + 1]);
                        }
                    }
                }
            }
            if (!more) {
                break;
            }
            keep_order();
            fetch_values(next);
            keep_order();
            first = next;
        }
    }

    // The maximum of all groups of all waves, then everything relative to it.
    const bool speaks = lane_id() == my_row * shape::row_lanes && my_row < R;   // for a row
    const float wave_maximum = max_over_lanes<lanes, 32>(maximum);
    if (speaks) {
        lds.maximum[wave][my_row] = wave_maximum;
    }
    lds_barrier();
    float m = lds.maximum[0][min(my_row, R - 1)];
    for (uint32_t w = 1; w < shape::waves; ++w) {
        m = max(m, lds.maximum[w][min(my_row, R - 1)]);
    }
    const float factor = exp2_fast(maximum - m);
    float factors[R];
    values_of_members<lanes, shape::row_lanes, R>(factor, factors);
    for (uint32_t r = 0; r < R; ++r) {
        for (uint32_t j = 0; j < chunks; ++j) {
            float * to = lds.out[wave * shape::groups + group][r] + (j * lanes + member) * 8;
            for (uint32_t i = 0; i < 2; ++i) {
                const float * o = out[r][j] + 4 * i;
                *reinterpret_cast<float4v *>(to + 4 * i) = float4v{o[0], o[1], o[2], o[3]} * factors[r];
            }
        }
    }
    sum = sum_over_lanes<lanes, 32>(sum_over_lanes<shape::pair_lanes, shape::row_lanes>(sum * factor));
    if (speaks) {
        lds.sum[wave][my_row] = sum;
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

/// The partial results of at most 64 splits, weighted: 128 channels (block_y) of `combine_waves / row_waves` rows of dst. `row_waves` waves share
/// the splits of a row, and add what they have in LDS, in the order of the waves.
STRATA_DEVICE void attention_combine(const flash_attn_combine_args & a) {
    __shared__ float4v sums[combine_waves][32];
    const uint32_t wave = uniform(thread_x() / 32);
    const uint32_t lane = lane_id();
    const uint32_t part = remainder(wave, a.row_waves);
    const uint32_t row = block_x() * quotient(combine_waves, a.row_waves) + quotient(wave, a.row_waves);
    const bool exists = row < a.n_rows;
    const uint32_t from = exists ? row : a.n_rows - 1;
    // All lanes stay active, as weights are read from them; those behind the head load its first channels and store nothing.
    const uint32_t channel = block_y() * 128 + lane * 4;
    const uint32_t offset = channel < a.head_size ? channel * 4 : 0;

    constexpr uint32_t at_once = 4;
    float4v x[at_once];
    const auto fetch = [&](uint32_t first) {
        for (uint32_t i = 0; i < at_once; ++i) {
            const uint32_t split = min(first + i * a.row_waves, a.n_splits - 1);
            x[i] = load<float4v>(a.partial + (static_cast<uint64_t>(split) * a.n_rows + from) * a.head_size, offset);
        }
    };
    fetch(part);
    float2v own[2];   // of splits `lane` and `lane + 32`
    for (uint32_t i = 0; i < 2; ++i) {
        own[i] = {lowest_max, 0.0f};
        if (lane + 32 * i < a.n_splits) {
            own[i] = load<float2v>(a.partial_max + (static_cast<uint64_t>(lane + 32 * i) * a.n_rows + from) * 2);
        }
    }
    const float maximum = wave_max(max(own[0][0], own[1][0]));
    const float weights[2] = {exp2_fast(own[0][0] - maximum), exp2_fast(own[1][0] - maximum)};
    const float factor = final_factor(a.sinks, from % a.n_head, maximum, wave_sum(fma(own[0][1], weights[0], own[1][1] * weights[1])));

    float4v o = {0, 0, 0, 0};
    for (uint32_t first = part; first < a.n_splits; first += at_once * a.row_waves) {
        for (uint32_t i = 0; i < at_once; ++i) {
            const uint32_t split = first + i * a.row_waves;
            const float w = split < a.n_splits ? lane_value(split < 32 ? weights[0] : weights[1], split % 32) : 0.0f;
            for (uint32_t c = 0; c < 4; ++c) {
                o[c] = fma(x[i][c], w, o[c]);
            }
        }
        if (first + at_once * a.row_waves < a.n_splits) {
            fetch(first + at_once * a.row_waves);
        }
    }
    sums[wave][lane] = o;
    lds_barrier();
    if (part != 0 || !exists || channel >= a.head_size) {
        return;
    }
    for (uint32_t w = 1; w < a.row_waves; ++w) {
        o += sums[wave + w][lane];
    }
    o *= factor;
    char * to = static_cast<char *>(a.dst) + static_cast<uint64_t>(row) * a.head_size * 4;
    if (channel + 4 <= a.head_size) {
        store(to, channel * 4, o);
    } else {
        for (uint32_t c = 0; channel + c < a.head_size; ++c) {
            store(to, (channel + c) * 4, o[c]);
        }
    }
}

}  // namespace strata::attention

#define STRATA_ATTENTION_VECTOR(D, R, suffix, types)                                                      \
    STRATA_KERNEL((strata::attention::vector_shape<D, R, strata::attention::kv_types::types>::threads))  \
    void flash_attn_vector_d##D##_r##R##suffix(strata::flash_attn_args a) {                              \
        strata::attention::attention_vector<D, R, strata::attention::kv_types::types>(a);                \
    }

#define STRATA_ATTENTION_VECTOR_ROWS(D)       \
    STRATA_ATTENTION_VECTOR(D, 1, , f16)      \
    STRATA_ATTENTION_VECTOR(D, 2, , f16)      \
    STRATA_ATTENTION_VECTOR(D, 3, , f16)      \
    STRATA_ATTENTION_VECTOR(D, 4, , f16)      \
    STRATA_ATTENTION_VECTOR(D, 8, , f16)      \
    STRATA_ATTENTION_VECTOR(D, 1, _typed, any) \
    STRATA_ATTENTION_VECTOR(D, 4, _typed, any) \
    STRATA_ATTENTION_VECTOR(D, 8, _typed, any)

#define STRATA_ATTENTION_VECTOR_Q8_0(D)        \
    STRATA_ATTENTION_VECTOR(D, 1, _q8_0, q8_0) \
    STRATA_ATTENTION_VECTOR(D, 4, _q8_0, q8_0) \
    STRATA_ATTENTION_VECTOR(D, 8, _q8_0, q8_0)

STRATA_ATTENTION_VECTOR_ROWS(40)
STRATA_ATTENTION_VECTOR_ROWS(64)
STRATA_ATTENTION_VECTOR_ROWS(72)
STRATA_ATTENTION_VECTOR_ROWS(80)
STRATA_ATTENTION_VECTOR_ROWS(96)
STRATA_ATTENTION_VECTOR_ROWS(112)
STRATA_ATTENTION_VECTOR_ROWS(128)
STRATA_ATTENTION_VECTOR_ROWS(256)
STRATA_ATTENTION_VECTOR_Q8_0(64)
STRATA_ATTENTION_VECTOR_Q8_0(128)
STRATA_ATTENTION_VECTOR_Q8_0(256)

STRATA_KERNEL(strata::combine_waves * 32) void flash_attn_combine(strata::flash_attn_combine_args a) { strata::attention::attention_combine(a); }
