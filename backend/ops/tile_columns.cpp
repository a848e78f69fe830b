// J of the tile kernels: for experts from tables, for dense products by rule.
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

/// Types that tile_columns.inc does not have: a peer's measurements on this chip.
constexpr tile_range small_blocks[] = {{12, 16}, {64, 48}, {any, 128}};                        // blocks of up to 128
constexpr tile_range large_blocks[] = {{12, 16}, {24, 32}, {48, 48}, {64, 32}, {any, 128}};    // blocks of 256
constexpr tile_range halves[] = {{16, 16}, {any, 64}};                                         // f16, bf16

template <std::size_t N>
uint32_t find_range(const tile_range (&ranges)[N], double rows_an_expert) {
    std::size_t i = 0;
    while (i + 1 < N && rows_an_expert > ranges[i].rows_an_expert) {
        ++i;
    }
    return ranges[i].columns;
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
        default: return ggml_blck_size(weights) >= 256 ? find_range(large_blocks, rows_an_expert) : find_range(small_blocks, rows_an_expert);
    }
}

uint32_t dense_tile_columns(const device_caps & caps, ggml_type weights, int64_t rows, int64_t columns, int64_t matrices) {
    if (const uint32_t forced_ones = forced_columns(weights)) {
        return forced_ones;
    }
    if (!ggml_is_quantized(weights)) {
        return weights != GGML_TYPE_F32 && columns <= 16 ? 16 : 64;
    }
    // The smallest that holds them all, up to 64. Beyond, 128 where it keeps the device busy and wastes little.
    if (columns <= 64) {
        return columns <= 16 ? 16 : columns <= 32 ? 32 : columns <= 48 ? 48 : 64;
    }
    const bool busy = int64_t(tiles(rows, 128)) * tiles(columns, 128) * matrices >= caps.compute_units;
    return busy && (columns > 512 || tiles(columns, 64) % 2 == 0) ? 128 : 64;
}

bool force_tile_columns(uint32_t columns) {
    if (columns != 0 && !holds(quantized_kernels, columns)) {
        return false;
    }
    forced.store(columns, std::memory_order_relaxed);
    return true;
}

}  // namespace strata
