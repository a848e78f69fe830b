// Sums in f32. The order of the additions depends on shapes alone: the same bits on every run.
#include "strata/args/reduce.h"
#include "strata/element.h"
#include "strata/reduce.h"

namespace strata {

constexpr uint32_t waves_a_block = sum_block / wave_size;

// The part of a row that work-item `first` of `lanes` sums: fours of neighbours where the row is contiguous.
STRATA_DEVICE float sum_part(const sum_rows_args & a, const char * row, uint32_t first, uint32_t lanes) {
    float4v sums = {0.0f, 0.0f, 0.0f, 0.0f};
    if (a.step == sizeof(float)) {
        const uint32_t fours = a.row & ~3u;
        for (uint32_t e = 4 * first; e < fours; e += 4 * lanes) {
            sums += load<float4v>(row, e * sizeof(float));
        }
        if (fours + first < a.row) {
            sums[0] += load<float>(row, (fours + first) * sizeof(float));
        }
    } else {
        for (uint32_t e = first; e < a.row; e += lanes) {
            sums[0] += load<float>(row + static_cast<uint64_t>(e) * a.step);
        }
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

struct row_place {
    char * dst;
    const char * src;
};

STRATA_DEVICE row_place find_row(const sum_rows_args & a, uint32_t row) {
    const uint32_t rest = quotient(row, a.ne1), i1 = remainder(row, rest, a.ne1);
    const uint32_t i3 = quotient(rest, a.ne2), i2 = remainder(rest, i3, a.ne2);
    return {static_cast<char *>(a.dst) + (i1 * a.dst_stride[0] + i2 * a.dst_stride[1] + i3 * a.dst_stride[2]),
            static_cast<const char *>(a.src) + (i1 * a.src_stride[0] + i2 * a.src_stride[1] + i3 * a.src_stride[2])};
}

STRATA_DEVICE float finish(const sum_rows_args & a, float sum) { return a.mean ? sum / static_cast<float>(a.row) : sum; }

template <class S, class D>
STRATA_DEVICE void sum_all(const sum_all_args & a, float * lds) {
    const uint32_t begin = block_x() * a.chunk;
    const uint32_t end = a.count - begin < a.chunk ? a.count : begin + a.chunk;
    float sum = 0.0f;
    for (uint32_t i = begin + thread_x(); i < end; i += sum_block) {
        uint32_t rest = i;
        uint64_t offset = 0;
        for (uint32_t d = 0; d < a.dim_count; d++) {
            const uint32_t next = quotient(rest, a.dims[d].size);
            offset += static_cast<uint64_t>(remainder(rest, next, a.dims[d].size)) * a.dims[d].step_a;
            rest = next;
        }
        sum += S::to_float(load<typename S::storage>(static_cast<const char *>(a.a) + offset));
    }
    sum = block_sum<waves_a_block>(sum, lds);
    if (thread_x() == 0) {
        static_cast<typename D::storage *>(a.dst)[block_x()] = D::from_float(sum);
    }
}

}  // namespace strata

using namespace strata;

STRATA_KERNEL(sum_block) void sum_rows_wave(sum_rows_args a) {
    const uint32_t row = uniform(block_x() * waves_a_block + thread_x() / wave_size);
    if (row >= a.rows) {
        return;
    }
    const row_place at = find_row(a, row);
    const float sum = finish(a, wave_sum(sum_part(a, at.src, lane_id(), wave_size)));
    if (lane_id() == 0) {
        store(at.dst, 0, sum);
    }
}

STRATA_KERNEL(sum_block) void sum_rows_block(sum_rows_args a) {
    __shared__ float lds[waves_a_block];
    const row_place at = find_row(a, block_x());
    const float sum = finish(a, block_sum<waves_a_block>(sum_part(a, at.src, thread_x(), sum_block), lds));
    if (thread_x() == 0) {
        store(at.dst, 0, sum);
    }
}

// Named after the types of the elements and of the results.
#define SUM(source, destination)                                          \
    STRATA_KERNEL(sum_block) void sum_##source##_##destination(sum_all_args a) { \
        __shared__ float lds[waves_a_block];                              \
        sum_all<source, destination>(a, lds);                             \
    }

SUM(f32, f32)
SUM(f16, f16)
SUM(f16, f32)
SUM(f32, f16)
SUM(bf16, bf16)
SUM(bf16, f32)
SUM(f32, bf16)

// The number of equal pairs, as i64; and the sum of such numbers. Both are below 2^31.
STRATA_KERNEL(sum_block) void count_equal_i32(sum_all_args a) {
    __shared__ uint32_t lds[waves_a_block];
    const uint32_t begin = block_x() * a.chunk;
    const uint32_t end = a.count - begin < a.chunk ? a.count : begin + a.chunk;
    uint32_t equal = 0;
    for (uint32_t i = begin + thread_x(); i < end; i += sum_block) {
        uint32_t rest = i;
        uint64_t offset_a = 0, offset_b = 0;
        for (uint32_t d = 0; d < a.dim_count; d++) {
            const uint32_t next = quotient(rest, a.dims[d].size);
            const uint32_t index = remainder(rest, next, a.dims[d].size);
            offset_a += static_cast<uint64_t>(index) * a.dims[d].step_a;
            offset_b += static_cast<uint64_t>(index) * a.dims[d].step_b;
            rest = next;
        }
        equal += load<int32_t>(static_cast<const char *>(a.a) + offset_a) == load<int32_t>(static_cast<const char *>(a.b) + offset_b);
    }
    equal = block_sum<waves_a_block>(equal, lds);
    if (thread_x() == 0) {
        static_cast<uint64_t *>(a.dst)[block_x()] = equal;
    }
}

STRATA_KERNEL(sum_block) void count_total(sum_all_args a) {
    __shared__ uint32_t lds[waves_a_block];
    uint32_t sum = 0;
    for (uint32_t i = thread_x(); i < a.count; i += sum_block) {
        sum += static_cast<uint32_t>(static_cast<const uint64_t *>(a.a)[i]);
    }
    sum = block_sum<waves_a_block>(sum, lds);
    if (thread_x() == 0) {
        *static_cast<uint64_t *>(a.dst) = sum;
    }
}
