// From graph to launch list: walks the nodes once, in order, and lets each op add its launches.
#pragma once

#include "plan/plan.h"
#include "runtime/settings.h"

namespace strata {

/// Device memory for intermediate results, shared by all nodes of all plans of a backend instance: launches run in order.
class scratch_arena {
public:
    /// Memory of at least `size` bytes. A larger piece replaces the old one, which lives as long as a plan holds it.
    std::shared_ptr<device_memory> at_least(gpu & device, std::size_t size);

private:
    std::shared_ptr<device_memory> memory;
};

/// Device memory of a backend instance's plans.
struct plan_memory {
    scratch_arena node;     ///< intermediate results of a node
    scratch_arena shared;   ///< what several nodes use, see shared.h
};

/// Plans `graph`. Throws a failure if a node cannot be computed here, or memory is short.
std::unique_ptr<launch_plan> build_plan(gpu & device, const settings & options, plan_memory & memory, const ggml_cgraph * graph);

}  // namespace strata
