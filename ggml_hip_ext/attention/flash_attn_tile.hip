// Attention for many query rows: f16 WMMA with an online softmax. A workgroup owns 64 packed query rows of one key/value
// head (32 if the head size exceeds 256), a wave owns 16 of them, or two or four waves, each with its part of a head size above 128.
//
// Both products are computed transposed, S^T = K Q^T and O^T = V^T P^T: a lane then holds scores of one query row only, so
// maximum, rescaling and mask need no other lanes than the one 16 further, and P goes from accumulators to a B fragment with
// one exchange. Tiles of K and V are staged in LDS, V transposed; their rows are stored in an order that gives each
// lane 8 consecutive keys (of S) or channels (of O). The next tile is loaded into registers while this one is used; keys and values of
// other types become f16 on their way to LDS. Key blocks that the mask excludes for all rows are found beforehand, 32 at a time, and
// skipped.
#include "flash_attn.h"
#include "strata/kv.h"
#include "strata/wmma.h"

// In front of a kernel: it is to use so few registers that this many waves fit a SIMD.
#ifdef __GFX11__
#define STRATA_WAVES_PER_SIMD(waves) __attribute__((amdgpu_waves_per_eu(waves)))
#else
#define STRATA_WAVES_PER_SIMD(waves)
#endif

namespace strata::attention {

using uint8v = uint32_t __attribute__((ext_vector_type(8)));

template <uint32_t DK, uint32_t DV, kv_types Types>
struct tile_shape {
    STRATA_DEVICE kv_format k_format(const flash_attn_args & a) { return format_of<Types>(a.k_format); }
    STRATA_DEVICE kv_format v_format(const flash_attn_args & a) { return format_of<Types>(a.v_format); }
    static constexpr uint32_t k_size = DK, v_size = DV;                  // head sizes
    static constexpr uint32_t k_padded = (DK + 15) / 16 * 16;
    static constexpr uint32_t v_padded = (DV + 15) / 16 * 16;
    static constexpr uint32_t keys = DK <= 64 ? 64 : DK <= 256 ? 32 : 16;   // a step
    static constexpr uint32_t parts = k_padded <= 128 ? 1 : k_padded <= 256 ? 2 : 4;   // waves that share 16 rows
    static constexpr uint32_t k_tiles = k_padded / parts / 16;           // 16-channel tiles of a wave
    static constexpr uint32_t v_tiles = v_padded / parts / 16;
    static constexpr uint32_t groups = parts > 2 ? 2 : 4;                // of 16 rows
    static constexpr uint32_t rows = groups * 16;
    static constexpr uint32_t waves = groups * parts;
    static constexpr uint32_t threads = waves * 32;
    static constexpr uint32_t key_tiles = keys / 16;
    static constexpr uint32_t k_pitch = k_padded + 8;                    // halves; 16 bytes of padding against bank conflicts
    static constexpr uint32_t v_pitch = keys + 8;
    // Staging of K: 8 channels a thread and pass.
    static constexpr uint32_t k_chunks = DK / 8;
    static constexpr uint32_t k_rows = threads / k_chunks < keys ? threads / k_chunks : keys;
    static constexpr uint32_t k_passes = (keys + k_rows - 1) / k_rows;
    // Staging of V: a thread transposes 8 keys by 4 channels.
    static constexpr uint32_t v_units = keys / 8 * (DV / 4);
    // The next tile waits in registers while this one is used, where they suffice for that.
    static constexpr bool ahead = Types != kv_types::any || k_tiles + v_tiles < 16;
    static_assert(k_padded % (16 * parts) == 0 && v_padded % (16 * parts) == 0 && DK % 8 == 0 && DV % 8 == 0 && v_units <= threads);
};

template <class Shape>
struct tile_lds {
    alignas(16) half k[Shape::keys * Shape::k_pitch];
    alignas(16) half v[Shape::v_padded * Shape::v_pitch];
    // Scores of a part of the head size, exchanged between the waves of a row group.
    alignas(16) float4v scores[Shape::parts > 1 ? Shape::waves * Shape::key_tiles * 2 * 32 : 1];
    uint32_t active[2][Shape::waves];
};

/// Position in a 16-row tile that makes element i of a D fragment of lane l row i + 8 (l >> 4).
STRATA_DEVICE uint32_t tile_position(uint32_t index) { return (index & ~15u) + 2 * (index & 7) + (index >> 3 & 1); }

STRATA_DEVICE half16 load_fragment(const half * row) {
    const half8 low = *reinterpret_cast<const half8 *>(row);
    const half8 high = *reinterpret_cast<const half8 *>(row + 8);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/// One thread's share of a tile of K and V on its way from global memory to LDS, as it lies in memory.
template <class Shape>
struct staging {
    uint4v k[Shape::k_passes];
    kv_fours<8> v;
};

/// The thread's share of a tile: rows of K (k_row + i k_rows) at one 8-channel chunk; 8 keys by 4 channels of V.
template <class Shape>
struct share {
    uint32_t k_row, k_chunk, v_key, v_channel;
    bool has_k, has_v;
    kv_place k_place, v_place;
};

/// False if row `i` of the share lies behind the tile.
template <class Shape>
STRATA_DEVICE bool has_k_row(const share<Shape> & mine, uint32_t i) {
    return (i + 1) * Shape::k_rows <= Shape::keys || mine.k_row + i * Shape::k_rows < Shape::keys;
}

template <class Shape>
STRATA_DEVICE share<Shape> share_of(const flash_attn_args & a, uint32_t thread) {
    constexpr uint32_t v_groups = Shape::v_size / 4;
    share<Shape> mine = {};
    mine.k_row = thread / Shape::k_chunks;
    mine.k_chunk = thread % Shape::k_chunks;
    mine.v_key = (thread / 2 / v_groups * 2 + thread % 2) * 8;
    mine.v_channel = thread / 2 % v_groups * 4;
    mine.has_k = Shape::k_rows * Shape::k_chunks == Shape::threads || thread < Shape::k_rows * Shape::k_chunks;
    mine.has_v = Shape::v_units == Shape::threads || thread < Shape::v_units;
    mine.k_place = place_of(Shape::k_format(a), mine.k_chunk * 8);
    mine.v_place = place_of(Shape::v_format(a), mine.v_channel);
    return mine;
}

/// Offsets of `N` rows of a share from the first row of a tile, of which `count` exist; the last one stands in for the others.
template <class Shape, uint32_t N>
struct row_offsets {
    uint32_t at[N];

    STRATA_DEVICE row_offsets of(uint32_t first, uint32_t step, uint64_t stride, const kv_place & place, uint32_t count) {
        const uint32_t nb = static_cast<uint32_t>(stride);
        if constexpr (!Shape::ahead) {
            first = recomputed(first);   // else the offsets would occupy registers all the time
        }
        row_offsets r;
        for (uint32_t i = 0; i < N; ++i) {
            r.at[i] = first * nb + place.offset + i * step * nb;
        }
        if (count < Shape::keys) {
            for (uint32_t i = 0; i < N; ++i) {
                r.at[i] = min(r.at[i], (count - 1) * nb + place.offset);
            }
        }
        return r;
    }
};

/// Loads the thread's share of the tile of K that begins at `k`.
template <class Shape>
STRATA_DEVICE void fetch_keys(staging<Shape> & s, const share<Shape> & mine, const flash_attn_args & a, const char * k, uint32_t count) {
    const auto offsets = row_offsets<Shape, Shape::k_passes>::of(mine.k_row, Shape::k_rows, a.k_nb[0], mine.k_place, count);
    if (mine.has_k) {
        load_eights<Shape::k_passes>(Shape::k_format(a), k, s.k, [&](uint32_t) { return mine.k_place; }, [&](uint32_t i) { return offsets.at[i]; },
                                     [&](uint32_t i) { return has_k_row(mine, i); });
    }
}

template <class Shape>
STRATA_DEVICE void fetch_values(staging<Shape> & s, const share<Shape> & mine, const flash_attn_args & a, const char * v, uint32_t count) {
    const auto offsets = row_offsets<Shape, 8>::of(mine.v_key, 1, a.v_nb[0], mine.v_place, count);
    if (mine.has_v) {
        load_fours(Shape::v_format(a), v, s.v, mine.v_place, [&](uint32_t i) { return offsets.at[i]; });
    }
}

/// Decodes the share of K and puts it into LDS.
template <class Shape>
STRATA_DEVICE void store_keys(staging<Shape> & s, const share<Shape> & mine, const flash_attn_args & a, tile_lds<Shape> & lds) {
    if (mine.has_k) {
        decode_eights<Shape::k_passes>(Shape::k_format(a), s.k, [&](uint32_t) { return mine.k_place; });
        for (uint32_t i = 0; i < Shape::k_passes; ++i) {
            if (has_k_row(mine, i)) {
                *reinterpret_cast<uint4v *>(lds.k + tile_position(mine.k_row + i * Shape::k_rows) * Shape::k_pitch + mine.k_chunk * 8) = s.k[i];
            }
        }
    }
}

template <class Shape>
STRATA_DEVICE void store_values(staging<Shape> & s, const share<Shape> & mine, const flash_attn_args & a, tile_lds<Shape> & lds) {
    if (mine.has_v) {
        decode_fours(Shape::v_format(a), s.v, mine.v_place);
        // Neighbouring channels of an aligned group of four lie two rows apart.
        half * to = lds.v + tile_position(mine.v_channel) * Shape::v_pitch + mine.v_key;
        for (uint32_t word = 0; word < 2; ++word) {
            uint4v even, odd;
            for (uint32_t i = 0; i < 4; ++i) {
                even[i] = pack_low(s.v.words[2 * i][word], s.v.words[2 * i + 1][word]);
                odd[i] = pack_high(s.v.words[2 * i][word], s.v.words[2 * i + 1][word]);
            }
            *reinterpret_cast<uint4v *>(to + 4 * word * Shape::v_pitch) = even;
            *reinterpret_cast<uint4v *>(to + (4 * word + 2) * Shape::v_pitch) = odd;
        }
    }
}

/// Bits of the key blocks of a window in which some row of this wave has an unmasked key. Only whole blocks are examined.
template <class Shape>
STRATA_DEVICE uint32_t scan_mask(const char * mask, uint32_t offset, uint32_t first_block, uint32_t step, uint32_t blocks) {
    uint32_t found = 0;
    for (uint32_t block = first_block; block < blocks; block += step) {
        uint32_t any = 0;
        for (uint32_t t = 0; t < Shape::key_tiles; ++t) {
            const uint4v words = load<uint4v>(mask + block * Shape::keys * 2 + t * 32, offset);
            for (uint32_t i = 0; i < 4; ++i) {
                any |= words[i] ^ packed_minus_infinity;
            }
        }
        found |= any_lane(any != 0) ? 1u << block : 0;
    }
    return found;
}

/// Mask of the 8 keys of this lane in a 16-key tile, of which `count` exist (from the lane's first one on).
STRATA_DEVICE uint4v tail_mask(const char * mask, uint32_t offset, int32_t count) {
    uint4v words;
    for (int32_t i = 0; i < 4; ++i) {
        const uint32_t low = 2 * i >= count ? 0xfc00u : mask ? load<uint16_t>(mask + i * 4, offset) : 0;
        const uint32_t high = 2 * i + 1 >= count ? 0xfc00u : mask ? load<uint16_t>(mask + i * 4 + 2, offset) : 0;
        words[i] = low | high << 16;
    }
    return words;
}

template <uint32_t DK, uint32_t DV, kv_types Types>
STRATA_DEVICE void attention_tile(const flash_attn_args & a) {
    using shape = tile_shape<DK, DV, Types>;
    constexpr uint32_t k_tiles = shape::k_tiles;
    constexpr uint32_t v_tiles = shape::v_tiles;
    constexpr uint32_t key_tiles = shape::key_tiles;
    __shared__ tile_lds<shape> lds;

    const uint32_t wave = uniform(thread_x() / 32);
    const uint32_t group = wave / shape::parts;
    const uint32_t part = wave % shape::parts;
    const uint32_t column = wmma_lane_index();
    const uint32_t upper = lane_id() >> 4;
    const uint32_t kv_head = block_y();
    const uint32_t batch = quotient(block_z(), a.n_splits);
    const uint32_t split = remainder(block_z(), a.n_splits);

    const uint32_t n_rows = a.n_q * a.heads_per_kv;
    // The last rows first: under a causal mask they see the most keys, and what takes longest should not begin last.
    const uint32_t row_block = (n_rows + shape::rows - 1) / shape::rows - 1 - block_x();
    const uint32_t first_row = row_block * shape::rows + group * 16;
    const bool has_rows = first_row < n_rows;
    const uint32_t row = first_row + column;
    const query_row where = unpack_row(a, kv_head, row < n_rows ? row : n_rows - 1);

    // Q^T as B fragments, scaled.
    half16 q[k_tiles];
    {
        const char * source = static_cast<const char *>(a.q) + where.query * a.q_nb[0] + where.head * a.q_nb[1] + batch * a.q_nb[2];
        for (uint32_t t = 0; t < k_tiles; ++t) {
            const uint32_t channel = (part * k_tiles + t) * 16;
            for (uint32_t i = 0; i < 4; ++i) {
                float4v values = {0, 0, 0, 0};
                if (DK % 16 == 0 || channel + 4 * i < DK) {
                    values = load<float4v>(source, (channel + 4 * i) * 4);
                }
                for (uint32_t j = 0; j < 4; ++j) {
                    q[t][4 * i + j] = static_cast<half>(values[j] * a.q_scale);
                }
            }
        }
    }
    if constexpr (DK % 16 != 0) {
        // The padding channels of K meet a zero of Q; they must be numbers. Staging never writes them.
        for (uint32_t i = thread_x(); i < shape::keys; i += shape::threads) {
            *reinterpret_cast<uint4v *>(lds.k + i * shape::k_pitch + DK) = uint4v{0, 0, 0, 0};
        }
    }

    const char * k = static_cast<const char *>(a.k) + kv_head * a.k_nb[1] + batch * a.k_nb[2];
    const char * v = static_cast<const char *>(a.v) + kv_head * a.v_nb[1] + batch * a.v_nb[2];
    const char * mask = static_cast<const char *>(a.mask);
    const uint32_t mask_row = mask ? mask_offset(a, batch, where) + upper * 16 : 0;
    const float slope = mask_scale(a, where.head);

    const share<shape> staged = share_of<shape>(a, thread_x());
    float8 out[v_tiles];
    for (uint32_t t = 0; t < v_tiles; ++t) {
        out[t] = float8{0, 0, 0, 0, 0, 0, 0, 0};
    }
    float maximum = lowest_max;
    float sum = 0.0f;  // over the keys of this lane; its partner 16 lanes away has the others

    const uint32_t begin = split * a.keys_per_split;
    const uint32_t end = begin + a.keys_per_split < a.n_kv ? begin + a.keys_per_split : a.n_kv;
    constexpr uint32_t window = 32 * shape::keys;
    uint32_t parity = 0;
    for (uint32_t first_key = begin; first_key < end; first_key += window, parity ^= 1) {
        const uint32_t left = end - first_key;
        const uint32_t whole = left >= window ? 32 : left / shape::keys;
        const uint32_t tail = left < window && left % shape::keys != 0 ? 1u << whole : 0;
        uint32_t mine = 0;
        if (has_rows) {
            mine = whole == 32 ? ~0u : (1u << whole) - 1;
            if (mask) {
                mine = scan_mask<shape>(mask + first_key * 2, mask_row, part, shape::parts, whole);
            }
            mine |= tail;
        }
        lds.active[parity][wave] = mine;
        lds_barrier();
        uint32_t todo = 0;
        for (uint32_t w = 0; w < shape::waves; ++w) {
            todo |= lds.active[parity][w];
        }
        for (uint32_t p = 0; p < shape::parts; ++p) {
            mine |= lds.active[parity][group * shape::parts + p];
        }
        todo = uniform(todo);
        mine = uniform(mine);

        staging<shape> next;
        const auto fetch_keys_of = [&](staging<shape> & to, uint32_t block) {
            fetch_keys(to, staged, a, k + (first_key + block * shape::keys) * a.k_nb[0], left - block * shape::keys);
        };
        const auto fetch_values_of = [&](staging<shape> & to, uint32_t block) {
            fetch_values(to, staged, a, v + (first_key + block * shape::keys) * a.v_nb[0], left - block * shape::keys);
        };
        if (shape::ahead && todo != 0) {
            const uint32_t block = __builtin_ctz(todo);
            fetch_keys_of(next, block);
            fetch_values_of(next, block);
        }
        while (todo != 0) {
            const uint32_t block = __builtin_ctz(todo);
            todo &= todo - 1;
            if constexpr (shape::ahead) {
                store_keys(next, staged, a, lds);
                store_values(next, staged, a, lds);
            } else {
                staging<shape> now;
                fetch_keys_of(now, block);
                store_keys(now, staged, a, lds);
                keep_order();
                fetch_values_of(now, block);
                store_values(now, staged, a, lds);
                keep_order();
            }
            lds_barrier();
            const bool active = mine >> block & 1;
            const uint32_t key = first_key + block * shape::keys;
            const bool partial = key + shape::keys > end;
            const bool masked = partial || mask;
            // Memory answers in order: the mask is asked for before the next tile, or it would have to wait for it.
            uint4v words[key_tiles];
            if (active && masked) {
                for (uint32_t i = 0; i < key_tiles; ++i) {
                    if (partial) {
                        const int32_t count = static_cast<int32_t>(end - key - i * 16 - upper * 8);
                        words[i] = tail_mask(mask ? mask + (key + i * 16) * 2 : nullptr, mask_row, count);
                    } else {
                        words[i] = load<uint4v>(mask + (key + i * 16) * 2, mask_row);
                    }
                }
            }
            if (shape::ahead && todo != 0) {
                const uint32_t following = __builtin_ctz(todo);
                fetch_keys_of(next, following);
                fetch_values_of(next, following);
            }

            float8 s[key_tiles];
            if (active) {
                for (uint32_t i = 0; i < key_tiles; ++i) {
                    s[i] = float8{0, 0, 0, 0, 0, 0, 0, 0};
                }
                for (uint32_t t = 0; t < k_tiles; ++t) {
                    for (uint32_t i = 0; i < key_tiles; ++i) {
                        s[i] = wmma(load_fragment(lds.k + (i * 16 + column) * shape::k_pitch + (part * k_tiles + t) * 16), q[t], s[i]);
                    }
                }
                if constexpr (shape::parts > 1) {
                    for (uint32_t i = 0; i < key_tiles * 2; ++i) {
                        lds.scores[(wave * key_tiles * 2 + i) * 32 + lane_id()] =
                            float4v{s[i / 2][i % 2 * 4], s[i / 2][i % 2 * 4 + 1], s[i / 2][i % 2 * 4 + 2], s[i / 2][i % 2 * 4 + 3]};
                    }
                }
            }
            if constexpr (shape::parts > 1) {
                lds_barrier();
            }
            if (active) {
                if constexpr (shape::parts > 1) {
                    // Added in the same order by all.
                    for (uint32_t i = 0; i < key_tiles * 2; ++i) {
                        const float4v * from = lds.scores + (group * shape::parts * key_tiles * 2 + i) * 32 + lane_id();
                        float4v total = *from;
                        for (uint32_t p = 1; p < shape::parts; ++p) {
                            total += from[p * key_tiles * 2 * 32];
                        }
                        for (uint32_t j = 0; j < 4; ++j) {
                            s[i / 2][i % 2 * 4 + j] = total[j];
                        }
                    }
                }
                if (a.softcap != 0.0f) {
                    for (uint32_t i = 0; i < key_tiles; ++i) {
                        for (uint32_t j = 0; j < 8; ++j) {
                            s[i][j] = capped(s[i][j], a.softcap);
                        }
                    }
                }
                if (masked) {
                    for (uint32_t i = 0; i < key_tiles; ++i) {
                        for (uint32_t j = 0; j < 8; ++j) {
                            s[i][j] = fma(static_cast<float>(half_of(words[i], j)), slope, s[i][j]);
                        }
                    }
                }

                float highest = s[0][0];
                for (uint32_t i = 0; i < key_tiles; ++i) {
                    for (uint32_t j = 0; j < 8; ++j) {
                        highest = max(highest, s[i][j]);
                    }
                }
                highest = max(highest, lane_xor<16>(highest));
                const bool moves = highest > maximum + max_slack;
                if (any_lane(moves)) {
                    const float moved = moves ? highest : maximum;
                    const float factor = exp2_fast(maximum - moved);
                    maximum = moved;
                    sum *= factor;
                    for (uint32_t t = 0; t < v_tiles; ++t) {
                        out[t] *= factor;
                    }
                }

                // P as f16 pairs: this lane's 8 keys of each tile, then its partner's; keys in ascending order.
                half16 p[key_tiles];
                for (uint32_t i = 0; i < key_tiles; ++i) {
                    uint8v words;
                    for (uint32_t j = 0; j < 4; ++j) {
                        const half2 pair = pack_towards_zero(exp2_fast(s[i][2 * j] - maximum), exp2_fast(s[i][2 * j + 1] - maximum));
                        // The sum takes the rounded weights, so that rounding does not bias the mean.
                        sum = dot2(pair, half2{1, 1}, sum);
                        const uint32_t own = bit_cast<uint32_t>(pair);
                        const uint32_t other = lane_xor<16>(own);
                        words[j] = upper ? other : own;
                        words[j + 4] = upper ? own : other;
                    }
                    p[i] = bit_cast<half16>(words);
                }
                for (uint32_t t = 0; t < v_tiles; ++t) {
                    for (uint32_t i = 0; i < key_tiles; ++i) {
                        out[t] = wmma(load_fragment(lds.v + ((part * v_tiles + t) * 16 + column) * shape::v_pitch + i * 16), p[i], out[t]);
                    }
                }
            }
            lds_barrier();
        }
    }

    sum += lane_xor<16>(sum);
    if (row < n_rows) {
        const uint64_t to = dst_row(a, batch, where);
        char * base;
        float factor = 1.0f;
        if (a.n_splits == 1) {
            base = static_cast<char *>(a.dst) + to * (DV * 4);
            factor = final_factor(a.sinks, where.head, maximum, sum);
        } else {
            const uint64_t slot = static_cast<uint64_t>(split) * (a.n_batch * a.n_q * a.n_head) + to;
            base = reinterpret_cast<char *>(a.partial + slot * DV);
            if (part == 0 && upper == 0) {
                store(a.partial_max + slot * 2, 0, float2v{maximum, sum});
            }
        }
        for (uint32_t t = 0; t < v_tiles; ++t) {
            const uint32_t channel = (part * v_tiles + t) * 16 + upper * 8;
            if (DV % 16 == 0 || channel < DV) {
                const float8 o = out[t] * factor;
                store(base, channel * 4, float4v{o[0], o[1], o[2], o[3]});
                store(base, channel * 4 + 16, float4v{o[4], o[5], o[6], o[7]});
            }
        }
    }
}

}  // namespace strata::attention

#define STRATA_ATTENTION_TILE_KERNEL(DK, DV, suffix, types)                                                      \
    STRATA_KERNEL((strata::attention::tile_shape<DK, DV, strata::attention::kv_types::types>::threads))         \
    void flash_attn_tile_k##DK##_v##DV##suffix(strata::flash_attn_args a) {                                     \
        strata::attention::attention_tile<DK, DV, strata::attention::kv_types::types>(a);                       \
    }

#define STRATA_ATTENTION_TILE(DK, DV)           \
    STRATA_ATTENTION_TILE_KERNEL(DK, DV, , f16) \
    STRATA_ATTENTION_TILE_KERNEL(DK, DV, _typed, any)

// Head sizes for which the compiler would take more registers than it needs.
#define STRATA_ATTENTION_TILE_SMALL(DK, DV)                                \
    STRATA_WAVES_PER_SIMD(7) STRATA_ATTENTION_TILE_KERNEL(DK, DV, , f16)   \
    STRATA_ATTENTION_TILE_KERNEL(DK, DV, _typed, any)

STRATA_ATTENTION_TILE_SMALL(40, 40)
STRATA_ATTENTION_TILE(64, 64)
STRATA_ATTENTION_TILE_SMALL(72, 72)
STRATA_ATTENTION_TILE_SMALL(80, 80)
STRATA_ATTENTION_TILE_SMALL(96, 96)
STRATA_ATTENTION_TILE(112, 112)
STRATA_ATTENTION_TILE(128, 128)
STRATA_ATTENTION_TILE(192, 128)
STRATA_ATTENTION_TILE(192, 192)
STRATA_ATTENTION_TILE(256, 256)
STRATA_ATTENTION_TILE(320, 256)
STRATA_ATTENTION_TILE(512, 512)
STRATA_ATTENTION_TILE(576, 512)
STRATA_ATTENTION_TILE_KERNEL(64, 64, _q8_0, q8_0)
STRATA_ATTENTION_TILE_KERNEL(128, 128, _q8_0, q8_0)
STRATA_ATTENTION_TILE_KERNEL(256, 256, _q8_0, q8_0)
