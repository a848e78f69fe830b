// Gathers, scatters and copies rows, converting between types. Kernels are named get_ or set_, source type, destination type. The _rows
// kernels give a wave 256 elements of a row, the _flat kernels a work-item one element of many short rows.
#include "rows.h"
#include "strata/dequantize.h"
#include "strata/element.h"
#include "strata/lane_group.h"
#include "strata/q8_1.h"
#include "strata/read_together.h"

namespace strata {

// The part of a row that this wave works on.
struct wave_part {
    row_pair at;
    uint32_t begin, elements;
};

STRATA_DEVICE uint32_t wave_index(uint32_t block = rows_block) { return lane_group(block_x(), block); }

template <direction Direction>
STRATA_DEVICE wave_part find_part(const rows_args & a, uint32_t wave) {
    const uint32_t r = quotient(wave, a.parts);
    const uint32_t begin = remainder(wave, r, a.parts) * rows_tile;
    return {find_rows<Direction>(a, r), begin, a.row - begin < rows_tile ? a.row - begin : rows_tile};
}

template <class S, class D>
STRATA_DEVICE typename D::storage convert(typename S::storage v) {
    if constexpr (__is_same(S, D)) {
        return v;
    } else {
        return D::from_float(S::to_float(v));
    }
}

template <direction Direction, class S, class D>
STRATA_DEVICE void convert_rows(const rows_args & a) {
    const uint32_t wave = wave_index();
    if (wave >= a.count) {
        return;
    }
    const wave_part part = find_part<Direction>(a, wave);
    using source = typename S::storage;
    using destination = typename D::storage;
    const char * const src = part.at.src + static_cast<uint64_t>(part.begin) * sizeof(source);
    char * const dst = part.at.dst + static_cast<uint64_t>(part.begin) * sizeof(destination);
    for (uint32_t e = 4 * group_lane(); e < part.elements; e += 4 * group_lanes) {
        if (part.elements - e >= 4) {
            const four_t<S> v = load<four_t<S>>(src, e * sizeof(source));
            four_t<D> r;
            for (uint32_t i = 0; i < 4; i++) {
                r[i] = convert<S, D>(v[i]);
            }
            store(dst, e * sizeof(destination), r);
        } else {
            for (uint32_t i = e; i < part.elements; i++) {
                store(dst, i * sizeof(destination), convert<S, D>(load<source>(src, i * sizeof(source))));
            }
        }
    }
}

template <direction Direction, class S, class D>
STRATA_DEVICE void convert_flat(const rows_args & a) {
    const uint32_t i = block_x() * rows_block + thread_x();
    if (i >= a.count) {
        return;
    }
    const uint32_t r = quotient(i, a.parts), e = remainder(i, r, a.parts);
    const row_pair at = find_rows<Direction>(a, r);
    const auto v = load<typename S::storage>(at.src, e * sizeof(typename S::storage));
    store(at.dst, e * sizeof(typename D::storage), convert<S, D>(v));
}

// A lane an element of each block of 32.
template <class Block>
STRATA_DEVICE void dequantize_rows(const rows_args & a) {
    const uint32_t wave = wave_index(dequantize_block);
    read_together(a.count, a.parts.divisor, a.parts.magic, a.parts.shift, a.row, a.dst, a.src, a.index);
    read_together(a.ne1.divisor, a.ne1.magic, a.ne1.shift, a.ne2.divisor, a.ne2.magic, a.ne2.shift);
    read_together(a.index_ne1.divisor, a.index_ne1.magic, a.index_ne1.shift, a.index_ne2.divisor, a.index_ne2.magic, a.index_ne2.shift);
    read_together(a.index_stride[0], a.index_stride[1], a.index_stride[2], a.src_stride[0], a.src_stride[1], a.src_stride[2]);
    read_together(a.dst_stride[0], a.dst_stride[1], a.dst_stride[2]);
    if (wave >= a.count) {
        return;
    }
    const wave_part part = find_part<direction::gather>(a, wave);
    const uint32_t lane = group_lane();
    const Block * const blocks = reinterpret_cast<const Block *>(part.at.src) + part.begin / Block::elements;
    char * const dst = part.at.dst + static_cast<uint64_t>(part.begin) * sizeof(float);
    if (part.elements == rows_tile) {   // everything is asked for at once
        float values[rows_tile / group_lanes];
#pragma unroll
        for (uint32_t i = 0; i < rows_tile / group_lanes; i++) {
            const uint32_t e = i * group_lanes;
            values[i] = dequantize(blocks[e / Block::elements], e % Block::elements + lane);
        }
#pragma unroll
        for (uint32_t i = 0; i < rows_tile / group_lanes; i++) {
            store(dst, (i * group_lanes + lane) * sizeof(float), values[i]);
        }
        return;
    }
    for (uint32_t e = 0; e < part.elements; e += group_lanes) {
        store(dst, (e + lane) * sizeof(float), dequantize(blocks[e / Block::elements], e % Block::elements + lane));
    }
}

}  // namespace strata

using namespace strata;

#define GET(source, destination)                                                                                                \
    STRATA_KERNEL(rows_block) void get_##source##_rows(rows_args a) { convert_rows<direction::gather, source, destination>(a); } \
    STRATA_KERNEL(rows_block) void get_##source##_flat(rows_args a) { convert_flat<direction::gather, source, destination>(a); }

GET(f32, f32)
GET(f16, f32)
GET(bf16, f32)
GET(bits32, bits32)

STRATA_KERNEL(rows_block) void get_f32_rows_q8_1(gather_q8_1_args a) {
    const uint32_t wave = wave_index();
    if (wave >= a.rows.count) {
        return;
    }
    const wave_part part = find_part<direction::gather>(a.rows, wave);
    const uint64_t first = static_cast<uint64_t>(quotient(wave, a.rows.parts)) * a.rows.row;
    char * const values = static_cast<char *>(a.values) + first;
    char * const meta = static_cast<char *>(a.meta) + first / 32 * sizeof(q8_1_meta);
    for (uint32_t e = part.begin + 4 * group_lane(); e < part.begin + part.elements; e += 4 * group_lanes) {
        const float4v v = load<float4v>(part.at.src, e * sizeof(float));
        store(part.at.dst, e * sizeof(float), v);
        store_q8_1(values, meta, e, v);
    }
}

#define GET_QUANTIZED(type) \
    STRATA_KERNEL(dequantize_block) void get_##type##_rows(rows_args a) { dequantize_rows<block_##type>(a); }

GET_QUANTIZED(q4_0)
GET_QUANTIZED(q4_1)
GET_QUANTIZED(q5_0)
GET_QUANTIZED(q5_1)
GET_QUANTIZED(q8_0)
GET_QUANTIZED(q4_K)
GET_QUANTIZED(q5_K)
GET_QUANTIZED(q6_K)
GET_QUANTIZED(q1_0)
GET_QUANTIZED(q2_0)
GET_QUANTIZED(q2_K)
GET_QUANTIZED(q3_K)
GET_QUANTIZED(iq1_s)
GET_QUANTIZED(iq1_m)
GET_QUANTIZED(iq2_xxs)
GET_QUANTIZED(iq2_xs)
GET_QUANTIZED(iq2_s)
GET_QUANTIZED(iq3_xxs)
GET_QUANTIZED(iq3_s)
GET_QUANTIZED(iq4_nl)
GET_QUANTIZED(iq4_xs)
GET_QUANTIZED(tq1_0)
GET_QUANTIZED(tq2_0)
GET_QUANTIZED(mxfp4)
GET_QUANTIZED(nvfp4)

#define SET(source, destination)                                                     \
    STRATA_KERNEL(rows_block) void set_##source##_##destination##_rows(rows_args a) { \
        convert_rows<direction::scatter, source, destination>(a);                    \
    }                                                                                \
    STRATA_KERNEL(rows_block) void set_##source##_##destination##_flat(rows_args a) { \
        convert_flat<direction::scatter, source, destination>(a);                    \
    }

SET(f32, f32)
SET(f32, f16)
SET(f32, bf16)
SET(f16, f32)
SET(f16, f16)
SET(f16, bf16)
