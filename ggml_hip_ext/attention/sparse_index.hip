// What stands around the choice of keys of a sparse attention: means of blocks of keys, sums over the heads of an indexer, the scores of blocks as
// those of their keys, and the mask of what was chosen. Each rounds as the ops one by one do.
#include "strata/args/sparse_index.h"
#include "strata/element.h"
#include "strata/math.h"

namespace strata {

STRATA_DEVICE uint32_t cell_of(const void * cells, uint64_t stride, uint32_t stream, uint32_t at) {
    return load<uint32_t>(static_cast<const char *>(cells) + stream * stride, at * sizeof(uint32_t));
}

template <class T>
STRATA_DEVICE void block_mean(const block_mean_args & a) {
    const uint32_t item = block_x() * sparse_block + thread_x();
    if (item >= a.count) {
        return;
    }
    const uint32_t row = quotient(item, a.width), i = remainder(item, row, a.width);
    const uint32_t stream = quotient(row, a.blocks), block = remainder(row, stream, a.blocks);
    const char * const src = static_cast<const char *>(a.src) + stream * a.src_stride[1] + i * sizeof(typename T::storage);
    float sum = 0.0f;
    for (uint32_t m = 0; m < a.members; m++) {
        const uint64_t cell = cell_of(a.cells, a.cells_stride, stream, block * a.members + m);
        const float v = T::to_float(load<typename T::storage>(src + cell * a.src_stride[0]));
        sum = m == 0 ? v : sum + v;
    }
    store(a.dst, item * sizeof(float), fma(sum, a.scale, a.bias));
}

template <class T>
STRATA_DEVICE void expand(const expand_args & a) {
    const uint32_t item = block_x() * sparse_block + thread_x();
    if (item >= a.count) {
        return;
    }
    const uint32_t row = quotient(item, a.keys), key = remainder(item, row, a.keys);
    const uint32_t stream = quotient(row, a.tokens), token = remainder(row, stream, a.tokens);
    const uint64_t block = cell_of(a.cells, a.cells_stride, stream, key);
    const char * const score = static_cast<const char *>(a.score) + (block * a.score_stride[0] + token * a.score_stride[1] + stream * a.score_stride[2]);
    const char * const mask = static_cast<const char *>(a.mask) + (token * a.mask_stride[0] + stream * a.mask_stride[1]);
    store(a.dst, item * sizeof(float), load<float>(score) + T::to_float(load<typename T::storage>(mask, key * sizeof(typename T::storage))));
}

extern __shared__ uint32_t listed_bits[];

template <class T>
STRATA_DEVICE void chosen_mask(const chosen_mask_args & a) {
    using element = typename T::storage;
    const uint32_t row = block_x(), stream = quotient(row, a.tokens), token = remainder(row, stream, a.tokens);
    const char * const chosen = static_cast<const char *>(a.chosen) + (token * a.chosen_stride[0] + stream * a.chosen_stride[1]);
    for (uint32_t word = thread_x(); word < (a.keys + 31) / 32; word += sparse_block) {
        listed_bits[word] = 0;
    }
    barrier();
    for (uint32_t i = thread_x(); i < a.listed; i += sparse_block) {
        const uint32_t key = load<uint32_t>(chosen, i * sizeof(uint32_t));
        __hip_atomic_fetch_or(&listed_bits[key / 32], 1u << key % 32, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    }
    barrier();
    const char * const mask = static_cast<const char *>(a.mask) + (token * a.mask_stride[0] + stream * a.mask_stride[1]);
    char * const dst = static_cast<char *>(a.dst) + static_cast<uint64_t>(row) * a.keys * sizeof(element);
    for (uint32_t key = thread_x(); key < a.keys; key += sparse_block) {
        const float value = (listed_bits[key / 32] >> key % 32 & 1) != 0 ? a.in_list : a.otherwise;
        store(dst, key * sizeof(element), T::from_float(value + T::to_float(load<element>(mask, key * sizeof(element)))));
    }
}

}  // namespace strata

using namespace strata;

STRATA_KERNEL(sparse_block) void block_mean_f16(block_mean_args a) { block_mean<f16>(a); }
STRATA_KERNEL(sparse_block) void block_mean_f32(block_mean_args a) { block_mean<f32>(a); }

STRATA_KERNEL(sparse_block) void slice_sum(slice_sum_args a) {
    const uint32_t item = block_x() * sparse_block + thread_x();
    if (item >= a.count) {
        return;
    }
    const uint32_t row = quotient(item, a.ne0), i = remainder(item, row, a.ne0);
    const uint32_t i2 = quotient(row, a.ne1), i1 = remainder(row, i2, a.ne1);
    const char * const src = static_cast<const char *>(a.src) + (i1 * a.src_stride[0] + i2 * a.src_stride[1]) + i * sizeof(float);
    float sum = 0.0f;
    constexpr uint32_t at_once = 16;   // asked for before the first is added
    for (uint32_t begin = 0; begin < a.slices; begin += at_once) {
        float v[at_once];
#pragma unroll
        for (uint32_t k = 0; k < at_once; k++) {
            v[k] = begin + k < a.slices ? load<float>(src + (begin + k) * a.src_stride[2]) : 0.0f;
        }
        keep_order();
#pragma unroll
        for (uint32_t k = 0; k < at_once; k++) {
            if (begin + k < a.slices) {
                const float part = a.relu && !(v[k] > 0.0f) ? 0.0f : v[k];
                sum = begin + k == 0 ? part : sum + part;
            }
        }
    }
    if (a.scaled) {
        sum = fma(sum, a.scale, a.bias);
    }
    if (a.other) {
        sum += load<float>(static_cast<const char *>(a.other) + (i1 * a.other_stride[0] + i2 * a.other_stride[1]), i * sizeof(float));
    }
    store(a.dst, item * sizeof(float), sum);
}

STRATA_KERNEL(sparse_block) void expand_f16(expand_args a) { expand<f16>(a); }
STRATA_KERNEL(sparse_block) void expand_f32(expand_args a) { expand<f32>(a); }
STRATA_KERNEL(sparse_block) void chosen_mask_f16(chosen_mask_args a) { chosen_mask<f16>(a); }
STRATA_KERNEL(sparse_block) void chosen_mask_f32(chosen_mask_args a) { chosen_mask<f32>(a); }
