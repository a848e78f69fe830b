// Counting of instructions and memory traffic, and the file that holds the result.
#include "counts.h"

#include "../errors.h"
#include "../machine.h"
#include "lines.h"
#include "settings.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <vector>

namespace strata::emulator {

namespace {

void add(traffic & to, const traffic & from) {
    to.load_requests += from.load_requests;
    to.store_requests += from.store_requests;
    to.atomic_requests += from.atomic_requests;
    to.load_bytes += from.load_bytes;
    to.store_bytes += from.store_bytes;
    to.request_lines += from.request_lines;
    to.workgroup_lines += from.workgroup_lines;
}

}  // namespace

/// The lines that were touched, with the workgroup that touched each last. Scalar and vector accesses are kept apart.
struct line_table {
    struct entry {
        uint64_t line = 0;   // number + 1, scalar ones with the highest bit; 0: free
        uint64_t group = 0;  // + 1
        bool written = false;
    };
    static constexpr uint64_t scalar_bit = 1ull << 63;
    std::vector<entry> entries = std::vector<entry>(1024);
    size_t used = 0;

    entry & find(uint64_t key) {
        if (used * 2 >= entries.size()) grow();
        const size_t mask = entries.size() - 1;
        size_t at = (key * 0x9e3779b97f4a7c15ull) >> 20 & mask;
        while (entries[at].line != 0 && entries[at].line != key) at = (at + 1) & mask;
        if (entries[at].line == 0) {
            entries[at].line = key;
            used++;
        }
        return entries[at];
    }

    void grow() {
        std::vector<entry> old(entries.size() * 2);
        old.swap(entries);
        used = 0;
        for (const entry & e : old) {
            if (e.line != 0) find(e.line) = e;
        }
    }
};

void launch_counts::add(const launch_counts & other) {
    waves += other.waves;
    for (unsigned n = 0; n < work_count; n++) instructions[n] += other.instructions[n];
    emulator::add(global, other.global);
    emulator::add(scalar, other.scalar);
    emulator::add(scratch, other.scratch);
    argument_loads += other.argument_loads;
    argument_bytes += other.argument_bytes;
    lds_requests += other.lds_requests;
    lds_load_bytes += other.lds_load_bytes;
    lds_store_bytes += other.lds_store_bytes;
    lds_passes += other.lds_passes;
    lds_conflicts += other.lds_conflicts;
    barriers += other.barriers;
}

counter::counter() : lines_(new line_table) {}
counter::~counter() { delete lines_; }

void counter::lines(traffic & t, const memory_access & a, bool write) {
    uint64_t seen[most_lines];
    const unsigned count = distinct_lines(a, seen);
    const bool is_scalar = &t == &counts.scalar;
    t.request_lines += count;
    for (unsigned n = 0; n < count; n++) {
        line_table::entry & e = lines_->find((seen[n] + 1) | (is_scalar ? line_table::scalar_bit : 0));
        if (e.group != group_ + 1) t.workgroup_lines++;
        e.group = group_ + 1;
        e.written |= write;
    }
}

void counter::access(const wave & w, const probe & p, const memory_access & a) {
    if (a.lanes == 0) return;
    const memory_use & u = p.memory;
    const uint64_t bytes = uint64_t(__builtin_popcount(a.lanes)) * a.bytes * a.addresses;
    const bool flat_lds = u.where == segment::flat && a.low >> 32 == lds_aperture;
    if (u.where == segment::lds || flat_lds) {
        counts.lds_requests++;
        if (u.load) counts.lds_load_bytes += bytes;
        if (u.store) counts.lds_store_bytes += bytes;
        const bank_use use = lds_passes(a);
        counts.lds_passes += use.passes;
        counts.lds_conflicts += use.conflicts;
        return;
    }
    if (u.where == segment::scalar && a.at[0][0] >= w.extra[0].begin && a.at[0][0] < w.extra[0].end) {
        counts.argument_loads++;
        counts.argument_bytes += bytes;
        return;
    }
    const bool is_scalar = u.where == segment::scalar || u.where == segment::scalar_buffer;
    const bool in_scratch = u.where == segment::scratch || (u.where == segment::flat && a.low >> 32 == scratch_aperture);
    traffic & t = is_scalar ? counts.scalar : in_scratch ? counts.scratch : counts.global;
    if (u.atomic) t.atomic_requests++;
    else if (u.store) t.store_requests++;
    else t.load_requests++;
    if (u.load) t.load_bytes += bytes;
    if (u.store) t.store_bytes += bytes;
    if (!in_scratch) lines(t, a, u.store);
}

launch_counter::launch_counter() : lines_(new line_table) {}
launch_counter::~launch_counter() { delete lines_; }

void launch_counter::take(const counter & of_thread) {
    counts_.add(of_thread.counts);
    for (const line_table::entry & e : of_thread.lines_->entries) {
        if (e.line != 0) lines_->find(e.line).written |= e.written;
    }
}

occupancy occupancy_of(const kernel_image & kernel, uint32_t items, uint32_t dynamic_lds) {
    constexpr uint32_t simds = 4, most_waves = 16, registers = 1536, granule = 24, lds_bytes = 128 << 10, lds_granule = 512,
                       most_workgroups = 32;
    const uint32_t waves = std::max(1u, (items + 31) / 32);
    const uint32_t allocated = (std::max(1u, kernel.vgprs) + granule - 1) / granule * granule;
    const uint32_t by_registers = std::min(most_waves, registers / allocated);
    const uint32_t lds = (kernel.static_lds + dynamic_lds + lds_granule - 1) / lds_granule * lds_granule;
    struct {
        uint32_t workgroups;
        const char * name;
    } const limits[] = {{most_waves * simds / waves, "waves"},
                        {by_registers * simds / waves, "vgprs"},
                        {lds ? lds_bytes / lds : ~0u, "lds"},
                        {waves > 1 ? most_workgroups : ~0u, "workgroups"}};
    occupancy result;
    result.workgroups = ~0u;
    for (const auto & l : limits) {
        if (l.workgroups < result.workgroups) {
            result.workgroups = l.workgroups;
            result.limit = l.name;
        }
    }
    result.waves = double(result.workgroups) * waves / simds;
    return result;
}

namespace {

struct launch_record {
    std::string kernel, phase;
    dim3 grid, block;
    uint32_t lds = 0;
    occupancy waves;
    launch_counts counts;
    std::vector<model::modelled> times;
};
struct kernel_record {
    uint32_t vgprs = 0, sgprs = 0, vgpr_spills = 0, sgpr_spills = 0, static_lds = 0, scratch = 0;
    uint64_t launches = 0;
    launch_counts total;
};

constexpr const char * direction_names[] = {"host_to_device", "device_to_host", "device_to_device", "host_to_host"};
static_assert(std::size(direction_names) == unsigned(copy_direction::count_of));
/// Of a phase, in each direction: how many copies of each size.
using copy_record = std::map<uint64_t, uint64_t>[unsigned(copy_direction::count_of)];
using graph_record = std::array<uint64_t, unsigned(graph_call::count_of)>;

/// All launches and copies of the process. Never destroyed.
struct ledger {
    std::mutex lock;
    bool written = false;  ///< the file has all of it
    std::string phase;
    std::vector<launch_record> launches;
    std::map<std::string, kernel_record> kernels;
    std::map<std::string, copy_record> copies;  // by phase
    std::map<std::string, graph_record> graphs;

    /// Something is to be added: the file is to be written, at the latest when the process ends. Under the lock.
    void change() {
        static const bool registered = std::atexit(write_counts) == 0;
        (void)registered;
        written = false;
    }
};
ledger & the_ledger() {
    static ledger & book = *new ledger;
    return book;
}

using u64 = unsigned long long;

std::string traffic_json(const traffic & t, bool has_lines) {
    std::string text = format("{\"load_requests\": %llu, \"store_requests\": %llu, \"atomic_requests\": %llu, \"load_bytes\": %llu, "
                              "\"store_bytes\": %llu", u64(t.load_requests), u64(t.store_requests), u64(t.atomic_requests),
                              u64(t.load_bytes), u64(t.store_bytes));
    if (has_lines) {
        text += format(", \"lines\": {\"request\": %llu, \"workgroup\": %llu, \"launch\": %llu, \"written\": %llu}", u64(t.request_lines),
                       u64(t.workgroup_lines), u64(t.launch_lines), u64(t.written_lines));
        const u64 requests = t.load_requests + t.store_requests + t.atomic_requests;
        if (requests) text += format(", \"lines_per_request\": %.3f", double(t.request_lines) / double(requests));
    }
    return text + "}";
}

std::string counts_json(const launch_counts & c) {
    std::string text = format("\"waves\": %llu, \"instructions\": {", u64(c.waves));
    u64 total = 0;
    for (unsigned n = 0; n < work_count; n++) {
        total += c.instructions[n];
        text += format("\"%s\": %llu, ", work_names[n], u64(c.instructions[n]));
    }
    text += format("\"total\": %llu}, \"barriers\": %llu", total, u64(c.barriers));
    text += ", \"global\": " + traffic_json(c.global, true) + ", \"scalar\": " + traffic_json(c.scalar, true) +
            ", \"scratch\": " + traffic_json(c.scratch, false);
    text += format(", \"arguments\": {\"load_requests\": %llu, \"load_bytes\": %llu}", u64(c.argument_loads), u64(c.argument_bytes));
    text += format(", \"lds\": {\"requests\": %llu, \"load_bytes\": %llu, \"store_bytes\": %llu, \"passes\": %llu, \"conflicts\": %llu}",
                   u64(c.lds_requests), u64(c.lds_load_bytes), u64(c.lds_store_bytes), u64(c.lds_passes), u64(c.lds_conflicts));
    return text;
}

/// Modelled, never measured: see docs/model.md.
std::string time_json(const model::modelled & m) {
    return format("{\"us\": %.3f, \"share\": %.4f, \"busy\": {\"issue\": %.3f, \"valu\": %.3f, \"lds\": %.3f, "
                  "\"l0\": %.3f, \"l2\": %.3f, \"mall\": %.3f, \"dram\": %.3f}, \"l2_bytes\": %.0f, \"mall_bytes\": %.0f, "
                  "\"dram_bytes\": %.0f}", m.us, m.share, m.issue, m.valu, m.lds, m.l0, m.l2, m.mall, m.dram, m.l2_bytes, m.mall_bytes,
                  m.dram_bytes);
}

std::string times_json(const std::vector<model::modelled> & times) {
    if (times.empty()) return "";
    std::string text = ", \"modelled\": " + time_json(times[0]);
    for (size_t n = 1; n < times.size(); n++) text += (n == 1 ? ", \"variants_us\": [" : ", ") + format("%.3f", times[n].us);
    return times.size() > 1 ? text + "]" : text;
}

std::string copies_json(const copy_record & record) {
    std::string text;
    for (unsigned n = 0; n < unsigned(copy_direction::count_of); n++) {
        u64 copies = 0, bytes = 0;
        std::string sizes;
        for (const auto & [size, count] : record[n]) {
            copies += count;
            bytes += size * count;
            sizes += format("%s\"%llu\": %llu", sizes.empty() ? "" : ", ", u64(size), u64(count));
        }
        text += format("%s\"%s\": {\"copies\": %llu, \"bytes\": %llu, \"sizes\": {%s}}", n ? ", " : "", direction_names[n], copies, bytes,
                       sizes.c_str());
    }
    return text;
}

std::string quoted(const std::string & text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c < ' ' ? ' ' : c;
    }
    return out + '"';
}

}  // namespace

uint64_t launch_counter::instructions() const {
    return std::accumulate(std::begin(counts_.instructions), std::end(counts_.instructions), uint64_t(0));
}

void launch_counter::record(const dispatch & launch, const std::vector<model::modelled> & times) {
    const kernel_image & k = *launch.kernel;
    for (const line_table::entry & e : lines_->entries) {
        if (e.line == 0) continue;
        traffic & t = e.line & line_table::scalar_bit ? counts_.scalar : counts_.global;
        t.launch_lines++;
        t.written_lines += e.written;
    }
    ledger & book = the_ledger();
    std::lock_guard hold(book.lock);
    book.change();
    kernel_record & r = book.kernels[k.name];
    r.vgprs = k.vgprs;
    r.sgprs = k.sgprs;
    r.vgpr_spills = k.vgpr_spills;
    r.sgpr_spills = k.sgpr_spills;
    r.static_lds = k.static_lds;
    r.scratch = k.scratch;
    r.launches++;
    r.total.add(counts_);
    for (auto [to, from] : {std::pair{&r.total.global, &counts_.global}, std::pair{&r.total.scalar, &counts_.scalar}}) {
        to->launch_lines += from->launch_lines;
        to->written_lines += from->written_lines;
    }
    const uint32_t items = launch.block.x * launch.block.y * launch.block.z;
    book.launches.push_back({k.name, book.phase, launch.grid, launch.block, k.static_lds + launch.dynamic_lds,
                             occupancy_of(k, items, launch.dynamic_lds), counts_, times});
}

void count_copy(copy_direction direction, uint64_t bytes) {
    if (instruments().count_file.empty()) return;
    ledger & book = the_ledger();
    std::lock_guard hold(book.lock);
    book.change();
    book.copies[book.phase][unsigned(direction)][bytes]++;
}

void count_graph(graph_call what) {
    if (instruments().count_file.empty()) return;
    ledger & book = the_ledger();
    std::lock_guard hold(book.lock);
    book.change();
    book.graphs[book.phase][unsigned(what)]++;
}

void set_phase(std::string name) {
    ledger & book = the_ledger();
    std::lock_guard hold(book.lock);
    book.phase = std::move(name);
}

void write_counts() {
    const std::string & name = instruments().count_file;
    if (name.empty()) return;
    ledger & book = the_ledger();
    std::lock_guard hold(book.lock);
    if (book.written) return;
    book.written = true;
    std::FILE * file = std::fopen(name.c_str(), "w");
    if (!file) {
        std::fprintf(stderr, "strata-emulator: STRATA_COUNT: %s cannot be written: %s\n", name.c_str(), std::strerror(errno));
        return;
    }
    std::fprintf(file, "{\n\"device\": \"gfx1151\",\n\"kernels\": {");
    const char * comma = "";
    for (const auto & [kernel, r] : book.kernels) {
        std::fprintf(file, "%s\n%s: {\"launches\": %llu, \"vgprs\": %u, \"sgprs\": %u, \"vgpr_spills\": %u, \"sgpr_spills\": %u, "
                     "\"static_lds\": %u, \"scratch\": %u, %s}", comma, quoted(kernel).c_str(), u64(r.launches), r.vgprs, r.sgprs,
                     r.vgpr_spills, r.sgpr_spills, r.static_lds, r.scratch, counts_json(r.total).c_str());
        comma = ",";
    }
    std::fprintf(file, "\n},\n\"launches\": [");
    comma = "";
    for (const launch_record & l : book.launches) {
        std::fprintf(file, "%s\n{\"kernel\": %s, \"phase\": %s, \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"lds_bytes\": %u, "
                     "\"occupancy\": {\"waves_per_simd\": %g, \"workgroups_per_wgp\": %u, \"limit\": \"%s\"}, %s%s}", comma,
                     quoted(l.kernel).c_str(), quoted(l.phase).c_str(), l.grid.x, l.grid.y, l.grid.z, l.block.x, l.block.y, l.block.z,
                     l.lds, l.waves.waves, l.waves.workgroups, l.waves.limit, counts_json(l.counts).c_str(), times_json(l.times).c_str());
        comma = ",";
    }
    std::fprintf(file, "\n],\n\"copies\": {");
    comma = "";
    for (const auto & [phase, record] : book.copies) {
        std::fprintf(file, "%s\n%s: {%s}", comma, quoted(phase).c_str(), copies_json(record).c_str());
        comma = ",";
    }
    std::fprintf(file, "\n},\n\"graphs\": {");
    comma = "";
    for (const auto & [phase, record] : book.graphs) {
        std::fprintf(file, "%s\n%s: {\"instantiated\": %llu, \"launched\": %llu}", comma, quoted(phase).c_str(),
                     u64(record[unsigned(graph_call::instantiated)]), u64(record[unsigned(graph_call::launched)]));
        comma = ",";
    }
    std::fprintf(file, "\n}\n}\n");
    if (std::fclose(file) != 0) std::fprintf(stderr, "strata-emulator: STRATA_COUNT: %s was not written to its end\n", name.c_str());
}

}  // namespace strata::emulator

/// Names the launches and copies from here on; launches are those that are executed from here on, so a program synchronizes first.
extern "C" __attribute__((visibility("default"))) void strata_emulator_count_phase(const char * name) {
    strata::emulator::set_phase(name ? name : "");
}

/// Writes the file that STRATA_COUNT names now. It is also written when the process ends.
extern "C" __attribute__((visibility("default"))) void strata_emulator_count_write() { strata::emulator::write_counts(); }
