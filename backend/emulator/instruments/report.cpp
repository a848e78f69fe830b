// The list of reports. Never destroyed: kernels may still run when the process exits.
#include "report.h"

#include "../machine.h"
#include "../program.h"
#include "state.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

namespace strata::emulator {

namespace {

constexpr size_t most_printed = 100;

struct entry {
    instrument kind;
    std::string text;
    uint64_t count = 1;
};
struct report_list {
    std::mutex lock;
    std::vector<entry> entries;
    std::map<std::pair<uint32_t, std::string>, size_t> by_key;
};
report_list & list() {
    static report_list & reports = *new report_list;
    return reports;
}

const char * kind_text(instrument kind) {
    switch (kind) {
    case instrument_memory: return "memory";
    case instrument_init: return "init";
    case instrument_race: return "race";
    case instrument_wait: return "wait";
    case instrument_host: return "host";
    case instrument_align: return "align";
    default: return "?";
    }
}

void print_summary() {
    report_list & reports = list();
    std::lock_guard hold(reports.lock);
    if (reports.entries.empty()) return;
    uint64_t times = 0;
    for (const entry & e : reports.entries) times += e.count;
    std::fprintf(stderr, "strata-sanitizer: %zu report%s (met %llu times)\n", reports.entries.size(),
                 reports.entries.size() == 1 ? "" : "s", static_cast<unsigned long long>(times));
}

void write_out(const std::string & text, size_t number) {
    if (number <= most_printed) std::fprintf(stderr, "%s\n", text.c_str());
    if (number == most_printed) std::fprintf(stderr, "strata-sanitizer: more reports are only counted\n");
    const std::string & name = instruments().report_file;
    if (name.empty()) return;
    if (std::FILE * file = std::fopen(name.c_str(), "a")) {
        std::fprintf(file, "%s\n\n", text.c_str());
        std::fclose(file);
    }
}

}  // namespace

bool reported(instrument kind, const std::string & key) {
    report_list & reports = list();
    std::lock_guard hold(reports.lock);
    const auto found = reports.by_key.find({kind, key});
    if (found == reports.by_key.end()) return false;
    reports.entries[found->second].count++;
    return true;
}

void report(instrument kind, const std::string & key, const std::string & text) {
    report_list & reports = list();
    std::lock_guard hold(reports.lock);
    const auto [place, fresh] = reports.by_key.try_emplace({kind, key}, reports.entries.size());
    if (!fresh) {
        reports.entries[place->second].count++;
        return;
    }
    static const bool registered = std::atexit(print_summary) == 0;
    (void)registered;
    reports.entries.push_back({kind, std::string("strata-sanitizer: ") + kind_text(kind) + ": " + text});
    write_out(reports.entries.back().text, reports.entries.size());
}

uint64_t report_count() {
    report_list & reports = list();
    std::lock_guard hold(reports.lock);
    return reports.entries.size();
}

std::string all_reports() {
    report_list & reports = list();
    std::lock_guard hold(reports.lock);
    std::string text;
    for (const entry & e : reports.entries) text += e.text + "\n\n";
    return text;
}

void forget_reports() {
    report_list & reports = list();
    std::lock_guard hold(reports.lock);
    reports.entries.clear();
    reports.by_key.clear();
}

std::string hex(uint64_t x) {
    char text[20];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(x));
    return text;
}

std::string describe_instruction(const program & code, const kernel_image & kernel, uint32_t pc) {
    const std::string line = source_line(kernel, code.text_begin + pc);
    return "`" + code.text(pc) + "` at offset " + hex(code.text_begin + pc - kernel.entry) + " of kernel " + kernel.name +
           (line.empty() ? "" : " (" + line + ")");
}

std::string describe_wave(const wave & w) {
    return ", workgroup (" + std::to_string(w.id[0]) + ", " + std::to_string(w.id[1]) + ", " + std::to_string(w.id[2]) + "), wave " +
           std::to_string(w.index);
}

std::string describe_lanes(uint32_t lanes) {
    std::string text = __builtin_popcount(lanes) == 1 ? "lane " : "lanes ";
    const char * comma = "";
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(lanes >> lane & 1)) continue;
        unsigned last = lane;
        while (last < 31 && (lanes >> (last + 1) & 1)) last++;
        text += comma + std::to_string(lane) + (last > lane ? "-" + std::to_string(last) : "");
        comma = ", ";
        lane = last;
    }
    return text;
}

}  // namespace strata::emulator

/// Writes the sanitizer's reports, as much of them as fits with a terminating zero; returns the number of bytes needed without it.
extern "C" __attribute__((visibility("default"))) size_t strata_emulator_reports(char * out, size_t capacity) {
    const std::string text = strata::emulator::all_reports();
    if (capacity) {
        const size_t n = text.size() < capacity ? text.size() : capacity - 1;
        text.copy(out, n);
        out[n] = 0;
    }
    return text.size();
}

extern "C" __attribute__((visibility("default"))) void strata_emulator_forget_reports() { strata::emulator::forget_reports(); }
