// WIN_PART, WIN_UNPART (f32), GET_REL_POS (2-byte elements): a work-item an element of the result.
#include "strata/args/windows.h"
#include "strata/memory.h"

using namespace strata;

STRATA_KERNEL(windows_block) void win_part(windows_args a) {
    const uint32_t i = block_x() * windows_block + thread_x();
    if (i >= a.count) {
        return;
    }
    const uint32_t column = quotient(i, a.channels), c = remainder(i, column, a.channels);
    const uint32_t line = quotient(column, a.side), x0 = remainder(column, line, a.side);
    const uint32_t window = quotient(line, a.side), y0 = remainder(line, window, a.side);
    const uint32_t down = quotient(window, a.across), across = remainder(window, down, a.across);
    const uint32_t x = across * a.side.divisor + x0, y = down * a.side.divisor + y0;
    float value = 0.0f;
    if (x < a.image_w.divisor && y < a.image_h) {
        value = load<float>(static_cast<const char *>(a.src) + (c * a.src_step[0] + x * a.src_step[1] + y * a.src_step[2]));
    }
    a.dst[i] = value;
}

STRATA_KERNEL(windows_block) void win_unpart(windows_args a) {
    const uint32_t i = block_x() * windows_block + thread_x();
    if (i >= a.count) {
        return;
    }
    const uint32_t column = quotient(i, a.channels), c = remainder(i, column, a.channels);
    const uint32_t y = quotient(column, a.image_w), x = remainder(column, y, a.image_w);
    const uint32_t across = quotient(x, a.side), down = quotient(y, a.side);
    const uint32_t window = down * a.across.divisor + across;
    a.dst[i] = load<float>(static_cast<const char *>(a.src) + (c * a.src_step[0] + remainder(x, across, a.side) * a.src_step[1] +
                                                                remainder(y, down, a.side) * a.src_step[2] + window * a.src_step[3]));
}

STRATA_KERNEL(windows_block) void get_rel_pos(rel_pos_args a) {
    const uint32_t k = block_x() * windows_block + thread_x();
    if (k >= a.count) {
        return;
    }
    const uint32_t rest = quotient(k, a.channels), c = remainder(k, rest, a.channels);
    const uint32_t j = quotient(rest, a.size), i = remainder(rest, j, a.size);
    const uint32_t position = j + a.size.divisor - 1 - i;
    a.dst[k] = load<uint16_t>(static_cast<const char *>(a.src) + (c * a.src_step[0] + position * a.src_step[1]));
}
