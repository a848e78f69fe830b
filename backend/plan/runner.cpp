// The plan cache, and how a list is launched.
#include "plan/runner.h"

#include <algorithm>
#include <cstdio>

#include "plan/fusion_stats.h"
#include "runtime/counters.h"

namespace strata {

static constexpr std::size_t kept_plans = 8;
static constexpr int replays_before_capture = 1;    // what comes once more only would not pay for its capture
static constexpr int64_t most_columns_of_graph = 32;  // with more, kernels outlast their launches, and the graph seldom comes again

plan_runner::kept & plan_runner::plan_for(const ggml_cgraph * graph) {
    if (graph->uid != 0) {
        for (auto each = recent.begin(); each != recent.end(); ++each) {
            if (each->plan->is_for(graph)) {
                recent.splice(recent.begin(), recent, each);
                count(counter::graphs_replayed);
                recent.front().replays += !recent.front().graph;
                return recent.front();
            }
        }
    }
    auto plan = build_plan(work.device, options, memory, graph);
    if (options.print_plan) {
        std::fputs(describe(*plan, graph).c_str(), stderr);
    }
    // a graph without uid cannot be recognised again, so its plan only has to outlive its own launches
    recent.remove_if([](const kept & old) { return old.plan->uid == 0; });
    while (recent.size() >= kept_plans) {
        recent.pop_back();
    }
    recent.push_front({std::move(plan), 0, nullptr});
    return recent.front();
}

void plan_runner::give(const step & each, const launch_plan & plan, hipStream_t stream) {
    const hip_api & hip = work.device.hip;
    hipError_t error = hipSuccess;
    const char * call = "";
    switch (each.what) {
        case step::kind::launch: {
            std::size_t size = each.args_size;
            void * extra[] = {
                HIP_LAUNCH_PARAM_BUFFER_POINTER, const_cast<uint8_t *>(plan.args.data() + each.args_offset),
                HIP_LAUNCH_PARAM_BUFFER_SIZE, &size, HIP_LAUNCH_PARAM_END,
            };
            call = "hipModuleLaunchKernel";
            error = hip.hipModuleLaunchKernel(each.kernel.function, each.grid.x, each.grid.y, each.grid.z, each.block.x, each.block.y,
                each.block.z, each.lds_bytes, stream, nullptr, extra);
            break;
        }
        case step::kind::copy:
            call = "hipMemcpyAsync";
            error = hip.hipMemcpyAsync(each.dst, each.src, each.size, hipMemcpyDeviceToDevice, stream);
            break;
        case step::kind::fill:
            call = "hipMemsetAsync";
            error = hip.hipMemsetAsync(each.dst, each.byte, each.size, stream);
            break;
    }
    if (stream == work.stream) {
        work.submitted();
    }
    work.device.check(error, call, each.size);
}

void plan_runner::launch_one_by_one(const launch_plan & plan, const ggml_cgraph * graph) {
    for (const step & each : plan.steps) {
        try {
            give(each, plan, work.stream);
            if (options.synchronous) {
                work.synchronize();
            }
        } catch (const failure & error) {
            const ggml_tensor * node = graph->nodes[each.node];
            throw failure(format("%s for node %s (%s), grid %u,%u,%u: %s", each.kernel.name, node->name, ggml_op_desc(node),
                each.grid.x, each.grid.y, each.grid.z, error.what()), error.status());
        }
    }
}

bool plan_runner::wants_graph(const kept & each) const {
    return each.replays > replays_before_capture && each.plan->steps.size() > 1 && each.plan->columns <= most_columns_of_graph &&
           !options.synchronous && options.disabled.count("graphs") == 0 && recorder.usable();
}

void plan_runner::run(const ggml_cgraph * graph) {
    if (work.failed()) {
        throw failure("work given to this backend earlier has failed and its results are lost; the device can be used again in a new process");
    }
    kept & found = plan_for(graph);
    const launch_plan & plan = *found.plan;
    if (!found.graph && wants_graph(found)) {
        found.graph = recorder.record([&](hipStream_t stream) {
            for (const step & each : plan.steps) {
                give(each, plan, stream);
            }
        });
    }
    if (found.graph) {
        found.graph->launch();
    } else {
        launch_one_by_one(plan, graph);
    }
    const auto launches = std::count_if(plan.steps.begin(), plan.steps.end(), [](const step & each) { return each.what == step::kind::launch; });
    count(counter::launches, launches);
    count(counter::copies, static_cast<int64_t>(plan.steps.size()) - launches);
    for (const auto & [name, times] : plan.fusions) {
        count_fusion(name, times);
    }
}

}  // namespace strata
