// HIP graphs: launches that are captured once and then submitted by one call.
#pragma once

#include <functional>
#include <memory>

#include "runtime/queue.h"

namespace strata {

/// Work that was captured. It is never changed: other work is another graph.
class launch_graph {
public:
    launch_graph(queue & work, hipGraphExec_t exec) : work(work), exec(exec) {}
    ~launch_graph();
    launch_graph(const launch_graph &) = delete;

    /// Gives all of it to the queue. Throws a failure.
    void launch();

private:
    queue & work;
    const hipGraphExec_t exec;
};

/// Makes the graphs of a queue. A runtime that cannot, or fails to, is not asked again.
class graph_recorder {
public:
    explicit graph_recorder(queue & work) : work(work) {}
    ~graph_recorder();
    graph_recorder(const graph_recorder &) = delete;

    /// True if the HIP library has the functions and nothing has failed yet.
    bool usable() const;

    /// What `body` gives to the stream that it is called with; nothing of it runs. Null if that fails, which is logged: the
    /// same work can still be given to the queue.
    std::unique_ptr<launch_graph> record(const std::function<void(hipStream_t)> & body);

private:
    hipGraph_t capture(const std::function<void(hipStream_t)> & body);

    queue & work;
    // Not the queue's: other threads may wait for that one at any time, which a stream does not allow while it is captured.
    hipStream_t stream = nullptr;
    bool failed = false;
};

}  // namespace strata
