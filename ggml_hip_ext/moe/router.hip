// The router of a mixture of experts: softmax, the greatest probabilities in order, their sum and quotients, a wave a token. Each part adds
// and rounds as the kernel of its own op does (soft_max.hip, sort.hip, sum.hip, ...): the same bits.
#include "../attention/soft_max_weight.h"
#include "../sort/sort_key.h"
#include "strata/args/router.h"
#include "strata/lane_read.h"
#include "strata/reduce.h"

namespace strata {

/// The smallest key of the wave, the same in all lanes.
STRATA_DEVICE uint64_t smallest_key(uint64_t key) {
    const auto halve = [&]<uint32_t Mask>() {
        const uint32_t low = lane_xor<Mask>(static_cast<uint32_t>(key)), high = lane_xor<Mask>(static_cast<uint32_t>(key >> 32));
        const uint64_t other = static_cast<uint64_t>(high) << 32 | low;
        key = other < key ? other : key;
    };
    halve.template operator()<16>();
    halve.template operator()<8>();
    halve.template operator()<4>();
    halve.template operator()<2>();
    halve.template operator()<1>();
    return key;
}

/// The number that a key in descending order was made of.
STRATA_DEVICE float number_of(uint64_t key) {
    const uint32_t ordered = ~static_cast<uint32_t>(key >> 32);
    return bit_cast<float>(ordered ^ (((ordered >> 31) - 1) | 0x80000000u));
}

/// The sum of a row of `count` up to 32 numbers, of which lane l has number l: in fours, as sum_rows adds them.
STRATA_DEVICE float sum_of_lanes(float mine, uint32_t count) {
    const uint32_t lane = lane_id(), fours = count & ~3u;
    float sums[4] = {};
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t from = 4 * lane + i;
        const float value = value_of_lane(mine, from);
        sums[i] += from < fours ? value : 0.0f;
    }
    const uint32_t rest = fours + lane;
    const float value = value_of_lane(mine, rest);
    if (rest < count) {
        sums[0] += value;
    }
    return wave_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

/// The softmax of up to 32 numbers, of which lane l has number l: in fours, as soft_max adds them.
STRATA_DEVICE float soft_max_of_lanes(float mine, uint32_t count) {
    const uint32_t lane = lane_id();
    const float x = lane < count ? mine : -infinity();
    const float maximum = wave_max(max(attention::lowest, x));
    const float weight = attention::weight(x, maximum);
    float sum = 0.0f;
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t from = 4 * lane + i;
        const float value = value_of_lane(weight, from);
        sum += from < 32 ? value : 0.0f;
    }
    return weight * divide(1.0f, wave_sum(sum) + 0.0f);
}

/// Up to 128 Quads experts.
template <uint32_t Quads>
STRATA_DEVICE void route(const router_args & a) {
    const uint32_t token = block_x() * (router_block / wave_size) + uniform(thread_x() / wave_size), lane = lane_id();
    if (token >= a.tokens) {
        return;
    }
    const char * const logits = static_cast<const char *>(a.logits) + token * a.logits_stride;
    float x[Quads][4];
    float maximum = attention::lowest;
#pragma unroll
    for (uint32_t q = 0; q < Quads; ++q) {
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t column = 4 * (q * wave_size + lane) + i;
            x[q][i] = column < a.experts ? load<float>(logits, column * sizeof(float)) : -infinity();
            if (a.kind != router_kind::soft_max_chosen) {
                x[q][i] = column < a.experts ? x[q][i] * a.scale : x[q][i];
                maximum = max(maximum, x[q][i]);
            }
        }
    }
    if (a.kind != router_kind::soft_max_chosen) {
        maximum = wave_max(maximum);
        float sum = 0.0f;
#pragma unroll
        for (uint32_t q = 0; q < Quads; ++q) {
            for (uint32_t i = 0; i < 4; ++i) {
                x[q][i] = attention::weight(x[q][i], maximum);
                sum += x[q][i];
            }
        }
        const float factor = divide(1.0f, wave_sum(sum) + 0.0f);
#pragma unroll
        for (uint32_t q = 0; q < Quads; ++q) {
            for (uint32_t i = 0; i < 4; ++i) {
                x[q][i] *= factor;
            }
        }
    }

    uint64_t keys[Quads][4];
#pragma unroll
    for (uint32_t q = 0; q < Quads; ++q) {
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t column = 4 * (q * wave_size + lane) + i;
            keys[q][i] = column < a.experts ? sort_key(x[q][i], 1, column) : ~0ull;
        }
    }
    float mine = 0.0f;      // lane l has what belongs to the expert in place l
    uint32_t expert = 0;
    for (uint32_t place = 0; place < a.used; ++place) {
        uint64_t best = ~0ull;
#pragma unroll
        for (uint32_t q = 0; q < Quads; ++q) {
            for (uint32_t i = 0; i < 4; ++i) {
                best = keys[q][i] < best ? keys[q][i] : best;
            }
        }
        best = smallest_key(best);
#pragma unroll
        for (uint32_t q = 0; q < Quads; ++q) {
            for (uint32_t i = 0; i < 4; ++i) {
                keys[q][i] = keys[q][i] == best ? ~0ull : keys[q][i];
            }
        }
        mine = lane == place ? number_of(best) : mine;
        expert = lane == place ? static_cast<uint32_t>(best) : expert;
    }

    if (a.kind == router_kind::soft_max_norm) {
        mine = mine / min(max(sum_of_lanes(mine, a.used), a.lowest_sum), a.highest_sum);
    } else if (a.kind == router_kind::soft_max_chosen) {
        mine = soft_max_of_lanes(mine * a.scale, a.used);
    }
    if (lane < a.used) {
        store(reinterpret_cast<char *>(a.ids) + token * a.ids_stride, lane * sizeof(int32_t), expert);
        store(a.weights + static_cast<uint64_t>(token) * a.used, lane * sizeof(float), mine);
    }
}

}  // namespace strata

using namespace strata;

// Named after the most experts they take.
STRATA_KERNEL(router_block) void router_128(router_args a) { route<1>(a); }
STRATA_KERNEL(router_block) void router_512(router_args a) { route<4>(a); }
STRATA_KERNEL(router_block) void router_1024(router_args a) { route<8>(a); }
