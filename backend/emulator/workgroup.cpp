// The architected entry state is in the AMDGPU backend's documentation ("Initial Kernel Execution State").
#include "workgroup.h"

#include "instruments/report.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>

namespace strata::emulator {

namespace {

constexpr uint32_t poison = 0xffc0dead;  // a NaN, a large number, and no address
constexpr uint32_t rows_a_wave = 272;    // 256 VGPRs and room for wide accesses at the last ones
constexpr uint64_t longest_slice = 1 << 20;  // instructions before a wave gives way at a backward branch

void fill(void * memory, uint32_t pattern, size_t bytes) {
    uint32_t * p = static_cast<uint32_t *>(memory);
    std::fill(p, p + bytes / 4, pattern);
}

uint64_t limit_from_environment() {
    static const uint64_t limit = [] {
        const char * given = std::getenv("STRATA_EMULATOR_INSTRUCTION_LIMIT");
        const uint64_t value = given ? std::strtoull(given, nullptr, 0) : 0;
        return value ? value : uint64_t(1) << 36;
    }();
    return limit;
}

/// Of a worker thread, kept between launches.
group_memory & this_worker() {
    static thread_local group_memory memory;
    return memory;
}

}  // namespace

page_memory::~page_memory() {
    if (pointer_) munmap(pointer_, size_);
}

uint8_t * page_memory::reserve(size_t bytes) {
    if (bytes > size_) {
        if (pointer_) munmap(pointer_, size_);
        size_ = 0;
        pointer_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pointer_ == MAP_FAILED) {
            pointer_ = nullptr;
            throw std::bad_alloc();
        }
        size_ = bytes;
    }
    return static_cast<uint8_t *>(pointer_);
}

launch_context::launch_context(const dispatch & d, const allocation_map & m, program & p) : launch(d), memory(m), code(p) {
    static std::atomic<uint64_t> launches{0};
    id = launches++;
    lds_size = d.kernel->static_lds + d.dynamic_lds;
    items = d.block.x * d.block.y * d.block.z;
    waves = (items + 31) / 32;
    instruction_limit = limit_from_environment();
    // The kernarg segment begins a line of memory, so that the same launch touches as many lines every time; loads may be widened to 16
    // bytes.
    const size_t bytes = (d.kernarg.size() + 15) / 16 * 16;
    kernarg_store.assign(bytes / 8 + 16, 0xffc0deadffc0deadull);
    kernarg = (reinterpret_cast<uint64_t>(kernarg_store.data()) + 127) / 128 * 128;
    kernarg_end = kernarg + bytes;
    if (!d.kernarg.empty()) std::memcpy(reinterpret_cast<void *>(kernarg), d.kernarg.data(), d.kernarg.size());
    const uint32_t block[3] = {d.block.x, d.block.y, d.block.z}, grid[3] = {d.grid.x, d.grid.y, d.grid.z};
    for (int n = 0; n < 3; n++) {
        packet.workgroup_size[n] = uint16_t(block[n]);
        packet.grid_size[n] = grid[n] * block[n];
    }
    packet.private_segment_size = d.kernel->scratch;
    packet.group_segment_size = lds_size;
    packet.kernarg_address = kernarg;
}

workgroup_runner::workgroup_runner(launch_context & context, group_memory * own) : context_(context), waves_(context.waves) {
    group_memory & memory = own ? *own : this_worker();
    uint8_t * registers = memory.registers.reserve(size_t(context.waves) * rows_a_wave * row_bytes);
    uint8_t * lds = memory.lds.reserve(65536 + 256);
    const uint32_t scratch_bytes = (context.launch.kernel->scratch + 15) / 16 * 16;
    uint8_t * scratch = scratch_bytes ? memory.scratch.reserve(size_t(context.waves) * 32 * scratch_bytes) : nullptr;
    for (uint32_t n = 0; n < context.waves; n++) {
        wave & w = waves_[n];
        w.v = registers + size_t(n) * rows_a_wave * row_bytes;
        w.lds = lds;
        w.lds_size = context.lds_size;
        w.scratch = scratch ? scratch + size_t(n) * 32 * scratch_bytes : nullptr;
        w.scratch_size = context.launch.kernel->scratch;
        w.memory = &context.memory;
        w.extra[0] = {context.kernarg, context.kernarg_end, false};
        const uint64_t packet = reinterpret_cast<uint64_t>(&context.packet);
        w.extra[1] = {packet, packet + sizeof context.packet, false};
        w.ranges = ranges_;
        w.code = &context.code;
        w.text_begin = context.code.text_begin;
        w.constants = context.code.constants_end;
        w.index = n;
        const uint32_t rest = context.items - n * 32;
        w.lanes = rest >= 32 ? 0xffffffffu : (1u << rest) - 1;
    }
    if (context.watched) watched_ = watch_thread(*context.watched, context, waves_.data(), own != nullptr);
}

workgroup_runner::~workgroup_runner() {
    if (watched_) unwatch_thread(watched_);
}

void workgroup_runner::enter(wave & w, uint32_t index, const uint32_t (&id)[3]) {
    const kernel_image & k = *context_.launch.kernel;
    fill(w.s, poison, sizeof w.s);
    fill(w.v, poison, size_t(std::min(context_.code.vgprs, 256u)) * row_bytes);
    if (w.scratch) fill(w.scratch, poison, size_t(w.scratch_size + 15) / 16 * 16 * 32);
    w.s[slot_zero] = w.s[slot_zero + 1] = 0;
    w.s[slot_exec] = w.lanes;
    w.s[slot_exec + 1] = 0;
    w.s[slot_scc] = 0;
    w.mode = 0xf0 | 1 << 8 | 1 << 9;

    uint32_t n = 0;
    const auto pair = [&](int bit, uint64_t value) {
        if (!(k.properties >> bit & 1)) return;
        std::memcpy(&w.s[n], &value, 8);
        n += 2;
    };
    if (k.properties & 1) n += 4;  // private segment buffer: not on gfx11
    pair(1, reinterpret_cast<uint64_t>(&context_.packet));
    pair(2, 0);  // queue
    pair(3, context_.kernarg);
    pair(4, context_.id);
    pair(5, 0);  // flat scratch is architected
    if (k.properties >> 6 & 1) w.s[n++] = k.scratch;
    n = k.user_sgprs;
    for (int d = 0; d < 3; d++) {
        w.id[d] = id[d];
        if (k.rsrc2 >> (7 + d) & 1) w.s[n++] = id[d];
    }
    if (k.rsrc2 >> 10 & 1) w.s[n++] = index;  // workgroup info

    const dim3 & block = context_.launch.block;
    uint32_t v0[32];
    for (uint32_t lane = 0; lane < 32; lane++) {
        const uint32_t item = index * 32 + lane;
        const uint32_t x = item % block.x, y = item / block.x % block.y, z = item / (block.x * block.y);
        v0[lane] = w.lanes >> lane & 1 ? x | y << 10 | z << 20 : poison;
    }
    std::memcpy(w.v, v0, sizeof v0);
    w.pc = context_.code.entry;
    w.count = 0;
    w.state = stop::running;
    w.note = {};
    if (watched_) watch_wave(w);
}

void workgroup_runner::begin(uint64_t group) {
    const dim3 & grid = context_.launch.grid;
    const uint32_t id[3] = {uint32_t(group % grid.x), uint32_t(group / grid.x % grid.y), uint32_t(group / (uint64_t(grid.x) * grid.y))};
    if (context_.lds_size) fill(waves_[0].lds, 0xffffffffu, (context_.lds_size + 3) / 4 * 4);
    if (watched_) watch_workgroup(*watched_, group, waves_[0]);
    for (uint32_t n = 0; n < context_.waves; n++) enter(waves_[n], n, id);
    alive_ = context_.waves;
}

fault workgroup_runner::turn(uint64_t slice) {
    uint32_t waiting = 0;
    gave_way_ = false;
    for (wave & w : waves_) {
        if (w.state == stop::end) continue;
        if (w.state == stop::barrier) {
            waiting++;
            continue;
        }
        w.state = stop::running;
        w.slice_end = w.count + slice;
        w.pc->fn(&w, w.pc, w.count);
        if (w.state == stop::fault) return describe(w);
        if (w.state == stop::end) alive_--;
        if (w.state == stop::barrier) waiting++;
        if (w.state == stop::yield) {
            gave_way_ = true;
            if (w.count > context_.instruction_limit) {
                w.note.why = fault_note::reason::limit;
                return describe(w);
            }
        }
    }
    if (waiting == alive_) {  // waves that have ended do not count
        for (wave & w : waves_) {
            if (w.state == stop::barrier) w.state = stop::running;
        }
        if (watched_) watch_barrier(*watched_);
    }
    return {};
}

void workgroup_runner::finish() {
    for (const wave & w : waves_) instructions += w.count;
    waves += context_.waves;
}

fault workgroup_runner::run(uint64_t group, const std::atomic<uint64_t> & first_bad) {
    begin(group);
    while (!over()) {
        if (fault f = turn(longest_slice)) return f;
        if (gave_way_ && (group > first_bad.load(std::memory_order_relaxed) || stopping.load(std::memory_order_relaxed))) return {};
    }
    finish();
    return {};
}

fault workgroup_runner::describe(const wave & w) const {
    const fault_note & note = w.note;
    const program & code = context_.code;
    fault f;
    std::string what;
    const std::string access = std::string(note.write ? "store" : "load") + " of " + std::to_string(note.size) + " bytes";
    switch (note.why) {
    case fault_note::reason::memory: {
        f.what = fault::kind::memory;
        const allocation * held = context_.memory.find(note.address, note.size);
        what = access + " at " + hex(note.address) + " by lane " + std::to_string(note.lane);
        if (held && note.write && !held->writable) what += ": the memory is read-only (" + std::string(held->kind) + ")";
        else what += ": " + context_.memory.describe(note.address, note.size);
        break;
    }
    case fault_note::reason::lds:
        f.what = fault::kind::memory;
        what = access + " at LDS address " + hex(note.address) + " by lane " + std::to_string(note.lane) + ": the workgroup has " +
               std::to_string(w.lds_size) + " bytes of LDS";
        break;
    case fault_note::reason::scratch:
        f.what = fault::kind::memory;
        what = access + " at scratch address " + hex(note.address) + " by lane " + std::to_string(note.lane) + ": a lane has " +
               std::to_string(w.scratch_size) + " bytes of scratch";
        break;
    case fault_note::reason::misaligned:
        f.what = fault::kind::memory;
        what = "misaligned atomic of " + std::to_string(note.size) + " bytes at " + hex(note.address) + " by lane " +
               std::to_string(note.lane);
        break;
    case fault_note::reason::bad_pc:
        f.what = fault::kind::memory;
        what = "jump to " + hex(note.address) + ", which is not code of the kernel's module";
        break;
    case fault_note::reason::limit:
        f.what = fault::kind::hang;
        what = "a wave has executed " + std::to_string(w.count) + " instructions, more than the limit of " +
               std::to_string(context_.instruction_limit) + " (STRATA_EMULATOR_INSTRUCTION_LIMIT): the kernel hangs";
        break;
    case fault_note::reason::unsupported:
        f.what = fault::kind::unknown_instruction;
        what = note.text;
        break;
    default:
        f.what = fault::kind::unknown_instruction;
        what = "unknown instruction (or a form of it that is not emulated)";
    }
    f.message = "kernel " + context_.launch.kernel->name + ": " + what + "\n  in `" + code.text(w.pc->pc) + "` at offset " +
                hex(w.text_begin + w.pc->pc - context_.launch.kernel->entry) + " of the kernel, workgroup (" +
                std::to_string(w.id[0]) + ", " + std::to_string(w.id[1]) + ", " + std::to_string(w.id[2]) + "), wave " +
                std::to_string(w.index);
    return f;
}

bool find_range(wave * w, const inst * i, uint64_t begin, uint64_t size, bool write) {
    memory_range & remembered = w->ranges[(i->pc >> 2) % memory_range_count];
    for (const memory_range & r : w->extra) {
        if (begin >= r.begin && begin + size <= r.end && begin + size >= begin && !write) {
            remembered = r;
            return true;
        }
    }
    const allocation * a = w->memory->find(begin, size);
    if (!a || (write && !a->writable)) return false;
    remembered = {a->begin, a->end, a->writable};
    return true;
}

}  // namespace strata::emulator
