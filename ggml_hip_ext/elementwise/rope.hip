// Rotary embedding. A workgroup turns some heads of one token: each work-item computes one sine and cosine and uses them for several heads.
#include "rotation.h"
#include "strata/element.h"
#include "strata/read_together.h"

namespace strata {

// Neighbours: the members of a pair are neighbouring channels; otherwise they are `distance` apart.
template <class T, bool Neighbours>
STRATA_DEVICE void rope(const rope_args & a) {
    using storage = typename T::storage;
    typedef storage pair_type __attribute__((ext_vector_type(2)));
    const uint32_t token = block_x(), batch = block_z();
    read_together(a.positions, a.factors, a.exponent_high, a.exponent_low, a.freq_scale, a.ext_factor, a.magnitude, a.sine_magnitude,
                  a.position_kind, a.pairs, a.distance, a.first, a.rest.divisor);
    const uint32_t first_head = block_y() * a.heads_a_block;
    const uint32_t heads = first_head + a.heads_a_block < a.heads ? a.heads_a_block : a.heads - first_head;
    char * const dst = static_cast<char *>(a.dst) + (first_head * a.dst_stride[0] + token * a.dst_stride[1] + batch * a.dst_stride[2]);
    const char * const src =
        static_cast<const char *>(a.src) + (first_head * a.src_stride[0] + token * a.src_stride[1] + batch * a.src_stride[2]);

    const uint32_t spread = 1u << a.lane_shift, last_head = heads - 1;
    for (uint32_t k = thread_x() & (spread - 1); k < a.pairs; k += rope_block) {
        const uint32_t at0 = (a.first + (Neighbours ? 2 * k : k)) * sizeof(storage);
        const uint32_t at1 = at0 + a.distance * sizeof(storage);
        const auto read = [&](uint32_t head) {
            const char * const in = src + head * a.src_stride[0];
            if constexpr (Neighbours) {
                return load<pair_type>(in, at0);
            } else {
                return pair_type{load<storage>(in, at0), load<storage>(in, at1)};
            }
        };
        uint32_t head = thread_x() >> a.lane_shift;
        pair_type pair = read(smaller(head, last_head));   // on its way while the angle is computed
        float sine, cosine;
        rotation(a, token, k, sine, cosine);
        while (head < heads) {
            char * const out = dst + head * a.dst_stride[0];
            const float x = T::to_float(pair[0]), y = T::to_float(pair[1]);
            pair[0] = T::from_float(turned_first(x, y, sine, cosine));
            pair[1] = T::from_float(turned_second(x, y, sine, cosine));
            if constexpr (Neighbours) {
                store(out, at0, pair);
            } else {
                store(out, at0, pair[0]);
                store(out, at1, pair[1]);
            }
            head += rope_block >> a.lane_shift;
            if (head < heads) {
                pair = read(head);
            }
        }
    }
    if (a.rest.divisor == 0) {
        return;
    }
    for (uint32_t i = thread_x(); i < heads * a.rest.divisor; i += rope_block) {
        const uint32_t head = quotient(i, a.rest);
        uint32_t channel = remainder(i, head, a.rest);
        channel += channel >= a.first ? a.rotated : 0;
        const uint32_t at = channel * sizeof(storage);
        store(dst + head * a.dst_stride[0], at, load<storage>(src + head * a.src_stride[0], at));
    }
}

}  // namespace strata

using namespace strata;

STRATA_KERNEL(rope_block) void rope_neighbours_f32(rope_args a) { rope<f32, true>(a); }
STRATA_KERNEL(rope_block) void rope_neighbours_f16(rope_args a) { rope<f16, true>(a); }
STRATA_KERNEL(rope_block) void rope_halves_f32(rope_args a) { rope<f32, false>(a); }
STRATA_KERNEL(rope_block) void rope_halves_f16(rope_args a) { rope<f16, false>(a); }
