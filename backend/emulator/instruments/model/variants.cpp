// Parameters by name, for trying out what follows if one were different.
#include "chip.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace strata::emulator::model {

namespace {

struct field {
    std::string_view name;
    void (*set)(parameters & p, double value);
};
constexpr field fields[] = {
    {"clock_ghz", [](parameters & p, double value) { p.clock_ghz = decltype(p.clock_ghz)(value); }},
    {"processors", [](parameters & p, double value) { p.processors = decltype(p.processors)(value); }},
    {"arrays", [](parameters & p, double value) { p.arrays = decltype(p.arrays)(value); }},
    {"simds", [](parameters & p, double value) { p.simds = decltype(p.simds)(value); }},
    {"issue_width", [](parameters & p, double value) { p.issue_width = decltype(p.issue_width)(value); }},
    {"trans_cycles", [](parameters & p, double value) { p.trans_cycles = decltype(p.trans_cycles)(value); }},
    {"wmma_cycles", [](parameters & p, double value) { p.wmma_cycles = decltype(p.wmma_cycles)(value); }},
    {"wmma_iu4_cycles", [](parameters & p, double value) { p.wmma_iu4_cycles = decltype(p.wmma_iu4_cycles)(value); }},
    {"valu_latency", [](parameters & p, double value) { p.valu_latency = decltype(p.valu_latency)(value); }},
    {"trans_latency", [](parameters & p, double value) { p.trans_latency = decltype(p.trans_latency)(value); }},
    {"salu_latency", [](parameters & p, double value) { p.salu_latency = decltype(p.salu_latency)(value); }},
    {"lds_latency", [](parameters & p, double value) { p.lds_latency = decltype(p.lds_latency)(value); }},
    {"scalar_latency", [](parameters & p, double value) { p.scalar_latency = decltype(p.scalar_latency)(value); }},
    {"l0_latency", [](parameters & p, double value) { p.l0_latency = decltype(p.l0_latency)(value); }},
    {"l1_latency", [](parameters & p, double value) { p.l1_latency = decltype(p.l1_latency)(value); }},
    {"l2_latency", [](parameters & p, double value) { p.l2_latency = decltype(p.l2_latency)(value); }},
    {"mall_latency", [](parameters & p, double value) { p.mall_latency = decltype(p.mall_latency)(value); }},
    {"dram_latency", [](parameters & p, double value) { p.dram_latency = decltype(p.dram_latency)(value); }},
    {"branch_taken", [](parameters & p, double value) { p.branch_taken = decltype(p.branch_taken)(value); }},
    {"barrier_latency", [](parameters & p, double value) { p.barrier_latency = decltype(p.barrier_latency)(value); }},
    {"l0_bytes", [](parameters & p, double value) { p.l0_bytes = decltype(p.l0_bytes)(value); }},
    {"l1_bytes", [](parameters & p, double value) { p.l1_bytes = decltype(p.l1_bytes)(value); }},
    {"l2_bytes", [](parameters & p, double value) { p.l2_bytes = decltype(p.l2_bytes)(value); }},
    {"mall_bytes", [](parameters & p, double value) { p.mall_bytes = decltype(p.mall_bytes)(value); }},
    {"dram_bytes", [](parameters & p, double value) { p.dram_bytes = decltype(p.dram_bytes)(value); }},
    {"scalar_cache", [](parameters & p, double value) { p.scalar_cache = decltype(p.scalar_cache)(value); }},
    {"l0_size", [](parameters & p, double value) { p.l0_size = decltype(p.l0_size)(value); }},
    {"l1_size", [](parameters & p, double value) { p.l1_size = decltype(p.l1_size)(value); }},
    {"l2_size", [](parameters & p, double value) { p.l2_size = decltype(p.l2_size)(value); }},
    {"mall_size", [](parameters & p, double value) { p.mall_size = decltype(p.mall_size)(value); }},
    {"atomic_cycles", [](parameters & p, double value) { p.atomic_cycles = decltype(p.atomic_cycles)(value); }},
    {"spin_cycles", [](parameters & p, double value) { p.spin_cycles = decltype(p.spin_cycles)(value); }},
    {"dispatch_cycles", [](parameters & p, double value) { p.dispatch_cycles = decltype(p.dispatch_cycles)(value); }},
    {"launch_latency", [](parameters & p, double value) { p.launch_latency = decltype(p.launch_latency)(value); }},
    {"workgroup_latency", [](parameters & p, double value) { p.workgroup_latency = decltype(p.workgroup_latency)(value); }},
};

void change(parameters & p, const std::string & word) {
    const size_t equals = word.find('=');
    if (word.empty() || word == "1") return;
    char * end = nullptr;
    const double value = equals == std::string::npos ? 0 : std::strtod(word.c_str() + equals + 1, &end);
    if (end && end != word.c_str() + equals + 1 && *end == '\0' && value > 0) {
        for (const field & f : fields) {
            if (f.name != std::string_view(word).substr(0, equals)) continue;
            f.set(p, value);
            return;
        }
    }
    std::fprintf(stderr, "strata-emulator: STRATA_MODEL: %s is not a parameter of the time model with a positive value\n", word.c_str());
}

}  // namespace

std::vector<chip> chips(const std::string & wanted) {
    std::vector<chip> found;
    for (size_t begin = 0; begin <= wanted.size();) {
        const size_t stop = std::min(wanted.find(';', begin), wanted.size());
        parameters p;
        for (size_t at = begin; at < stop;) {
            const size_t comma = std::min(wanted.find(',', at), stop);
            change(p, wanted.substr(at, comma - at));
            at = comma + 1;
        }
        found.emplace_back(p);
        begin = stop + 1;
    }
    return found;
}

}  // namespace strata::emulator::model
