// Attention without matrix instructions, for any head sizes and any number of query rows: prefill on cards without WMMA, and the head
// sizes that the other kernels do not have. Works with waves of 32 and of 64 lanes.
//
// A workgroup owns 8 packed query rows of one key/value head. In a step of 32 keys, keys are decoded into LDS; a work-item then makes the
// scores of one key with two rows, 32 neighbouring ones find maximum and sum of the rows by shuffles, and weights go through LDS to the
// owners of the channels: a work-item holds four channels of all rows in registers, and as many groups of work-items as fit into the
// workgroup take turns at the keys. Values are read and decoded by the owner of their channels. Blocks of 32 keys that the mask excludes
// for all rows are skipped.
#include "flash_attn.h"
#include "strata/kv.h"

namespace strata::attention {

constexpr uint32_t any_threads = 128;
constexpr uint32_t any_rows = 8;
constexpr uint32_t any_keys = 32;       // a step: work-items that share a row

template <uint32_t MaxK>
struct any_lds {
    static constexpr uint32_t pitch = MaxK + 8;   // halves; 16 bytes of padding against bank conflicts
    union {
        struct {
            alignas(16) half q[any_rows * pitch];
            alignas(16) half k[any_keys * pitch];
        };
        alignas(16) float4v out[any_rows * any_threads];   // after the last key
    };
    alignas(16) float weight[any_keys][any_rows + 4];   // padded against bank conflicts
    alignas(16) float factor[any_rows];
    float maximum[any_rows], sum[any_rows];
    uint32_t active[2][any_threads / wave_size];
};

/// Up to `count` floats of a row, zeros behind them.
STRATA_DEVICE float4v load_floats(const char * from, uint32_t offset, int32_t count) {
    if (count >= 4) {
        return load<float4v>(from, offset);
    }
    float4v x = {0, 0, 0, 0};
    for (int32_t i = 0; i < 3; ++i) {
        if (i < count) {
            x[i] = load<float>(from, offset + i * 4);
        }
    }
    return x;
}

/// The first `count` channels, less than `Channels`, of a group at the end of a row that is no multiple of it long, zeros behind them; only
/// rows of f16, bf16 and f32 can be so.
template <uint32_t Channels>
STRATA_DEVICE void load_rest(kv_kind kind, const char * base, uint32_t at, uint32_t count, uint32_t (&halves)[Channels / 2]) {
    for (uint32_t i = 0; i < Channels / 2; ++i) {
        uint32_t bits[2] = {0, 0};
        for (uint32_t j = 0; j < 2; ++j) {
            const uint32_t channel = 2 * i + j;
            if (channel < count) {
                if (kind == kv_kind::f16) {
                    bits[j] = load<uint16_t>(base, at + channel * 2);
                } else {
                    const float x = kind == kv_kind::f32 ? load<float>(base, at + channel * 4)
                                                         : bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(base, at + channel * 2)) << 16);
                    bits[j] = saturated_halves(x, 0.0f);
                }
            }
        }
        halves[i] = bits[0] | bits[1] << 16;
    }
}

/// Decodes the keys of a step, the last of `count` ones standing in for those behind it, channels behind the head as zeros. Four
/// work-items a key, 8 channels of each in turn, four times that in flight.
template <uint32_t MaxK>
STRATA_DEVICE void stage_keys(any_lds<MaxK> & lds, const flash_attn_args & a, const char * k, uint32_t count) {
    constexpr uint32_t step = 4 * 8, ahead = 4;
    const uint32_t key = thread_x() / 4;
    const uint32_t row = min(key, count - 1) * static_cast<uint32_t>(a.k_nb[0]);
    half * to = lds.k + key * any_lds<MaxK>::pitch;
    for (uint32_t first = thread_x() % 4 * 8; first < a.k_size; first += ahead * step) {
        kv_place place[ahead];
        for (uint32_t i = 0; i < ahead; ++i) {
            place[i] = place_of(a.k_format, first + i * step);
        }
        const auto place_at = [&](uint32_t i) { return place[i]; };
        const auto whole = [&](uint32_t i) { return first + i * step + 8 <= a.k_size; };
        uint4v halves[ahead];
        load_eights<ahead>(a.k_format, k, halves, place_at, [&](uint32_t i) { return row + place[i].offset; }, whole);
        decode_eights<ahead>(a.k_format, halves, place_at);
        for (uint32_t i = 0; i < ahead; ++i) {
            const uint32_t channel = first + i * step;
            if (whole(i)) {
                *reinterpret_cast<uint4v *>(to + channel) = halves[i];
            } else if (channel < a.k_size) {
                uint32_t rest[4];
                load_rest<8>(a.k_format.kind, k, row + place[i].offset, a.k_size - channel, rest);
                *reinterpret_cast<uint4v *>(to + channel) = uint4v{rest[0], rest[1], rest[2], rest[3]};
            }
        }
    }
}

template <uint32_t MaxK>
STRATA_DEVICE void attention_any(const flash_attn_args & a) {
    using shared = any_lds<MaxK>;
    __shared__ shared lds;

    const uint32_t thread = thread_x();
    const uint32_t kv_head = block_y();
    const uint32_t batch = quotient(block_z(), a.n_splits);
    const uint32_t split = remainder(block_z(), a.n_splits);
    const uint32_t n_rows = a.n_q * a.heads_per_kv;
    const uint32_t first_row = block_x() * any_rows;
    const uint32_t k_padded = (a.k_size + 7) & ~7u;

    // Queries as halves, scaled, in LDS: 16 work-items a row. Rows behind the last one repeat it.
    {
        const uint32_t r = thread / 16;
        const query_row where = unpack_row(a, kv_head, min(first_row + r, n_rows - 1));
        const char * from = static_cast<const char *>(a.q) + where.query * a.q_nb[0] + where.head * a.q_nb[1] + batch * a.q_nb[2];
        for (uint32_t channel = thread % 16 * 4; channel < k_padded; channel += 64) {
            const float4v x = load_floats(from, channel * 4, static_cast<int32_t>(a.k_size - channel)) * a.q_scale;
            *reinterpret_cast<half4 *>(lds.q + r * shared::pitch + channel) =
                half4{static_cast<half>(x[0]), static_cast<half>(x[1]), static_cast<half>(x[2]), static_cast<half>(x[3])};
        }
    }

    // This work-item as a maker of scores: one key, two rows.
    const uint32_t key = thread % any_keys;
    const uint32_t pair = thread / any_keys * 2;
    uint32_t mask_row[2];
    float slope[2], maximum[2] = {lowest_max, lowest_max}, sum[2] = {0.0f, 0.0f};
    for (uint32_t i = 0; i < 2; ++i) {
        const query_row where = unpack_row(a, kv_head, min(first_row + pair + i, n_rows - 1));
        mask_row[i] = a.mask ? mask_offset(a, batch, where) : 0;
        slope[i] = mask_scale(a, where.head);
    }
    // As an owner of channels.
    const uint32_t quads = (a.v_size + 3) / 4;
    const uint32_t turns = any_threads / quads;
    const uint32_t turn = thread / quads;
    const uint32_t channel = thread % quads * 4;
    const kv_place v_place = place_of(a.v_format, channel);
    float4v out[any_rows];
    for (uint32_t r = 0; r < any_rows; ++r) {
        out[r] = float4v{0, 0, 0, 0};
    }

    const char * k = static_cast<const char *>(a.k) + kv_head * a.k_nb[1] + batch * a.k_nb[2];
    const char * v = static_cast<const char *>(a.v) + kv_head * a.v_nb[1] + batch * a.v_nb[2];
    const char * mask = static_cast<const char *>(a.mask);
    const uint32_t v_nb = static_cast<uint32_t>(a.v_nb[0]);
    const uint32_t begin = split * a.keys_per_split;
    const uint32_t end = min(begin + a.keys_per_split, a.n_kv);
    uint32_t parity = 0;
    for (uint32_t first = begin; first < end; first += any_keys, parity ^= 1) {
        const uint32_t count = min(end - first, any_keys);
        float bias[2];
        for (uint32_t i = 0; i < 2; ++i) {
            const uint32_t bits = key >= count ? 0xfc00u : mask ? load<uint16_t>(mask, mask_row[i] + (first + key) * 2) : 0;
            bias[i] = static_cast<float>(bit_cast<half>(static_cast<uint16_t>(bits)));
        }
        const bool any = any_lane(bias[0] != -infinity() || bias[1] != -infinity());
        if (thread % wave_size == 0) {
            lds.active[parity][thread / wave_size] = any;
        }
        // Also: all have used keys and weights of the step before.
        lds_barrier();
        uint32_t active = 0;
        for (uint32_t w = 0; w < any_threads / wave_size; ++w) {
            active |= lds.active[parity][w];
        }
        if (uniform(active) == 0) {
            continue;
        }
        stage_keys(lds, a, k + first * a.k_nb[0], count);
        lds_barrier();

        float s[2] = {0.0f, 0.0f};
        for (uint32_t c = 0; c < k_padded; c += 8) {
            const uint4v x = *reinterpret_cast<const uint4v *>(lds.k + key * shared::pitch + c);
            for (uint32_t i = 0; i < 2; ++i) {
                const uint4v y = *reinterpret_cast<const uint4v *>(lds.q + (pair + i) * shared::pitch + c);
                for (uint32_t j = 0; j < 4; ++j) {
                    s[i] = dot2(bit_cast<half2>(x[j]), bit_cast<half2>(y[j]), s[i]);
                }
            }
        }
        float factor[2], weight[2];
        for (uint32_t i = 0; i < 2; ++i) {
            if (a.softcap != 0.0f) {
                s[i] = capped(s[i], a.softcap);
            }
            s[i] = fma(bias[i], slope[i], s[i]);
            const float highest = wave_max<any_keys>(s[i]);
            const float moved = highest > maximum[i] + max_slack ? highest : maximum[i];
            factor[i] = exp2_fast(maximum[i] - moved);
            maximum[i] = moved;
            weight[i] = exp2_fast(s[i] - moved);
            sum[i] = fma(sum[i], factor[i], weight[i]);
        }
        *reinterpret_cast<float2v *>(lds.weight[key] + pair) = float2v{weight[0], weight[1]};
        if (key == 0) {
            lds.factor[pair] = factor[0];
            lds.factor[pair + 1] = factor[1];
        }
        lds_barrier();

        if (turn < turns) {
            for (uint32_t r = 0; r < any_rows; ++r) {
                out[r] *= lds.factor[r];
            }
            const char * values = v + first * a.v_nb[0];
            // Loads behind the last key read it again.
            constexpr uint32_t ahead = 4;
            for (uint32_t first_u = turn; first_u < count; first_u += ahead * turns) {
                kv_fours<ahead> raw;
                const auto at = [&](uint32_t i) { return min(first_u + i * turns, count - 1) * v_nb + v_place.offset; };
                if (channel + 4 <= a.v_size) {
                    load_fours(a.v_format, values, raw, v_place, at);
                    decode_fours(a.v_format, raw, v_place);
                } else {
                    for (uint32_t i = 0; i < ahead; ++i) {
                        uint32_t rest[2];
                        load_rest<4>(a.v_format.kind, values, at(i), a.v_size - channel, rest);
                        raw.words[i] = {rest[0], rest[1]};
                    }
                }
                for (uint32_t u = 0; u < ahead; ++u) {
                    if (u > 0 && first_u + u * turns >= count) {
                        break;
                    }
                    const float4v * weights = reinterpret_cast<const float4v *>(lds.weight[first_u + u * turns]);
                    float x[4];
                    for (uint32_t i = 0; i < 4; ++i) {
                        x[i] = static_cast<float>(half_of(raw.words[u], i));
                    }
                    for (uint32_t r = 0; r < any_rows; ++r) {
                        const float w = weights[r / 4][r % 4];
                        for (uint32_t i = 0; i < 4; ++i) {
                            out[r][i] = fma(x[i], w, out[r][i]);
                        }
                    }
                }
            }
        }
    }

    // Queries and keys have been used; their place takes the sums.
    lds_barrier();
    for (uint32_t i = 0; i < 2; ++i) {
        const float total = wave_sum<any_keys>(sum[i]);
        if (key == 0) {
            lds.maximum[pair + i] = maximum[i];
            lds.sum[pair + i] = total;
        }
    }
    if (turn < turns) {
        for (uint32_t r = 0; r < any_rows; ++r) {
            lds.out[r * any_threads + thread] = out[r];
        }
    }
    lds_barrier();
    const uint32_t rows = min(any_rows, n_rows - first_row);
    for (uint32_t index = thread; index < rows * quads; index += any_threads) {
        const uint32_t r = index / quads;
        const uint32_t quad = index % quads;
        float4v o = lds.out[r * any_threads + quad];
        for (uint32_t t = 1; t < turns; ++t) {
            o += lds.out[r * any_threads + t * quads + quad];
        }
        const query_row at = unpack_row(a, kv_head, first_row + r);
        const uint64_t to = dst_row(a, batch, at);
        char * base;
        if (a.n_splits == 1) {
            base = static_cast<char *>(a.dst) + to * a.v_size * 4;
            o *= final_factor(a.sinks, at.head, lds.maximum[r], lds.sum[r]);
        } else {
            const uint64_t slot = static_cast<uint64_t>(split) * (a.n_batch * a.n_q * a.n_head) + to;
            base = reinterpret_cast<char *>(a.partial + slot * a.v_size);
            if (quad == 0) {
                store(a.partial_max + slot * 2, 0, float2v{lds.maximum[r], lds.sum[r]});
            }
        }
        if (quad * 4 + 4 <= a.v_size) {
            store(base, quad * 16, o);
        } else {
            for (uint32_t i = 0; i < 3; ++i) {
                if (quad * 4 + i < a.v_size) {
                    store(base, quad * 16 + i * 4, o[i]);
                }
            }
        }
    }
}

}  // namespace strata::attention

// Kernels flash_attn_any_<greatest head size of keys>.
#define STRATA_ATTENTION_ANY(MaxK)                     \
    STRATA_KERNEL(strata::attention::any_threads)      \
    void flash_attn_any_##MaxK(strata::flash_attn_args a) { strata::attention::attention_any<MaxK>(a); }

STRATA_ATTENTION_ANY(128)
STRATA_ATTENTION_ANY(256)
STRATA_ATTENTION_ANY(576)
