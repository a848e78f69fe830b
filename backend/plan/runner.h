// Runs graphs on a queue: the newest plans are kept and replayed when the same graph comes again.
#pragma once

#include <list>

#include "plan/builder.h"
#include "runtime/queue.h"

namespace strata {

class plan_runner {
public:
    plan_runner(queue & work, settings switches) : work(work), options(std::move(switches)) {}

    /// Launches all work of `graph`; it is complete when the queue is. Throws a failure.
    void run(const ggml_cgraph * graph);

    const settings & switches() const { return options; }

private:
    const launch_plan & plan_for(const ggml_cgraph * graph);
    void replay(const launch_plan & plan, const ggml_cgraph * graph);
    void launch(const step & each, const launch_plan & plan);

    queue & work;
    settings options;
    plan_memory memory;
    std::list<std::unique_ptr<launch_plan>> recent;  // newest first
};

}  // namespace strata
