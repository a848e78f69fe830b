// race: two parties touch the same byte, at least one writing, and nothing orders them: waves of a workgroup in LDS between two
// barriers; workgroups of a launch in device memory, unless both accesses are atomic (loads and stores with GLC count as such where
// the instruction can show it). Two stores of the same value do no harm, and kernels do that on purpose where threads are left over:
// they are not told. A cell remembers, for each dword, the last writer and the last reader of its bytes, and which of them others have read
// too; bytes that another reader alone has read are forgotten, so that neighbours who share a dword are not taken for each other.
#include "race_grid.h"
#include "report.h"
#include "state.h"

#include "../program.h"
#include "../workgroup.h"

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

namespace strata::emulator {

namespace {

// access_cell::state: epoch 13 | bytes with several readers 4 | reader 19 | bytes that it has read, and those 4 | writer 19 | its bytes 4 |
// writer is atomic 1. A workgroup's number is cut to 19 bits.
constexpr unsigned party_bits = 19, epoch_bits = 13;
constexpr unsigned epoch_at = 51, several_at = 47, reader_at = 28, read_at = 24, writer_at = 5, written_at = 1;
constexpr uint64_t party_mask = (1u << party_bits) - 1, all_bytes = 15;

struct cell_view {
    uint32_t epoch, several, reader, reader_bytes, writer, writer_bytes;
    bool atomic;

    explicit cell_view(uint64_t s)
        : epoch(uint32_t(s >> epoch_at)), several(uint32_t(s >> several_at & all_bytes)), reader(uint32_t(s >> reader_at & party_mask)),
          reader_bytes(uint32_t(s >> read_at & all_bytes)), writer(uint32_t(s >> writer_at & party_mask)),
          writer_bytes(uint32_t(s >> written_at & all_bytes)), atomic(s & 1) {}
    uint64_t packed() const {
        return uint64_t(epoch) << epoch_at | uint64_t(several) << several_at | uint64_t(reader) << reader_at | uint64_t(reader_bytes) << read_at |
               uint64_t(writer) << writer_at | uint64_t(writer_bytes) << written_at | uint64_t(atomic);
    }
};

struct party {
    uint32_t me;
    uint32_t epoch;
    bool write, atomic;
    uint32_t pc;
    bool same_value = false;  ///< it writes what is there already, or what the cell's writer writes
};

struct conflict {
    uint32_t other = 0, other_pc = 0;
    bool other_writes = false;
    uint32_t lanes = 0;
    uint64_t address = 0;
};

/// Notes an access to the bytes of a dword. True if it conflicts with one that the cell remembers. `shared`: other threads use the cell too.
template <bool shared>
bool touch(access_cell & cell, const party & p, uint32_t bytes, conflict & c) {
    std::atomic_ref<uint64_t> state(cell.state);
    uint64_t old = shared ? state.load(std::memory_order_relaxed) : cell.state;
    for (;;) {
        cell_view v(old);
        if (v.epoch != p.epoch) {
            v = cell_view(0);
            v.epoch = p.epoch;
        }
        const bool beside_writer = v.writer_bytes & bytes && v.writer != p.me && !(p.atomic && v.atomic) && !p.same_value;
        const bool beside_reader = p.write && bytes & (v.reader == p.me ? v.several : v.reader_bytes);
        if (beside_writer || beside_reader) {
            c.other = beside_writer ? v.writer : v.reader;
            c.other_pc = beside_writer ? cell.writer_pc : cell.reader_pc;
            c.other_writes = beside_writer;
        }
        if (p.write) {
            v.writer_bytes = v.writer == p.me && v.writer_bytes ? v.writer_bytes | bytes : bytes;
            v.atomic = p.atomic && (v.writer != p.me || v.atomic || v.writer_bytes == bytes);
            v.writer = p.me;
        } else if (!p.atomic) {
            if (v.reader != p.me) {
                v.several |= v.reader_bytes & bytes;
                v.reader_bytes = v.several;
                v.reader = p.me;
            }
            v.reader_bytes |= bytes;
        }
        const uint64_t now = v.packed();
        if constexpr (!shared) {
            cell.state = now;
        } else if (now != old && !state.compare_exchange_weak(old, now, std::memory_order_relaxed)) {
            continue;
        }
        if (p.write) cell.writer_pc = p.pc;
        else if (!p.atomic) cell.reader_pc = p.pc;
        return beside_writer || beside_reader;
    }
}

/// A load of whole dwords, which most accesses are: what touch() does, without taking states apart. The rest is left to it.
template <bool shared>
bool read_dword(access_cell & cell, const party & p) {
    constexpr uint64_t epoch_field = ~uint64_t(0) << epoch_at, several_field = all_bytes << several_at, reader_field = party_mask << reader_at;
    constexpr uint64_t read_field = all_bytes << read_at, written_field = all_bytes << written_at;
    const uint64_t epoch = uint64_t(p.epoch) << epoch_at, mine = epoch | uint64_t(p.me) << reader_at | read_field;
    const uint64_t state = std::atomic_ref<uint64_t>(cell.state).load(std::memory_order_relaxed);
    if ((state & (epoch_field | reader_field | read_field | written_field)) == mine ||
        (state & (epoch_field | several_field | written_field)) == (epoch | several_field)) {
        return true;   // it is known that this party reads it, or that several do
    }
    uint64_t now;
    if ((state & epoch_field) != epoch) {
        now = mine;
    } else if ((state & (read_field | written_field)) == read_field) {
        now = mine | several_field;
    } else {
        return false;
    }
    if constexpr (shared) {
        uint64_t old = state;
        if (!std::atomic_ref<uint64_t>(cell.state).compare_exchange_strong(old, now, std::memory_order_relaxed)) {
            return false;
        }
    } else {
        cell.state = now;
    }
    cell.reader_pc = p.pc;
    return true;
}

/// Holds what plain stores do to a cell and to the value that it remembers together. A lock serves many cells.
class store_lock {
public:
    explicit store_lock(uint64_t address) : flag_(flags_[address / 4 % flags_.size()]) {
        for (unsigned tries = 0; flag_.test_and_set(std::memory_order_acquire);) {
            if (++tries % 64 == 0) std::this_thread::yield();
        }
    }
    ~store_lock() { flag_.clear(std::memory_order_release); }
    store_lock(const store_lock &) = delete;
    store_lock & operator=(const store_lock &) = delete;

private:
    static inline std::array<std::atomic_flag, 1024> flags_;
    std::atomic_flag & flag_;
};

/// A lane's plain store to device memory. Its value is compared with the one that the other party stored, not with the memory: a store is
/// noted before it is executed, so the other one, on another thread, may not have come to it. `stored` is the value of the dword at `address`.
void touch_stored(access_cell * cells, uint32_t * stored, uint64_t address, uint32_t bytes, const uint8_t * value, party p, unsigned lane, conflict & c) {
    uint32_t at = uint32_t(address & 3);
    for (uint32_t done = 0; done < bytes; cells++, stored++, at = 0) {
        const uint32_t here = std::min(bytes - done, 4 - at);
        const store_lock hold(address - at + 4 * uint64_t(done));
        auto * const there = reinterpret_cast<uint8_t *>(stored) + at;
        const cell_view v(std::atomic_ref<uint64_t>(cells->state).load(std::memory_order_relaxed));
        p.same_value = !v.atomic;
        for (uint32_t b = 0; b < here; b++) p.same_value &= !(v.writer_bytes >> (at + b) & 1) || there[b] == value[done + b];
        if (touch<true>(*cells, p, ((1u << here) - 1) << at, c)) {
            if (!c.lanes) c.address = address + done;
            c.lanes |= 1u << lane;
        }
        std::memcpy(there, value + done, here);
        done += here;
    }
}

/// All bytes of one lane's access. `cells` is the cell of the dword at `address`.
template <bool shared>
void touch_bytes(access_cell * cells, uint64_t address, uint32_t bytes, const party & p, unsigned lane, conflict & c) {
    uint32_t left = bytes, at = uint32_t(address & 3);
    uint64_t done = 0;
    if (!p.write && !p.atomic && at == 0) {
        for (; left >= 4 && read_dword<shared>(*cells, p); left -= 4, done += 4, cells++) {}
    }
    for (; left; cells++) {
        const uint32_t here = left < 4 - at ? left : 4 - at;
        if (touch<shared>(*cells, p, ((1u << here) - 1) << at, c)) {
            if (!c.lanes) c.address = address + done;
            c.lanes |= 1u << lane;
        }
        left -= here;
        done += here;
        at = 0;
    }
}

void complain(wave & w, const probe & p, const party & me, const conflict & c, bool in_lds, const char * detail = "") {
    const std::string key = std::to_string(reinterpret_cast<uintptr_t>(w.code)) + ":" + std::to_string(p.pc) + ":" + std::to_string(c.other_pc);
    if (reported(instrument_race, key)) return;
    const launch_context & context = context_of(*w.watched->thread->launch);
    const kernel_image & kernel = *context.launch.kernel;
    std::string other;
    if (in_lds) {
        other = "wave " + std::to_string(c.other) + " of the same workgroup";
    } else {
        const dim3 & grid = context.launch.grid;
        const uint64_t x = c.other % grid.x, y = c.other / grid.x % grid.y, z = c.other / (uint64_t(grid.x) * grid.y);
        other = "workgroup (" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
    }
    const std::string place = in_lds ? "LDS address " + hex(c.address) : hex(c.address) + ", " + w.memory->describe(c.address, 1);
    const auto verb = [](bool write, bool atomic) { return atomic ? ", changing it by" : write ? ", writing it in" : ", reading it in"; };
    report(instrument_race, key,
           std::string(in_lds ? "two waves of a workgroup touch the same LDS bytes and no barrier is between them"
                              : "two workgroups of a launch touch the same bytes of device memory, not both by atomics") +
               detail + ": " + place + "\n  " + describe_lanes(c.lanes) + verb(me.write, me.atomic) + " " +
               describe_instruction(*w.code, kernel, p.pc) + describe_wave(w) + "\n  " + other + verb(c.other_writes, false) +
               " " + describe_instruction(*w.code, kernel, c.other_pc));
}

}  // namespace

void report_grid_race(wave & w, const probe & p, const grid_conflict & c) {
    complain(w, p, {0, 0, p.memory.store, p.memory.atomic, p.pc}, {c.other, c.other_pc, c.other_writes, c.lanes, c.address}, false, c.detail);
}

/// The bytes that a lane's store writes.
static std::array<uint8_t, 16> value_of(const wave & w, const probe & p, const memory_access & a, unsigned n, unsigned lane) {
    const auto * const value = w.v + p.part[0].code.src[1 + n] + lane * 4;
    std::array<uint8_t, 16> bytes = {};
    if (a.bytes < 4) {
        std::memcpy(bytes.data(), value + (p.memory.high ? 2 : 0), a.bytes);
    } else {
        for (uint32_t d = 0; d < a.bytes / 4; d++) std::memcpy(bytes.data() + 4 * d, value + int(d) * row_bytes, 4);
    }
    return bytes;
}

bool keeps_value(const wave & w, const probe & p, const memory_access & a, unsigned n, unsigned lane, const void * there) {
    return std::memcmp(value_of(w, p, a, n, lane).data(), there, a.bytes) == 0;
}

namespace {

template <bool in_lds>
void check(wave & w, const probe & p, const memory_access & a, uint32_t lanes, party me) {
    const device_shadow d = shadow_of_device;
    access_cell * const cells = in_lds ? w.watched->thread->lds_cells : d.cells;
    const uint64_t begin = in_lds ? 0 : d.begin, end = in_lds ? w.lds_size : d.end;
    const unsigned addresses = a.addresses, bytes = a.bytes;
    conflict c;
    const bool plain_store = me.write && !me.atomic && p.memory.store;
    if constexpr (!in_lds) {
        // Cells are four times what a kernel reads, so most are in no cache; an exchange waits for its cell and lets nothing overtake it.
        for (uint32_t rest = lanes; rest; rest &= rest - 1) {
            const uint64_t address = a.at[0][__builtin_ctz(rest)];
            if (address >= begin && address < end) __builtin_prefetch(cells + (address - begin) / 4, 1);
        }
    }
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        const unsigned lane = unsigned(__builtin_ctz(rest));
        for (unsigned n = 0; n < addresses; n++) {
            const uint64_t address = in_lds ? uint32_t(a.at[n][lane]) : a.at[n][lane];
            if (address < begin || address + bytes > end) continue;
            // Both halves of a wave load the same operand of a matrix instruction: what one lane finds, the other would find too.
            if (!me.write && lane >= 16 && lanes >> (lane - 16) & 1 && a.at[n][lane] == a.at[n][lane - 16]) {
                c.lanes |= (c.lanes >> (lane - 16) & 1) << lane;
                continue;
            }
            if (!in_lds && plain_store) {
                const uint64_t dword = (address - begin) / 4;
                touch_stored(cells + dword, d.stored + dword, address, bytes, value_of(w, p, a, n, lane).data(), me, lane, c);
                continue;
            }
            me.same_value = plain_store && keeps_value(w, p, a, n, lane, w.lds + address);
            touch_bytes<!in_lds>(cells + (address - begin) / 4, address, bytes, me, lane, c);
        }
    }
    if (c.lanes) complain(w, p, me, c, in_lds);
}

}  // namespace

void check_race(wave & w, const probe & p, const memory_access & a) {
    const memory_use & u = p.memory;
    const thread_state & t = *w.watched->thread;
    constexpr uint32_t epoch_mask = (1u << epoch_bits) - 1;
    const bool vector_device = u.where == segment::global || u.where == segment::flat || u.where == segment::buffer;
    uint32_t in_lds = u.where == segment::lds ? a.lanes : 0;
    if (u.where == segment::flat) {
        for (uint32_t rest = a.lanes; rest; rest &= rest - 1) {
            const unsigned lane = unsigned(__builtin_ctz(rest));
            if (a.at[0][lane] >> 32 == lds_aperture) in_lds |= 1u << lane;
        }
    }
    if (in_lds && t.waves > 1) check<true>(w, p, a, in_lds, {w.index, t.lds_epoch & epoch_mask, u.store, u.atomic, p.pc});
    if (vector_device || u.where == segment::scalar || u.where == segment::scalar_buffer) {
        if (t.order) {
            t.order->check(w, p, a, a.lanes & ~in_lds);
            return;
        }
        const launch_context & context = context_of(*t.launch);
        const dim3 & grid = context.launch.grid;
        if (uint64_t(grid.x) * grid.y * grid.z < 2) return;
        check<false>(w, p, a, a.lanes & ~in_lds,
                     {uint32_t(t.group & party_mask), launch_epoch(*t.launch) & epoch_mask, u.store, u.atomic || u.coherent, p.pc});
    }
}

}  // namespace strata::emulator
