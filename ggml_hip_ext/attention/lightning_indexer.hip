// The lightning indexer: how much each key matters to a token, summed over the heads of the indexer. A workgroup owns 32 keys, decoded
// into LDS once, and a few tokens, whose queries go through LDS one after the other. A work-item makes the dot products of one key with
// every eighth group of four heads; the eight sums of a key are added in order. Products are of halves, sums are f32.
#include "strata/args/lightning_indexer.h"
#include "strata/kv.h"

namespace strata {

constexpr uint32_t indexer_keys = 32, indexer_threads = 256, indexer_tokens = 8;
constexpr uint32_t indexer_groups = indexer_threads / indexer_keys;   // work-items a key
constexpr uint32_t indexer_max_size = 128, indexer_max_heads = 128;
constexpr uint32_t indexer_pitch = indexer_max_size + 8;              // halves; 16 bytes of padding against bank conflicts
constexpr uint32_t heads_at_once = 4;

struct indexer_lds {
    alignas(16) half k[indexer_keys * indexer_pitch];
    alignas(16) half q[indexer_max_heads * indexer_max_size];
    float sum[indexer_groups][indexer_keys];
};

/// Grid: groups of 32 keys, groups of 8 tokens, streams.
STRATA_KERNEL(indexer_threads) void lightning_indexer(lightning_indexer_args a) {
    __shared__ indexer_lds lds;
    const uint32_t thread = thread_x(), stream = block_z();
    const uint32_t first_key = block_x() * indexer_keys, first_token = block_y() * indexer_tokens;

    const char * k = static_cast<const char *>(a.k) + first_key * a.k_key + stream * a.k_stream;
    const uint32_t last = smaller(indexer_keys, a.n_kv - first_key) - 1;
    const uint32_t staged = thread / indexer_groups;
    for (uint32_t channel = thread % indexer_groups * 8; channel < a.head_size; channel += indexer_groups * 8) {
        const kv_place place = place_of(a.k_format, channel);
        const auto same = [&](uint32_t) { return place; };
        const uint32_t at = smaller(staged, last) * static_cast<uint32_t>(a.k_key) + place.offset;
        uint4v halves;
        load_eights<1>(a.k_format, k, &halves, same, [&](uint32_t) { return at; }, [](uint32_t) { return true; });
        decode_eights<1>(a.k_format, &halves, same);
        *reinterpret_cast<uint4v *>(lds.k + staged * indexer_pitch + channel) = halves;
    }

    const uint32_t key = thread % indexer_keys, group = thread / indexer_keys;
    const uint32_t tokens = smaller(indexer_tokens, a.n_tokens - first_token);
    const uint32_t quads = a.head_size / 4;
    for (uint32_t t = 0; t < tokens; ++t) {
        const uint32_t token = first_token + t;
        const char * q = static_cast<const char *>(a.q) + token * a.q_token + stream * a.q_stream;
        for (uint32_t index = thread; index < a.n_head * quads; index += indexer_threads) {
            const uint32_t head = index / quads, channel = index % quads * 4;
            const float4v x = load<float4v>(q + head * a.q_head, channel * 4);
            *reinterpret_cast<half4 *>(lds.q + head * indexer_max_size + channel) =
                half4{static_cast<half>(x[0]), static_cast<half>(x[1]), static_cast<half>(x[2]), static_cast<half>(x[3])};
        }
        lds_barrier();

        const char * weights = static_cast<const char *>(a.weights) + token * a.weights_token + stream * a.weights_stream;
        float sum = 0.0f;
        for (uint32_t head = group * heads_at_once; head < a.n_head; head += indexer_groups * heads_at_once) {
            // Heads behind the last one repeat it and count nothing.
            const half * row[heads_at_once];
            float dot[heads_at_once];
            for (uint32_t h = 0; h < heads_at_once; ++h) {
                row[h] = lds.q + smaller(head + h, a.n_head - 1) * indexer_max_size;
                dot[h] = 0.0f;
            }
            for (uint32_t channel = 0; channel < a.head_size; channel += 8) {
                const uint4v x = *reinterpret_cast<const uint4v *>(lds.k + key * indexer_pitch + channel);
                for (uint32_t h = 0; h < heads_at_once; ++h) {
                    const uint4v y = *reinterpret_cast<const uint4v *>(row[h] + channel);
                    for (uint32_t i = 0; i < 4; ++i) {
                        dot[h] = dot2(bit_cast<half2>(x[i]), bit_cast<half2>(y[i]), dot[h]);
                    }
                }
            }
            for (uint32_t h = 0; h < heads_at_once; ++h) {
                if (head + h < a.n_head) {
                    sum = fma(max(dot[h], 0.0f), load<float>(weights, (head + h) * 4), sum);
                }
            }
        }
        lds.sum[group][key] = sum;
        // Also: all have used the queries.
        lds_barrier();
        if (group == 0 && key <= last) {
            for (uint32_t g = 1; g < indexer_groups; ++g) {
                sum += lds.sum[g][key];
            }
            const char * mask = static_cast<const char *>(a.mask) + token * a.mask_token + stream % a.mask_streams * a.mask_stream;
            const float bias = half_bits_to_float(load<uint16_t>(mask, (first_key + key) * 2));
            char * dst = static_cast<char *>(a.dst) + (static_cast<uint64_t>(stream) * a.n_tokens + token) * a.n_kv * 4;
            store(dst, (first_key + key) * 4, sum + bias);
        }
    }
}

}  // namespace strata
