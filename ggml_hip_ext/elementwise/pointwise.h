// Applies a function of one or two elements to whole tensors: along rows that are contiguous in memory, or element by element.
#pragma once

#include "strata/args/pointwise.h"
#include "strata/element.h"
#include "strata/lane_group.h"
#include "strata/math.h"
#include "strata/read_together.h"

namespace strata {

/// The second operand of a function of one argument.
struct no_operand {
    using storage = uint32_t;
};

template <class T>
constexpr bool is_operand = true;
template <>
inline constexpr bool is_operand<no_operand> = false;

/// Innermost loop contiguous in dst and a, and contiguous or a single element in b. A wave takes args.tile elements of a row, four
/// neighbouring ones a lane at a time.
/// `block` is the workgroup, counted from 0; `function(args, a, b)` takes and gives stored elements.
template <class D, class A, class B, class F>
STRATA_DEVICE void pointwise_rows(const pointwise_args & args, uint32_t block, F function) {
    using dst_type = typename D::storage;
    using a_type = typename A::storage;
    using b_type = typename B::storage;
    constexpr uint32_t step = 4 * group_lanes;

    const uint32_t wave = lane_group(block, pointwise_block);
    read_together(args.waves, args.dst, args.a, args.tile, args.row_tiles.divisor, args.row_tiles.magic, args.row_tiles.shift, args.dim_count,
                  args.dims[0].size.divisor);
    if constexpr (is_operand<B>) {
        read_together(args.b, args.dims[0].step_b);
    }
    if (wave >= args.waves) {
        return;
    }
    uint32_t outer = quotient(wave, args.row_tiles);
    const uint32_t begin = remainder(wave, outer, args.row_tiles) * args.tile;
    uint64_t dst_offset = 0, a_offset = 0, b_offset = 0;
    for (uint32_t d = 1; d < args.dim_count; d++) {
        const pointwise_dim & dim = args.dims[d];
        const uint32_t next = quotient(outer, dim.size);
        const uint32_t index = remainder(outer, next, dim.size);
        outer = next;
        dst_offset += static_cast<uint64_t>(index) * dim.step_dst;
        a_offset += static_cast<uint64_t>(index) * dim.step_a;
        if constexpr (is_operand<B>) {
            b_offset += static_cast<uint64_t>(index) * dim.step_b;
        }
    }
    char * const dst = static_cast<char *>(args.dst) + (dst_offset + static_cast<uint64_t>(begin) * sizeof(dst_type));
    const char * const a = static_cast<const char *>(args.a) + (a_offset + static_cast<uint64_t>(begin) * sizeof(a_type));
    const bool b_repeated = args.dims[0].step_b == 0;
    const char * b = static_cast<const char *>(args.b);
    if constexpr (is_operand<B>) {
        b += b_offset + (b_repeated ? 0 : static_cast<uint64_t>(begin) * sizeof(b_type));
    }
    const uint32_t left = smaller(args.dims[0].size.divisor - begin, args.tile);
    const uint32_t first = 4 * group_lane();

    const auto load_b = [&](uint32_t e) {
        four_t<B> v{};
        if constexpr (is_operand<B>) {
            if (b_repeated) {
                v = load<b_type>(b);
            } else {
                v = load<four_t<B>>(b, e * sizeof(b_type));
            }
        }
        return v;
    };
    const auto apply = [&](uint32_t e, four_t<A> va, four_t<B> vb) {
        four_t<D> r;
        for (uint32_t i = 0; i < 4; i++) {
            r[i] = function(args, va[i], vb[i]);
        }
        store(dst, e * sizeof(dst_type), r);
    };

    if (left >= pointwise_tile) {
        const four_t<A> a0 = load<four_t<A>>(a, first * sizeof(a_type));
        const four_t<A> a1 = load<four_t<A>>(a, (first + step) * sizeof(a_type));
        const four_t<B> b0 = load_b(first);
        const four_t<B> b1 = load_b(first + step);
        apply(first, a0, b0);
        apply(first + step, a1, b1);
        return;
    }
    uint32_t e = first;
    if (left >= step) {
        apply(e, load<four_t<A>>(a, e * sizeof(a_type)), load_b(e));
        e += step;
    }
    for (; e < left; e += step) {
        if (left - e >= 4) {
            apply(e, load<four_t<A>>(a, e * sizeof(a_type)), load_b(e));
            continue;
        }
        for (uint32_t i = e; i < left; i++) {
            const a_type va = load<a_type>(a, i * sizeof(a_type));
            b_type vb{};
            if constexpr (is_operand<B>) {
                vb = load<b_type>(b, b_repeated ? 0 : i * sizeof(b_type));
            }
            store(dst, i * sizeof(dst_type), function(args, va, vb));
        }
    }
}

/// Any strides, an element a work-item.
template <class D, class A, class B, class F>
STRATA_DEVICE void pointwise_flat(const pointwise_args & args, uint32_t block, F function) {
    uint32_t rest = block * pointwise_block + thread_x();
    if (rest >= args.count) {
        return;
    }
    uint64_t dst_offset = 0, a_offset = 0, b_offset = 0;
    const auto advance = [&](const pointwise_dim & dim, uint32_t index) {
        dst_offset += static_cast<uint64_t>(index) * dim.step_dst;
        a_offset += static_cast<uint64_t>(index) * dim.step_a;
        if constexpr (is_operand<B>) {
            b_offset += static_cast<uint64_t>(index) * dim.step_b;
        }
    };
    uint32_t d = 0;
    for (; d + 1 < args.dim_count; d++) {
        const uint32_t next = quotient(rest, args.dims[d].size);
        advance(args.dims[d], remainder(rest, next, args.dims[d].size));
        rest = next;
    }
    advance(args.dims[d], rest);
    const auto va = *reinterpret_cast<const typename A::storage *>(static_cast<const char *>(args.a) + a_offset);
    typename B::storage vb{};
    if constexpr (is_operand<B>) {
        vb = *reinterpret_cast<const typename B::storage *>(static_cast<const char *>(args.b) + b_offset);
    }
    *reinterpret_cast<typename D::storage *>(static_cast<char *>(args.dst) + dst_offset) = function(args, va, vb);
}

}  // namespace strata

/// Defines the kernels name_rows and name_flat: D = function(args, A, B) on stored elements.
#define STRATA_POINTWISE(name, D, A, B, function)                              \
    STRATA_KERNEL(strata::pointwise_block)                                     \
    void name##_rows(strata::pointwise_args args) {                            \
        strata::pointwise_rows<D, A, B>(args, strata::block_x(), function);                       \
    }                                                                          \
    STRATA_KERNEL(strata::pointwise_block)                                     \
    void name##_flat(strata::pointwise_args args) {                            \
        strata::pointwise_flat<D, A, B>(args, strata::block_x(), function);                       \
    }
