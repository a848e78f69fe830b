// Runs graphs on a queue: the newest plans are kept and replayed when the same graph comes again.
#pragma once

#include <list>

#include "plan/builder.h"
#include "runtime/launch_graph.h"

namespace strata {

class plan_runner {
public:
    plan_runner(queue & work, settings switches) : work(work), options(std::move(switches)), recorder(work) {}

    /// Launches all work of `graph`; it is complete when the queue is. Throws a failure.
    void run(const ggml_cgraph * graph);

    const settings & switches() const { return options; }

private:
    struct kept {
        std::unique_ptr<launch_plan> plan;
        int replays = 0;                      ///< how often the graph came again; not counted further once it has its HIP graph
        std::unique_ptr<launch_graph> graph;  ///< null: not yet, or it is not to have one
    };

    kept & plan_for(const ggml_cgraph * graph);
    bool wants_graph(const kept & each) const;
    void launch_one_by_one(const launch_plan & plan, const ggml_cgraph * graph);
    void give(const step & each, const launch_plan & plan, hipStream_t stream);

    queue & work;
    settings options;
    graph_recorder recorder;
    plan_memory memory;
    std::list<kept> recent;  // newest first
};

}  // namespace strata
