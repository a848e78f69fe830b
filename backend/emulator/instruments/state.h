// What the instruments remember of a launch, a thread, a workgroup and a wave while it runs. Plain data and plain functions: the
// hooks, which are built once per host instruction set, use it too (see instruction.h).
#pragma once

#include "access.h"
#include "probe.h"
#include "settings.h"

#include <cstddef>
#include <cstdint>

namespace strata::emulator {

struct dispatch;
struct launch_context;
class counter;
class launch_counter;
namespace model { class tracer; }

constexpr uint32_t watched_rows = 272;  // as many as the wave has, see workgroup.cpp

/// Where an undefined value comes from.
struct origin {
    enum class source : uint32_t { vgpr, sgpr, lds, scratch, device, condition } from = source::vgpr;
    uint32_t pc = 0;       ///< of the load
    uint64_t address = 0;  ///< or register number
};

/// The last accesses of a dword: who wrote it and who read it since `epoch` began. See race.cpp.
struct access_cell {
    uint64_t state = 0;
    uint32_t writer_pc = 0, reader_pc = 0;
};

/// Shadows of the device's memory, at the same distances as the memory itself. Null where the kind is off.
struct device_shadow {
    uint64_t begin = 0, end = 0;
    uint8_t * undefined = nullptr;   ///< a byte a byte: 0xff where nothing was written
    access_cell * cells = nullptr;   ///< one a dword
    uint32_t * stored = nullptr;     ///< with them: what the cell's writer stored
};
extern device_shadow shadow_of_device;

/// Outstanding memory accesses of a wave, in the order of issue (wait.cpp).
struct wait_queue {
    uint32_t issued = 0, done = 0;  ///< numbers of the last access issued, and of the last known to be complete
};
struct pending {
    uint32_t number = 0;  ///< in its queue; 0: none
    uint32_t pc = 0;
    uint8_t queue = 0;    ///< see wait.cpp
};
struct wait_state {
    wait_queue vm, lds, scalar;
    uint32_t lds_stores = 0;  ///< number, in the LDS queue, of the last store
    uint32_t lds_store_pc = 0;
    pending rows[watched_rows];
    pending slots[slot_count];
};

struct thread_state;

struct wave_state {
    thread_state * thread = nullptr;
    uint8_t * rows = nullptr;     ///< undefined bits of the VGPRs, laid out as wave::v
    uint8_t * scratch = nullptr;  ///< undefined bits of scratch, laid out as wave::scratch
    alignas(64) uint32_t slots[slot_count];
    uint8_t dirty[watched_rows];  ///< whether a row has undefined bits
    origin row_origin[watched_rows];
    origin slot_origin[slot_count];
    wait_state wait;
};

struct launch_state;

/// A thread's part of a launch.
struct thread_state {
    launch_state * launch = nullptr;
    uint32_t on = 0;
    uint64_t group = 0;
    counter * count = nullptr;
    model::tracer * trace = nullptr;
    uint8_t * lds_undefined = nullptr;
    access_cell * lds_cells = nullptr;
    uint32_t lds_epoch = 0;  ///< grows with every barrier and workgroup
    uint32_t waves = 0;
    wave_state * wave = nullptr;
    struct worker_shadows * shadows = nullptr;
    bool owns_shadows = false;
    class grid_order * order = nullptr;  ///< of a cooperative launch, with instrument_race
};

// state.cpp
launch_state * begin_watching(const launch_context & context);
void end_watching(launch_state * state, const dispatch & launch, bool finished);
/// `apart`: its workgroups run beside others of the same thread.
thread_state * watch_thread(launch_state & launch, const launch_context & context, wave * waves, bool apart);
void unwatch_thread(thread_state * state);
void watch_workgroup(thread_state & state, uint64_t group, const wave & any);
void watch_wave(wave & w);  ///< its registers at entry are set
void watch_barrier(thread_state & state);
uint32_t launch_epoch(const launch_state & state);
const launch_context & context_of(const launch_state & state);

/// What a kind reports about an instruction of a wave: `text` follows the kind's name.
void report_at(instrument kind, const wave & w, const probe & p, const char * what, uint32_t lanes, const char * detail);

// Device memory comes, goes and is written by the host (memory.cpp calls these).
void shadow_reserve(uint64_t begin, uint64_t end);
void shadow_fresh(uint64_t begin, uint64_t bytes);    ///< allocated: undefined
void shadow_gone(uint64_t begin, uint64_t bytes);
void shadow_written(uint64_t begin, uint64_t bytes);  ///< by a copy from the host or a memset
void shadow_copied(uint64_t to, uint64_t from, uint64_t bytes);

// One file a kind.
void check_memory(wave & w, const probe & p, const memory_access & a);                     // memory.cpp
void check_race(wave & w, const probe & p, const memory_access & a);                       // race.cpp
void follow_order(wave & w, const probe & p);                                              // race_grid.cpp, where thread_state::order is set
void check_wait(wave & w, const probe & p);                                                // wait.cpp
void report_undefined(const wave & w, const probe & p, const char * where, uint32_t lanes, const origin & from);  // undefined.cpp

}  // namespace strata::emulator
