// Runs dispatches: workgroups on the thread pool, the waves of a workgroup in turn on one thread.
#include "machine.h"

#include "program.h"
#include "thread_pool.h"
#include "workgroup.h"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>

namespace strata::emulator {

namespace {

std::atomic<uint64_t> total_launches, total_waves, total_instructions;

fault bad_launch(const dispatch & d, const std::string & why) {
    return {fault::kind::bad_launch, "kernel " + (d.kernel ? d.kernel->name : std::string("(none)")) + ": " + why};
}

std::string triple(const dim3 & d) { return std::to_string(d.x) + " x " + std::to_string(d.y) + " x " + std::to_string(d.z); }

/// What is wrong with a launch, or an empty string.
std::string objection(const dispatch & d) {
    const kernel_image & k = *d.kernel;
    const uint64_t items = uint64_t(d.block.x) * d.block.y * d.block.z;
    if (items == 0 || uint64_t(d.grid.x) * d.grid.y * d.grid.z == 0) {
        return "the grid (" + triple(d.grid) + ") or block (" + triple(d.block) + ") is empty";
    }
    if (d.block.x > 1024 || d.block.y > 1024 || d.block.z > 1024 || items > 1024) {
        return "a block of " + triple(d.block) + " work-items exceeds 1024";
    }
    if (k.max_workgroup && items > k.max_workgroup) {
        return "a block of " + std::to_string(items) + " work-items exceeds the " + std::to_string(k.max_workgroup) +
               " the kernel was compiled for";
    }
    if (uint64_t(k.static_lds) + d.dynamic_lds > machine_properties().max_lds) {
        return "LDS of " + std::to_string(k.static_lds) + " + " + std::to_string(d.dynamic_lds) + " bytes exceeds 65536";
    }
    if (d.kernarg.size() < k.kernarg_size) {
        return "the argument block has " + std::to_string(d.kernarg.size()) + " of " + std::to_string(k.kernarg_size) + " bytes";
    }
    if (!(k.properties >> 10 & 1)) return "it was compiled for wave64; only wave32 is emulated";
    if ((k.rsrc1 >> 12 & 0xff) != 0xf0) return "its float mode is not round-to-nearest with denormals kept, which alone is emulated";
    if (k.entry < k.text_begin || k.entry >= k.text_end) return "its entry lies outside the code";
    return {};
}

program & decoded(kernel_image & k) {
    static std::mutex lock;
    std::lock_guard hold(lock);
    if (!k.decoded) k.decoded = std::make_shared<program>(k, current_isa());
    return *k.decoded;
}

/// Workgroups that wait for each other: all are begun, and have turns, on one thread, so that what each finds of the others is the same on
/// every run and for any number of threads. A wave that spins without s_sleep gives way after some thousand instructions.
fault run_together(launch_context & context, uint64_t groups) {
    constexpr uint64_t slice = 1 << 12;
    // Kept between launches; these run one at a time.
    static std::vector<std::unique_ptr<group_memory>> & places = *new std::vector<std::unique_ptr<group_memory>>;
    while (places.size() < groups) places.push_back(std::make_unique<group_memory>());
    std::vector<std::unique_ptr<workgroup_runner>> runners;
    for (uint64_t group = 0; group < groups; group++) {
        runners.push_back(std::make_unique<workgroup_runner>(context, places[group].get()));
        runners.back()->begin(group);
    }
    for (uint64_t going = groups; going != 0 && !stopping.load(std::memory_order_relaxed);) {
        for (const auto & runner : runners) {
            if (runner->over()) continue;
            if (fault f = runner->turn(slice)) return f;
            if (runner->over()) {
                runner->finish();
                going--;
            }
        }
    }
    for (const auto & runner : runners) {
        total_instructions += runner->instructions;
        total_waves += runner->waves;
    }
    return {};
}

}  // namespace

fault run(const dispatch & launch, const allocation_map & memory) try {
    if (!launch.kernel) return bad_launch(launch, "no kernel");
    if (std::string why = objection(launch); !why.empty()) return bad_launch(launch, why);
    launch_context context(launch, memory, decoded(*launch.kernel));
    if (instruments().watches_instructions()) context.watched = begin_watching(context);
    const uint64_t groups = uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
    std::atomic<uint64_t> next{0};
    std::atomic<uint64_t> first_bad{UINT64_MAX};
    std::mutex lock;
    fault worst;
    std::exception_ptr error;
    if (launch.cooperative) {
        try {
            worst = run_together(context, groups);
        } catch (...) {
            error = std::current_exception();
        }
    } else run_on_workers(unsigned(std::min<uint64_t>(groups, UINT_MAX)), [&](unsigned) {
        try {
            workgroup_runner runner(context);
            for (;;) {
                const uint64_t group = next.fetch_add(1, std::memory_order_relaxed);
                if (group >= groups || group > first_bad.load(std::memory_order_relaxed) || stopping.load(std::memory_order_relaxed)) break;
                fault f = runner.run(group, first_bad);
                if (!f) continue;
                // Of several faults the one of the lowest workgroup is reported, whatever the schedule.
                std::lock_guard hold(lock);
                if (group < first_bad.load()) {
                    first_bad = group;
                    worst = std::move(f);
                }
            }
            total_instructions += runner.instructions;
            total_waves += runner.waves;
        } catch (...) {
            std::lock_guard hold(lock);
            error = std::current_exception();
            first_bad = 0;
        }
    });
    if (context.watched) end_watching(context.watched, launch, !error && !worst);
    if (error) std::rethrow_exception(error);
    total_launches++;
    return worst;
} catch (const std::exception & e) {
    return bad_launch(launch, e.what());
}

counters totals() {
    counters c;
    c.launches = total_launches;
    c.waves = total_waves;
    c.instructions = total_instructions;
    return c;
}

}  // namespace strata::emulator
