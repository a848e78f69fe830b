// Lines and banks.
#include "lines.h"

#include <algorithm>

namespace strata::emulator {

unsigned distinct_lines(const memory_access & a, uint64_t (&lines)[most_lines]) {
    unsigned count = 0;
    for (uint32_t rest = a.lanes; rest; rest &= rest - 1) {
        const uint64_t address = a.at[0][__builtin_ctz(rest)];
        const uint64_t last = (address + a.bytes - 1) / line_bytes;
        for (uint64_t line = address / line_bytes; line <= last; line++) {
            if (count && lines[count - 1] == line) continue;
            if (std::find(lines, lines + count, line) == lines + count) lines[count++] = line;
        }
    }
    return count;
}

bank_use lds_passes(const memory_access & a) {
    constexpr unsigned banks = 32;
    bank_use use;
    const unsigned dwords = (a.bytes + 3) / 4;
    const unsigned group = dwords <= 1 ? 32 : dwords == 2 ? 16 : 8;
    for (unsigned which = 0; which < a.addresses; which++) {
        for (unsigned first = 0; first < 32; first += group) {
            uint32_t wanted[banks][32];
            uint8_t used[banks] = {};
            unsigned most = 0;
            for (unsigned lane = first; lane < first + group; lane++) {
                if (!(a.lanes >> lane & 1)) continue;
                const uint32_t begin = uint32_t(a.at[which][lane]) / 4;
                const uint32_t end = uint32_t(a.at[which][lane] + a.bytes - 1) / 4;
                for (uint32_t d = begin; d <= end; d++) {
                    uint32_t * list = wanted[d % banks];
                    uint8_t & n = used[d % banks];
                    if (std::find(list, list + n, d) == list + n && n < 32) list[n++] = d;
                    most = std::max<unsigned>(most, n);
                }
            }
            use.passes += most;
            if (most > 1) use.conflicts += most - 1;
        }
    }
    return use;
}

}  // namespace strata::emulator
