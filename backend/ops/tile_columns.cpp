// J of the tile kernels: for experts from tables, for dense products by the tiles that a workgroup processor gets.
#include "ops/tile_columns.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "ops/mul_mat.h"

namespace strata {

namespace {

constexpr uint32_t quantized_kernels[] = {16, 32, 48, 64, 128};
constexpr uint32_t half_kernels[] = {16, 64};   // f16, bf16

std::atomic<uint32_t> forced{0};

template <std::size_t N>
bool holds(const uint32_t (&kernels)[N], uint32_t columns) {
    return std::find(std::begin(kernels), std::end(kernels), columns) != std::end(kernels);
}

/// What force_tile_columns asks for if the type has it, else 0.
uint32_t forced_columns(ggml_type weights) {
    const uint32_t columns = forced.load(std::memory_order_relaxed);
    const bool exists = ggml_is_quantized(weights) ? holds(quantized_kernels, columns) : weights != GGML_TYPE_F32 && holds(half_kernels, columns);
    return exists ? columns : 0;
}

/// The first range of a table that allows the rows gives J.
struct tile_range {
    double rows_an_expert;
    uint32_t columns;
};
constexpr double any = 1e30;

/// Quantized types that tile_columns.inc does not have: what was found for most of those that it has.
constexpr tile_range others[] = {{20, 16}, {any, 32}};
constexpr tile_range halves[] = {{16, 16}, {any, 64}};   // f16, bf16: a peer's measurements on this chip

template <std::size_t N>
uint32_t find_range(const tile_range (&ranges)[N], double rows_an_expert) {
    std::size_t i = 0;
    while (i + 1 < N && rows_an_expert > ranges[i].rows_an_expert) {
        ++i;
    }
    return ranges[i].columns;
}

/// J by what the busiest workgroup processor has to do: the tiles that come to it when they are dealt out in turn, each of which takes as long as
/// its columns and what its rows cost whatever the columns (decoding the weights, loads, barriers). How many of them run at a time matters less: they
/// share the vector units. A narrower tile must save a sixteenth, because it reads the weights more often.
template <std::size_t N>
uint32_t least_turns(const uint32_t (&kernels)[N], const device_caps & caps, int64_t rows, int64_t columns, int64_t matrices) {
    constexpr int64_t rows_cost = 16;   // in columns: fits the modelled times of tiles of q4_K, q6_K and iq2_s in grids of 4 to 512
    const int64_t processors = std::max<int64_t>(1, caps.compute_units / 2);
    uint32_t best = 0;
    int64_t least = 0;
    for (std::size_t i = N; i-- > 0;) {
        const int64_t turns = (int64_t(tiles(rows, 128)) * tiles(columns, kernels[i]) * matrices + processors - 1) / processors;
        const int64_t cost = turns * (kernels[i] + rows_cost);
        if (best == 0 || cost * 16 < least * 15) {
            best = kernels[i];
            least = cost;
        }
    }
    return best;
}

}  // namespace

uint32_t expert_tile_columns(ggml_type weights, double rows_an_expert) {
    if (const uint32_t columns = forced_columns(weights)) {
        return columns;
    }
    switch (weights) {
#define TILE_COLUMNS(type, ...)                                    \
    case GGML_TYPE_##type: {                                       \
        static constexpr tile_range ranges[] = {__VA_ARGS__};      \
        return find_range(ranges, rows_an_expert);                 \
    }
#include "ops/tile_columns.inc"
#undef TILE_COLUMNS
        case GGML_TYPE_F32: return 64;
        case GGML_TYPE_F16:
        case GGML_TYPE_BF16: return find_range(halves, rows_an_expert);
        default: return find_range(others, rows_an_expert);
    }
}

uint32_t dense_tile_columns(const device_caps & caps, ggml_type weights, int64_t rows, int64_t columns, int64_t matrices) {
    if (const uint32_t forced_ones = forced_columns(weights)) {
        return forced_ones;
    }
    if (weights == GGML_TYPE_F32) {
        return 64;
    }
    return ggml_is_quantized(weights) ? least_turns(quantized_kernels, caps, rows, columns, matrices) : least_turns(half_kernels, caps, rows, columns, matrices);
}

bool force_tile_columns(uint32_t columns) {
    if (columns != 0 && !holds(quantized_kernels, columns)) {
        return false;
    }
    forced.store(columns, std::memory_order_relaxed);
    return true;
}

}  // namespace strata
