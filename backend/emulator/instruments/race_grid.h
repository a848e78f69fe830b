// Which accesses of a cooperative launch's workgroups are ordered: by atomics that one makes and another sees, with the waits before and
// the invalidations behind that the chip needs.
#pragma once

#include "access.h"
#include "probe.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace strata::emulator {

struct wave;
struct launch_context;

struct grid_conflict {
    uint32_t other = 0, other_pc = 0;  ///< workgroup
    bool other_writes = false;
    uint32_t lanes = 0;
    uint64_t address = 0;
    const char * detail = "";
};
void report_grid_race(wave & w, const probe & p, const grid_conflict & c);  // race.cpp

/// Whether a lane's plain store leaves its bytes as they are. (race.cpp)
bool keeps_value(const wave & w, const probe & p, const memory_access & a, unsigned n, unsigned lane, const void * there);

/// Clocks of the workgroups of one launch, which run on one thread: time is the number of accesses so far.
class grid_order {
public:
    explicit grid_order(const launch_context & context);
    /// Waits and invalidations.
    void pass(const wave & w, const probe & p);
    void check(wave & w, const probe & p, const memory_access & a, uint32_t lanes);

private:
    using clock = std::vector<uint64_t>;  ///< by workgroup: up to when what it did is known
    struct reader {
        uint32_t group, pc;
        uint64_t at;
        uint8_t bytes;
    };
    struct cell {
        uint64_t written = 0;  ///< 0: not in this launch
        uint32_t writer = 0, writer_pc = 0;
        uint8_t bytes = 0;
        bool by_atomic = false;
        std::vector<reader> readers;  ///< since then
    };
    struct wave_view {
        clock vector, scalar;       ///< what its loads cannot find an old value of
        uint8_t emptied = 0;        ///< of the L0 and L1, since the workgroup last saw an atomic
        uint64_t load_since = 0, store_since = 0;  ///< the oldest access that no wait covers; 0: none
    };

    void touch(const wave & w, const probe & p, uint64_t address, uint32_t bytes, bool same_value, unsigned lane, grid_conflict & c);
    void synchronize(const wave & w, const probe & p, uint64_t word);

    uint64_t now_ = 0;
    uint32_t groups_, waves_;
    std::vector<clock> knows_;                    ///< by workgroup
    std::vector<wave_view> views_;                ///< by workgroup and wave
    std::unordered_map<uint64_t, clock> words_;   ///< what those who changed a word by atomics had done
    std::unordered_map<uint64_t, cell> cells_;    ///< by dword
};

}  // namespace strata::emulator
