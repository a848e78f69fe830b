// The life of the instruments' state, and the shadows of device memory.
#include "state.h"

#include "../memory.h"
#include "../program.h"
#include "../workgroup.h"
#include "counts.h"
#include "lines.h"
#include "model/chip.h"
#include "race_grid.h"
#include "report.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <sys/mman.h>

namespace strata::emulator {

device_shadow shadow_of_device;

struct launch_state {
    const launch_context * context = nullptr;
    uint32_t epoch = 0;
    std::mutex lock;
    launch_counter counts;
    std::optional<model::tracer> trace;  // with instrument_time
    model::change_counts changes;        // of a cooperative launch
    std::unique_ptr<grid_order> order;   // of a cooperative launch, with instrument_race

    std::vector<model::modelled> time(const dispatch & launch);
};

/// What a worker keeps between launches.
struct worker_shadows {
    page_memory registers, scratch, lds, cells;
    uint32_t epoch = 0;
};

namespace {

constexpr size_t lds_bytes = 65536;

worker_shadows & this_worker_shadows() {
    static thread_local worker_shadows shadows;
    return shadows;
}

void * reserve(uint64_t bytes) {
    void * p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

uint64_t cell_bytes(uint64_t bytes) { return bytes / 4 * sizeof(access_cell); }

}  // namespace

void shadow_reserve(uint64_t begin, uint64_t end) {
    device_shadow & d = shadow_of_device;
    d.begin = begin;
    d.end = end;
    if (instruments().has(instrument_init)) d.undefined = static_cast<uint8_t *>(reserve(end - begin));
    if (instruments().has(instrument_race)) {
        d.cells = static_cast<access_cell *>(reserve(cell_bytes(end - begin)));
        d.stored = static_cast<uint32_t *>(reserve(end - begin));
    }
    const bool short_of = (instruments().has(instrument_init) && !d.undefined) || (instruments().has(instrument_race) && !(d.cells && d.stored));
    if (short_of) std::fprintf(stderr, "strata-emulator: no address space for the sanitizer's shadow of device memory\n");
}

void shadow_fresh(uint64_t begin, uint64_t bytes) {
    const device_shadow & d = shadow_of_device;
    if (d.undefined) std::memset(d.undefined + (begin - d.begin), 0xff, bytes);
}

void shadow_gone(uint64_t begin, uint64_t bytes) {
    const device_shadow & d = shadow_of_device;
    constexpr uint64_t page = 4096;
    const uint64_t whole = (bytes + page - 1) / page * page;
    if (d.undefined) madvise(d.undefined + (begin - d.begin), whole, MADV_DONTNEED);
    if (d.cells) madvise(d.cells + (begin - d.begin) / 4, cell_bytes(whole), MADV_DONTNEED);
    if (d.stored) madvise(d.stored + (begin - d.begin) / 4, whole, MADV_DONTNEED);
}

void shadow_written(uint64_t begin, uint64_t bytes) {
    const device_shadow & d = shadow_of_device;
    if (d.undefined && begin >= d.begin && begin + bytes <= d.end) std::memset(d.undefined + (begin - d.begin), 0, bytes);
}

void shadow_copied(uint64_t to, uint64_t from, uint64_t bytes) {
    const device_shadow & d = shadow_of_device;
    if (!d.undefined || to < d.begin || to + bytes > d.end) return;
    if (from >= d.begin && from + bytes <= d.end) std::memmove(d.undefined + (to - d.begin), d.undefined + (from - d.begin), bytes);
    else shadow_written(to, bytes);
}

static uint32_t resident_groups(const dispatch & launch) {
    return occupancy_of(*launch.kernel, launch.block.x * launch.block.y * launch.block.z, launch.dynamic_lds).workgroups;
}

static std::atomic<bool> cold_caches{false};

std::vector<model::modelled> launch_state::time(const dispatch & launch) {
    std::vector<model::modelled> times;
    if (!trace) return times;
    // Launches run one after the other: see run() in machine.h.
    static std::vector<model::chip> & chips = *new std::vector<model::chip>(model::chips(instruments().model));
    const model::workgroup_traces groups = trace->finish();
    if (cold_caches.exchange(false)) {
        for (model::chip & chip : chips) chip.cool();
    }
    const model::shape shape{resident_groups(launch), counts.instructions() - changes.repeated, launch.cooperative ? &changes : nullptr};
    for (model::chip & chip : chips) times.push_back(chip.run(groups, shape));
    return times;
}

launch_state * begin_watching(const launch_context & context) {
    static std::atomic<uint32_t> launches{0};
    auto * state = new launch_state;
    state->context = &context;
    state->epoch = ++launches;
    if (instruments().has(instrument_time)) {
        const dim3 & grid = context.launch.grid;
        state->trace.emplace(context.launch.cooperative
                                 ? model::sample::all(uint64_t(grid.x) * grid.y * grid.z, context.waves)
                                 : model::sample(context.waves, model::parameters().processors * resident_groups(context.launch)),
                             model::line_names{device_memory::instance().arena() / line_bytes, context.kernarg / line_bytes,
                                               (context.kernarg_end + line_bytes - 1) / line_bytes,
                                               reinterpret_cast<uint64_t>(&context.packet) / line_bytes},
                             context.launch.cooperative ? &state->changes : nullptr);
    }
    if (context.launch.cooperative && instruments().has(instrument_race)) state->order = std::make_unique<grid_order>(context);
    // Epochs repeat after 8192 launches; cells must not be as old as that.
    device_shadow & d = shadow_of_device;
    if (d.cells && state->epoch % 8192 == 0) {
        madvise(d.cells, cell_bytes(d.end - d.begin), MADV_DONTNEED);
        state->epoch = ++launches;  // 0 is what fresh cells say
    }
    return state;
}

void end_watching(launch_state * state, const dispatch & launch, bool finished) {
    if (finished && instruments().has(instrument_count)) state->counts.record(launch, state->time(launch));
    delete state;
}

uint32_t launch_epoch(const launch_state & state) { return state.epoch; }
const launch_context & context_of(const launch_state & state) { return *state.context; }

thread_state * watch_thread(launch_state & launch, const launch_context & context, wave * waves, bool apart) {
    auto * t = new thread_state;
    t->launch = &launch;
    t->on = instruments().on & instruction_instruments;
    t->waves = context.waves;
    if (t->on & instrument_count) t->count = new counter;
    if (t->on & instrument_time) t->trace = new model::tracer(&*launch.trace);
    t->wave = new wave_state[context.waves];
    t->shadows = apart ? new worker_shadows : &this_worker_shadows();
    t->owns_shadows = apart;
    t->order = launch.order.get();
    worker_shadows & memory = *t->shadows;
    const size_t scratch_bytes = size_t(context.launch.kernel->scratch + 15) / 16 * 16 * 32;
    uint8_t * rows = nullptr;
    uint8_t * scratch = nullptr;
    if (t->on & instrument_init) {
        rows = memory.registers.reserve(size_t(context.waves) * watched_rows * row_bytes);
        if (scratch_bytes) scratch = memory.scratch.reserve(context.waves * scratch_bytes);
        t->lds_undefined = memory.lds.reserve(lds_bytes + 256);
    }
    if (t->on & instrument_race) {
        t->lds_cells = reinterpret_cast<access_cell *>(memory.cells.reserve(cell_bytes(lds_bytes + 256)));
    }
    for (uint32_t n = 0; n < context.waves; n++) {
        wave_state & s = t->wave[n];
        s.thread = t;
        s.rows = rows ? rows + size_t(n) * watched_rows * row_bytes : nullptr;
        s.scratch = scratch ? scratch + n * scratch_bytes : nullptr;
        waves[n].watched = &s;
    }
    return t;
}

void unwatch_thread(thread_state * t) {
    if (t->count) {
        std::lock_guard hold(t->launch->lock);
        t->launch->counts.take(*t->count);
    }
    if (t->trace) {
        std::lock_guard hold(t->launch->lock);
        t->launch->trace->take(*t->trace);
    }
    delete t->count;
    delete t->trace;
    if (t->owns_shadows) delete t->shadows;
    delete[] t->wave;
    delete t;
}

void watch_barrier(thread_state & t) {
    worker_shadows & memory = *t.shadows;
    t.lds_epoch = ++memory.epoch;
    if (t.lds_cells && t.lds_epoch % 8192 == 0) {
        std::memset(static_cast<void *>(t.lds_cells), 0, cell_bytes(lds_bytes + 256));
        t.lds_epoch = ++memory.epoch;
    }
}

void watch_workgroup(thread_state & t, uint64_t group, const wave & any) {
    t.group = group;
    if (t.count) {
        if (t.trace) t.trace->begin_workgroup(group, t.waves);
        t.count->begin_workgroup(group);
        t.count->counts.waves += t.waves;
    }
    if (t.lds_undefined && any.lds_size) std::memset(t.lds_undefined, 0xff, (any.lds_size + 3) / 4 * 4);
    watch_barrier(t);
}

void watch_wave(wave & w) {
    wave_state & s = *w.watched;
    const launch_context & context = context_of(*s.thread->launch);
    if (s.thread->on & instrument_wait) s.wait = wait_state();
    if (!(s.thread->on & instrument_init)) return;
    const kernel_image & k = *context.launch.kernel;
    std::memset(s.rows, 0xff, size_t(watched_rows) * row_bytes);
    std::memset(s.dirty, 1, sizeof s.dirty);
    std::memset(s.rows, 0, row_bytes);  // v0: the work-item's numbers
    s.dirty[0] = 0;
    if (s.scratch) std::memset(s.scratch, 0xff, size_t(w.scratch_size + 15) / 16 * 16 * 32);
    std::memset(s.slots, 0xff, sizeof s.slots);
    for (int n = slot_ttmp; n < slot_m0; n++) s.slots[n] = 0;
    s.slots[slot_exec] = s.slots[slot_exec + 1] = s.slots[slot_zero] = s.slots[slot_zero + 1] = 0;
    s.slots[slot_scc + 1] = 0;
    uint32_t given = k.user_sgprs;
    for (int d = 0; d < 3; d++) given += k.rsrc2 >> (7 + d) & 1;
    given += k.rsrc2 >> 10 & 1;
    for (uint32_t n = 0; n < given; n++) s.slots[n] = 0;
    for (uint32_t n = 0; n < watched_rows; n++) s.row_origin[n] = {origin::source::vgpr, 0, n};
    for (uint32_t n = 0; n < slot_count; n++) s.slot_origin[n] = {origin::source::sgpr, 0, n};
}

void report_at(instrument kind, const wave & w, const probe & p, const char * what, uint32_t lanes, const char * detail) {
    const std::string key = std::to_string(reinterpret_cast<uintptr_t>(w.code)) + ":" + std::to_string(p.pc) + ":" + what;
    if (reported(kind, key)) return;
    const launch_context & context = context_of(*w.watched->thread->launch);
    report(kind, key, std::string(what) + (lanes ? ", " + describe_lanes(lanes) : "") + detail + "\n  in " +
                          describe_instruction(*w.code, *context.launch.kernel, p.pc) + describe_wave(w));
}

}  // namespace strata::emulator

/// Empties the caches of the time model before the next launch that is executed, so a program synchronizes first.
extern "C" __attribute__((visibility("default"))) void strata_emulator_model_cold() {
    strata::emulator::cold_caches = true;
}
