// Modelled time of a launch on gfx1151.
#pragma once

#include "parameters.h"
#include "trace.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace strata::emulator::model {

/// What the model says of a launch. Never measured on a chip.
struct modelled {
    double us = 0;      ///< from the first wave to the end, without the gap before the next launch
    double share = 0;   ///< of the launch's instructions that were simulated; the rest is taken to go on like them
    // How busy the units were, of the simulated time: 1 is all of it.
    double issue = 0, valu = 0, lds = 0, l0 = 0, l2 = 0, mall = 0, dram = 0;
    double l2_bytes = 0, mall_bytes = 0, dram_bytes = 0;  ///< that were asked of each, scaled to the whole launch
};

struct shape {
    uint32_t resident_groups = 1;       ///< of a workgroup processor
    uint64_t instructions = 0;          ///< of the whole launch
    const change_counts * changes = nullptr;  ///< of a cooperative launch
};

/// The chip between launches: the L2 and the memory-side cache keep their lines.
class chip {
public:
    explicit chip(const parameters & with = {});
    ~chip();
    chip(chip &&) noexcept;

    /// The groups in the order of their numbers.
    modelled run(const workgroup_traces & groups, const shape & of);

    /// The caches hold nothing, as before the first launch.
    void cool();

private:
    friend class simulation;
    parameters with_;
    std::unique_ptr<struct shared_caches> caches_;
};

/// The chips that STRATA_MODEL asks for: "1" is the one of parameters.h; after a semicolon follow variants, each with its differences:
/// "1;l0_latency=100,issue_width=2;dram_bytes=80". Unknown names are told on stderr and have no effect.
std::vector<chip> chips(const std::string & wanted);

}  // namespace strata::emulator::model
