// ADD_ID: the bias of the chosen expert is added to each row. dst may be a.
#include "strata/args/add_id.h"
#include "strata/memory.h"

namespace strata {

/// Grid: groups of waves; a wave takes 256 columns of a row.
STRATA_KERNEL(add_id_block) void add_id(add_id_args a) {
    const uint32_t wave = uniform(block_x() * (add_id_block / wave_size) + thread_x() / wave_size);
    if (wave >= a.waves) {
        return;
    }
    const uint32_t row = quotient(wave, a.row_tiles), begin = remainder(wave, row, a.row_tiles) * add_id_tile;
    const uint32_t token = quotient(row, a.used), slot = remainder(row, token, a.used);
    const uint32_t expert = *reinterpret_cast<const uint32_t *>(static_cast<const char *>(a.ids) +
                                                                (token * a.ids_stride_token + slot * a.ids_stride_slot));
    const uint64_t first = static_cast<uint64_t>(begin) * sizeof(float);
    const char * from = static_cast<const char *>(a.a) + (token * a.a_stride_token + slot * a.a_stride_slot + first);
    const char * bias = static_cast<const char *>(a.b) + (uniform(expert) * a.b_stride + first);
    float * to = a.dst + (static_cast<uint64_t>(row) * a.columns + begin);
    const uint32_t left = smaller(a.columns - begin, add_id_tile);
    for (uint32_t e = 4 * lane_id(); e < left; e += 4 * wave_size) {
        if (left - e >= 4) {
            store(to, e * 4, load<float4v>(from, e * 4) + load<float4v>(bias, e * 4));
        } else {
            for (uint32_t i = e; i < left; ++i) {
                store(to, i * 4, load<float>(from, i * 4) + load<float>(bias, i * 4));
            }
        }
    }
}

}  // namespace strata
