// Copies: bits moved, or numbers converted; transposing copies through LDS, so that both sides are read and written along rows.
#include "pointwise.h"
#include "strata/args/copy_pair.h"
#include "strata/args/transpose.h"

namespace strata {

template <class T>
STRATA_DEVICE typename T::storage moved(const pointwise_args &, typename T::storage x, uint32_t) {
    return x;
}

template <class D, class S>
STRATA_DEVICE typename D::storage converted(const pointwise_args &, typename S::storage x, uint32_t) {
    return D::from_float(S::to_float(x));
}

template <class T>
STRATA_DEVICE void copy_pair(const copy_pair_args & a) {
    const bool second = block_x() >= a.blocks;
    const uint32_t block = second ? block_x() - a.blocks : block_x();
    const copy_pair_args::part & part = a.parts[second];
    if (part.rows) {
        pointwise_rows<T, T, no_operand>(part.copy, block, moved<T>);
    } else {
        pointwise_flat<T, T, no_operand>(part.copy, block, moved<T>);
    }
}

constexpr uint32_t tile_rows = transpose_block / transpose_tile;  // rows of a tile that a workgroup moves at a time

// A tile that begins at (begin0, begin1); Whole: it lies inside of the tensor.
template <class T, bool Whole>
STRATA_DEVICE void transpose_part(const transpose_args & a, char * dst, const char * src, uint32_t begin0, uint32_t begin1,
                                  uint32_t (&tile)[transpose_tile][transpose_tile + 1]) {
    using storage = typename T::storage;
    const uint32_t x = thread_x() % transpose_tile, y = thread_x() / transpose_tile;
#pragma unroll
    for (uint32_t row = 0; row < transpose_tile; row += tile_rows) {
        const uint32_t i0 = begin0 + y + row, i1 = begin1 + x;
        if (Whole || (i0 < a.n0 && i1 < a.n1)) {
            tile[y + row][x] = load<storage>(src + static_cast<uint64_t>(i0) * a.src_step0 + static_cast<uint64_t>(i1) * sizeof(storage));
        }
    }
    barrier();
#pragma unroll
    for (uint32_t row = 0; row < transpose_tile; row += tile_rows) {
        const uint32_t i0 = begin0 + x, i1 = begin1 + y + row;
        if (Whole || (i0 < a.n0 && i1 < a.n1)) {
            store(dst + static_cast<uint64_t>(i1) * a.dst_step1 + static_cast<uint64_t>(i0) * sizeof(storage), 0,
                  static_cast<storage>(tile[x][y + row]));
        }
    }
}

template <class T>
STRATA_DEVICE void transpose(const transpose_args & a, uint32_t (&tile)[transpose_tile][transpose_tile + 1]) {
    uint32_t rest = quotient(block_x(), a.tiles0);
    const uint32_t begin0 = transpose_tile * remainder(block_x(), rest, a.tiles0);
    uint32_t outer = quotient(rest, a.tiles1);
    const uint32_t begin1 = transpose_tile * remainder(rest, outer, a.tiles1);
    uint64_t dst_offset = 0, src_offset = 0;
    for (uint32_t d = 0; d < a.outer_count; d++) {
        const pointwise_dim & dim = a.outer[d];
        rest = quotient(outer, dim.size);
        const uint32_t index = remainder(outer, rest, dim.size);
        outer = rest;
        dst_offset += static_cast<uint64_t>(index) * dim.step_dst;
        src_offset += static_cast<uint64_t>(index) * dim.step_a;
    }
    char * const dst = static_cast<char *>(a.dst) + dst_offset;
    const char * const src = static_cast<const char *>(a.src) + src_offset;
    if (begin0 + transpose_tile <= a.n0 && begin1 + transpose_tile <= a.n1) {
        transpose_part<T, true>(a, dst, src, begin0, begin1, tile);
    } else {
        transpose_part<T, false>(a, dst, src, begin0, begin1, tile);
    }
}

}  // namespace strata

using namespace strata;

#define MOVE(bits)                                                               \
    STRATA_POINTWISE(copy_##bits, bits, bits, no_operand, moved<bits>)           \
    STRATA_KERNEL(pointwise_block) void copy_pair_##bits(copy_pair_args a) { copy_pair<bits>(a); }

MOVE(bits8)
MOVE(bits16)
MOVE(bits32)
MOVE(bits64)

#define CONVERT(source, destination) \
    STRATA_POINTWISE(copy_##source##_##destination, destination, source, no_operand, (converted<destination, source>))

CONVERT(f32, f16)
CONVERT(f32, bf16)
CONVERT(f32, i32)
CONVERT(f16, f32)
CONVERT(f16, bf16)
CONVERT(bf16, f32)
CONVERT(bf16, f16)
CONVERT(i32, f32)

STRATA_KERNEL(transpose_block) void transpose_bits16(transpose_args a) {
    __shared__ uint32_t tile[transpose_tile][transpose_tile + 1];
    transpose<bits16>(a, tile);
}

STRATA_KERNEL(transpose_block) void transpose_bits32(transpose_args a) {
    __shared__ uint32_t tile[transpose_tile][transpose_tile + 1];
    transpose<bits32>(a, tile);
}
