// The plan cache and the replay loop.
#include "plan/runner.h"

#include <cstdio>

#include "plan/fusion_stats.h"
#include "runtime/counters.h"

namespace strata {

static constexpr std::size_t kept_plans = 8;

const launch_plan & plan_runner::plan_for(const ggml_cgraph * graph) {
    if (graph->uid != 0) {
        for (auto each = recent.begin(); each != recent.end(); ++each) {
            if ((*each)->is_for(graph)) {
                recent.splice(recent.begin(), recent, each);
                count(counter::graphs_replayed);
                return *recent.front();
            }
        }
    }
    auto plan = build_plan(work.device, options, memory, graph);
    if (options.print_plan) {
        std::fputs(describe(*plan, graph).c_str(), stderr);
    }
    // a graph without uid cannot be recognised again, so its plan only has to outlive its own launches
    recent.remove_if([](const std::unique_ptr<launch_plan> & old) { return old->uid == 0; });
    while (recent.size() >= kept_plans) {
        recent.pop_back();
    }
    recent.push_front(std::move(plan));
    return *recent.front();
}

void plan_runner::launch(const step & each, const launch_plan & plan) {
    const hip_api & hip = work.device.hip;
    switch (each.what) {
        case step::kind::launch: {
            std::size_t size = each.args_size;
            void * extra[] = {
                HIP_LAUNCH_PARAM_BUFFER_POINTER, const_cast<uint8_t *>(plan.args.data() + each.args_offset),
                HIP_LAUNCH_PARAM_BUFFER_SIZE, &size, HIP_LAUNCH_PARAM_END,
            };
            const hipError_t error = hip.hipModuleLaunchKernel(each.kernel.function, each.grid.x, each.grid.y, each.grid.z,
                each.block.x, each.block.y, each.block.z, each.lds_bytes, work.stream, nullptr, extra);
            work.submitted();
            work.device.check(error, "hipModuleLaunchKernel");
            break;
        }
        case step::kind::copy:
            work.copy(each.dst, each.src, each.size);
            break;
        case step::kind::fill:
            work.fill(each.dst, each.byte, each.size);
            break;
    }
}

void plan_runner::replay(const launch_plan & plan, const ggml_cgraph * graph) {
    std::size_t launches = 0;
    for (const step & each : plan.steps) {
        try {
            launch(each, plan);
            if (options.synchronous) {
                work.synchronize();
            }
        } catch (const failure & error) {
            const ggml_tensor * node = graph->nodes[each.node];
            throw failure(format("%s for node %s (%s), grid %u,%u,%u: %s", each.kernel.name, node->name, ggml_op_desc(node),
                each.grid.x, each.grid.y, each.grid.z, error.what()), error.status());
        }
        launches += each.what == step::kind::launch;
    }
    count(counter::launches, static_cast<int64_t>(launches));
    count(counter::copies, static_cast<int64_t>(plan.steps.size() - launches));
    for (const auto & [name, times] : plan.fusions) {
        count_fusion(name, times);
    }
}

void plan_runner::run(const ggml_cgraph * graph) {
    if (work.failed()) {
        throw failure("work given to this backend earlier has failed and its results are lost; the device can be used again in a new process");
    }
    replay(plan_for(graph), graph);
}

}  // namespace strata
