// Caches and rates of the time model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace strata::emulator::model {

/// Something that serves one request after the other. Times are cycles.
struct server {
    double free_at = 0, busy = 0;

    /// When the request that comes at `now` and takes `cycles` begins to be served.
    double take(double now, double cycles) {
        const double begin = std::max(now, free_at);
        free_at = begin + cycles;
        busy += cycles;
        return begin;
    }
};

/// A set-associative cache of 128-byte lines; the line used longest ago makes room.
class cache {
public:
    explicit cache(unsigned bytes) : sets_(bytes / 128 / ways), lines_(size_t(sets_) * ways) {}

    struct line {
        uint64_t key = 0;  ///< line number + 1; 0: free
        uint64_t used = 0;
        double arrives = 0;
        bool dirty = false;
    };
    struct answer {
        line * where;
        bool hit;
        uint64_t evicted;  ///< key of a line that had been written and had to go; 0: none
    };
    /// Looks a line up and, if it is missing, puts it in the place of another.
    answer find(uint64_t number) {
        const uint64_t key = number + 1;
        line * const set = &lines_[(number * 0x9e3779b97f4a7c15ull >> 24) % sets_ * ways];
        line * oldest = set;
        for (line * l = set; l < set + ways; l++) {
            if (l->key == key && l->used <= emptied_) {
                oldest = l;
                break;
            }
            if (l->key == key) {
                l->used = ++clock_;
                return {l, true, 0};
            }
            if (l->used < oldest->used) oldest = l;
        }
        const uint64_t evicted = oldest->dirty ? oldest->key : 0;
        *oldest = {key, ++clock_, 0, false};
        return {oldest, false, evicted};
    }
    /// Forgets all lines, none of which may be dirty.
    void empty() { emptied_ = clock_; }
    /// The lines' times are of a launch that is over.
    void settle() {
        for (line & l : lines_) l.arrives = 0;
    }

private:
    static constexpr unsigned ways = 16;
    unsigned sets_;
    uint64_t clock_ = 0, emptied_ = 0;
    std::vector<line> lines_;
};

}  // namespace strata::emulator::model
