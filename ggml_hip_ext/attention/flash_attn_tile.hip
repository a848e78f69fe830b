// Attention for many query rows: f16 WMMA with an online softmax. A workgroup owns 64 packed query rows of one key/value
// head, a wave (or two, each with half of the head size, if that exceeds 128) owns 16 of them.
//
// Both products are computed transposed, S^T = K Q^T and O^T = V^T P^T: a lane then holds scores of one query row only, so
// maximum, rescaling and mask need no other lanes than the one 16 further, and P goes from accumulators to a B fragment with
// one exchange. Tiles of K and V are staged in LDS, V transposed; their rows are stored in an order that gives each
// lane 8 consecutive keys (of S) or channels (of O). The next tile is loaded into registers while this one is used. Key blocks
// that the mask excludes for all rows are found beforehand, 32 at a time, and skipped.
#include "flash_attn.h"
#include "strata/wmma.h"

namespace strata::attention {

using uint8v = uint32_t __attribute__((ext_vector_type(8)));

template <uint32_t D>
struct tile_shape {
    static constexpr uint32_t head_size = D;
    static constexpr uint32_t keys = D <= 64 ? 64 : 32;                  // a step
    static constexpr uint32_t padded = (D + 15) / 16 * 16;
    static constexpr uint32_t parts = padded > 128 ? 2 : 1;              // waves that share 16 rows
    static constexpr uint32_t part_tiles = padded / parts / 16;          // 16-channel tiles of a wave
    static constexpr uint32_t groups = 4;                                // of 16 rows
    static constexpr uint32_t rows = groups * 16;
    static constexpr uint32_t waves = groups * parts;
    static constexpr uint32_t threads = waves * 32;
    static constexpr uint32_t key_tiles = keys / 16;
    static constexpr uint32_t k_pitch = padded + 8;                      // halves; 16 bytes of padding against bank conflicts
    static constexpr uint32_t v_pitch = keys + 8;
    // Staging of K: 16 bytes a thread and pass.
    static constexpr uint32_t k_chunks = D / 8;
    static constexpr uint32_t k_rows = threads / k_chunks < keys ? threads / k_chunks : keys;
    static constexpr uint32_t k_passes = (keys + k_rows - 1) / k_rows;
    // Staging of V: a thread transposes 8 keys by 4 channels.
    static constexpr uint32_t v_units = keys / 8 * (D / 4);
    static_assert(padded % (16 * parts) == 0 && D % 8 == 0 && v_units <= threads);
};

template <class Shape>
struct tile_lds {
    alignas(16) half k[Shape::keys * Shape::k_pitch];
    alignas(16) half v[Shape::padded * Shape::v_pitch];
    // Scores of half the head size, exchanged between the two waves of a row group.
    alignas(16) float4v scores[Shape::parts == 2 ? Shape::waves * Shape::key_tiles * 2 * 32 : 1];
    uint32_t active[2][Shape::waves];
};

/// Position in a 16-row tile that makes element i of a D fragment of lane l row i + 8 (l >> 4).
STRATA_DEVICE uint32_t tile_position(uint32_t index) { return (index & ~15u) + 2 * (index & 7) + (index >> 3 & 1); }

STRATA_DEVICE half16 load_fragment(const half * row) {
    const half8 low = *reinterpret_cast<const half8 *>(row);
    const half8 high = *reinterpret_cast<const half8 *>(row + 8);
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/// One thread's share of a tile of K and V on its way from global memory to LDS.
template <class Shape>
struct staging {
    uint4v k[Shape::k_passes];
    uint2v v[8];
};

/// The thread's share of a tile: rows of K (k_row + i k_rows) at one 16-byte chunk; 8 keys by 4 channels of V.
template <class Shape>
struct share {
    uint32_t k_row, k_chunk, v_key, v_channel;
    bool has_k, has_v;
};

/// False if row `i` of the share lies behind the tile.
template <class Shape>
STRATA_DEVICE bool has_k_row(const share<Shape> & mine, uint32_t i) {
    return (i + 1) * Shape::k_rows <= Shape::keys || mine.k_row + i * Shape::k_rows < Shape::keys;
}

template <class Shape>
STRATA_DEVICE share<Shape> share_of(uint32_t thread) {
    constexpr uint32_t v_groups = Shape::head_size / 4;
    return {thread / Shape::k_chunks, thread % Shape::k_chunks, (thread / 2 / v_groups * 2 + thread % 2) * 8, thread / 2 % v_groups * 4,
            Shape::k_rows * Shape::k_chunks == Shape::threads || thread < Shape::k_rows * Shape::k_chunks,
            Shape::v_units == Shape::threads || thread < Shape::v_units};
}

/// Loads the thread's share of the tile that starts at `key`, of which `count` keys exist; the last one stands in for the others.
template <class Shape>
STRATA_DEVICE void fetch(staging<Shape> & s, const share<Shape> & mine, const flash_attn_args & a, const char * k, const char * v, uint32_t key,
                         uint32_t count) {
    const uint32_t k_nb = static_cast<uint32_t>(a.k_nb[0]);
    const uint32_t v_nb = static_cast<uint32_t>(a.v_nb[0]);
    k += key * a.k_nb[0];
    v += key * a.v_nb[0];
    uint32_t k_offset[Shape::k_passes], v_offset[8];
    for (uint32_t i = 0; i < Shape::k_passes; ++i) {
        k_offset[i] = mine.k_row * k_nb + mine.k_chunk * 16 + i * Shape::k_rows * k_nb;
    }
    for (uint32_t i = 0; i < 8; ++i) {
        v_offset[i] = mine.v_key * v_nb + mine.v_channel * 2 + i * v_nb;
    }
    if (count < Shape::keys) {
        for (uint32_t i = 0; i < Shape::k_passes; ++i) {
            k_offset[i] = min(k_offset[i], (count - 1) * k_nb + mine.k_chunk * 16);
        }
        for (uint32_t i = 0; i < 8; ++i) {
            v_offset[i] = min(v_offset[i], (count - 1) * v_nb + mine.v_channel * 2);
        }
    }
    if (mine.has_k) {
        for (uint32_t i = 0; i < Shape::k_passes; ++i) {
            if (has_k_row(mine, i)) {
                s.k[i] = load<uint4v>(k, k_offset[i]);
            }
        }
    }
    if (mine.has_v) {
        for (uint32_t i = 0; i < 8; ++i) {
            s.v[i] = load<uint2v>(v, v_offset[i]);
        }
    }
}

template <class Shape>
STRATA_DEVICE void store_tiles(const staging<Shape> & s, const share<Shape> & mine, tile_lds<Shape> & lds) {
    if (mine.has_k) {
        for (uint32_t i = 0; i < Shape::k_passes; ++i) {
            if (has_k_row(mine, i)) {
                *reinterpret_cast<uint4v *>(lds.k + tile_position(mine.k_row + i * Shape::k_rows) * Shape::k_pitch + mine.k_chunk * 8) = s.k[i];
            }
        }
    }
    if (mine.has_v) {
        // Neighbouring channels of an aligned group of four lie two rows apart.
        half * to = lds.v + tile_position(mine.v_channel) * Shape::v_pitch + mine.v_key;
        for (uint32_t word = 0; word < 2; ++word) {
            uint4v even, odd;
            for (uint32_t i = 0; i < 4; ++i) {
                even[i] = pack_low(s.v[2 * i][word], s.v[2 * i + 1][word]);
                odd[i] = pack_high(s.v[2 * i][word], s.v[2 * i + 1][word]);
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

template <uint32_t D>
STRATA_DEVICE void attention_tile(const flash_attn_args & a) {
    using shape = tile_shape<D>;
    constexpr uint32_t tiles = shape::part_tiles;
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
    const uint32_t first_row = block_x() * shape::rows + group * 16;
    const bool has_rows = first_row < n_rows;
    const uint32_t row = first_row + column;
    const query_row where = unpack_row(a, kv_head, row < n_rows ? row : n_rows - 1);

    // Q^T as B fragments, scaled.
    half16 q[tiles];
    {
        const char * source = static_cast<const char *>(a.q) + where.query * a.q_nb[0] + where.head * a.q_nb[1] + batch * a.q_nb[2];
        for (uint32_t t = 0; t < tiles; ++t) {
            const uint32_t channel = (part * tiles + t) * 16;
            for (uint32_t i = 0; i < 4; ++i) {
                float4v values = {0, 0, 0, 0};
                if (D % 16 == 0 || channel + 4 * i < D) {
                    values = load<float4v>(source, (channel + 4 * i) * 4);
                }
                for (uint32_t j = 0; j < 4; ++j) {
                    q[t][4 * i + j] = static_cast<half>(values[j] * a.q_scale);
                }
            }
        }
    }
    if constexpr (D % 16 != 0) {
        // The padding channels of K meet a zero of Q; they must be numbers. Staging never writes them.
        for (uint32_t i = thread_x(); i < shape::keys; i += shape::threads) {
            *reinterpret_cast<uint4v *>(lds.k + i * shape::k_pitch + D) = uint4v{0, 0, 0, 0};
        }
    }

    const char * k = static_cast<const char *>(a.k) + kv_head * a.k_nb[1] + batch * a.k_nb[2];
    const char * v = static_cast<const char *>(a.v) + kv_head * a.v_nb[1] + batch * a.v_nb[2];
    const char * mask = static_cast<const char *>(a.mask);
    const uint32_t mask_row = mask ? mask_offset(a, batch, where) + upper * 16 : 0;
    const float slope = mask_scale(a, where.head);

    const share<shape> staged = share_of<shape>(thread_x());
    float8 out[tiles];
    for (uint32_t t = 0; t < tiles; ++t) {
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
        if (todo != 0) {
            const uint32_t block = __builtin_ctz(todo);
            fetch(next, staged, a, k, v, first_key + block * shape::keys, left - block * shape::keys);
        }
        while (todo != 0) {
            const uint32_t block = __builtin_ctz(todo);
            todo &= todo - 1;
            store_tiles(next, staged, lds);
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
            if (todo != 0) {
                const uint32_t following = __builtin_ctz(todo);
                fetch(next, staged, a, k, v, first_key + following * shape::keys, left - following * shape::keys);
            }

            float8 s[key_tiles];
            if (active) {
                for (uint32_t i = 0; i < key_tiles; ++i) {
                    s[i] = float8{0, 0, 0, 0, 0, 0, 0, 0};
                }
                for (uint32_t t = 0; t < tiles; ++t) {
                    for (uint32_t i = 0; i < key_tiles; ++i) {
                        s[i] = wmma(load_fragment(lds.k + (i * 16 + column) * shape::k_pitch + (part * tiles + t) * 16), q[t], s[i]);
                    }
                }
                if constexpr (shape::parts == 2) {
                    for (uint32_t i = 0; i < key_tiles * 2; ++i) {
                        lds.scores[(wave * key_tiles * 2 + i) * 32 + lane_id()] =
                            float4v{s[i / 2][i % 2 * 4], s[i / 2][i % 2 * 4 + 1], s[i / 2][i % 2 * 4 + 2], s[i / 2][i % 2 * 4 + 3]};
                    }
                }
            }
            if constexpr (shape::parts == 2) {
                lds_barrier();
            }
            if (active) {
                if constexpr (shape::parts == 2) {
                    for (uint32_t i = 0; i < key_tiles * 2; ++i) {
                        const float4v other = lds.scores[((wave ^ 1) * key_tiles * 2 + i) * 32 + lane_id()];
                        for (uint32_t j = 0; j < 4; ++j) {
                            s[i / 2][i % 2 * 4 + j] += other[j];
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
                    for (uint32_t t = 0; t < tiles; ++t) {
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
                for (uint32_t t = 0; t < tiles; ++t) {
                    for (uint32_t i = 0; i < key_tiles; ++i) {
                        out[t] = wmma(load_fragment(lds.v + ((part * tiles + t) * 16 + column) * shape::v_pitch + i * 16), p[i], out[t]);
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
            base = static_cast<char *>(a.dst) + to * (D * 4);
            factor = final_factor(a.sinks, where.head, maximum, sum);
        } else {
            const uint64_t slot = static_cast<uint64_t>(split) * (a.n_batch * a.n_q * a.n_head) + to;
            base = reinterpret_cast<char *>(a.partial + slot * D);
            if (part == 0 && upper == 0) {
                store(a.partial_max + slot * 2, 0, float2v{maximum, sum});
            }
        }
        for (uint32_t t = 0; t < tiles; ++t) {
            const uint32_t channel = (part * tiles + t) * 16 + upper * 8;
            if (D % 16 == 0 || channel < D) {
                const float8 o = out[t] * factor;
                store(base, channel * 4, float4v{o[0], o[1], o[2], o[3]});
                store(base, channel * 4 + 16, float4v{o[4], o[5], o[6], o[7]});
            }
        }
    }
}

}  // namespace strata::attention

#define STRATA_ATTENTION_TILE(D)                                                               \
    STRATA_KERNEL(strata::attention::tile_shape<D>::threads)                                   \
    void flash_attn_tile_d##D(strata::flash_attn_args a) { strata::attention::attention_tile<D>(a); }

STRATA_ATTENTION_TILE(40)
STRATA_ATTENTION_TILE(64)
STRATA_ATTENTION_TILE(72)
STRATA_ATTENTION_TILE(80)
STRATA_ATTENTION_TILE(96)
STRATA_ATTENTION_TILE(112)
STRATA_ATTENTION_TILE(128)
STRATA_ATTENTION_TILE(256)
