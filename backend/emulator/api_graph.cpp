// HIP's graphs, as streams capture them: lists of commands that run in the order in which they were captured, which is one of
// the orders that the dependencies between the streams of a capture allow.
#include "api.h"
#include "instruments/counts.h"

#include <set>
#include <tuple>

namespace strata {

using namespace emulator;

namespace {

std::shared_ptr<graph> find_graph(const char * call, hipGraph_t handle) {
    std::shared_ptr<graph> found = handle_tables::instance().graphs.find(handle);
    if (!found) {
        fail(hipErrorInvalidValue, format("%s: %p is no graph, or one that was destroyed", call, static_cast<void *>(handle)));
    }
    return found;
}

std::shared_ptr<graph_exec> find_exec(const char * call, hipGraphExec_t handle) {
    std::shared_ptr<graph_exec> found = handle_tables::instance().graph_execs.find(handle);
    if (!found) {
        fail(hipErrorInvalidValue, format("%s: %p is no executable graph, or one that was destroyed", call, static_cast<void *>(handle)));
    }
    return found;
}

/// The memory of all commands of a graph, each piece once for each use: a model's kernels are given the same buffers again and again.
footprint_ptr footprint_of(const std::vector<recorded_command> & nodes) {
    if (!watching_host()) {
        return nullptr;
    }
    auto all = std::make_shared<footprint>();
    all->what = "hipGraphLaunch";
    std::set<std::tuple<uint64_t, uint64_t, footprint::use>> known;
    for (const recorded_command & node : nodes) {
        if (!node.what) {
            continue;
        }
        for (const footprint::range & r : node.what->ranges) {
            if (known.emplace(r.begin, r.end, r.how).second) {
                all->ranges.push_back(r);
                all->ranges.back().of = node.what->what;
            }
        }
    }
    return all;
}

}  // namespace

hipError_t hipStreamBeginCapture(hipStream_t handle, int mode) {
    return device_call([&]() -> hip_error {
        const stream_ptr which = find_stream(handle);
        if (!which) {
            return hipErrorInvalidHandle;
        }
        device_queues & queues = device_queues::instance();
        if (mode < 0 || mode > int(hipStreamCaptureModeRelaxed)) {
            return fail(hipErrorInvalidValue, format("hipStreamBeginCapture: %d is no capture mode", mode));
        }
        if (which == queues.null_stream()) {
            return fail(hipErrorStreamCaptureUnsupported, "hipStreamBeginCapture: the null stream cannot be captured");
        }
        if (queues.capturing(which)) {
            return fail(hipErrorIllegalState, "hipStreamBeginCapture: the stream is capturing already");
        }
        auto fresh = std::make_shared<recording>();
        fresh->origin = which.get();
        queues.capture(which, std::move(fresh));
        return hipSuccess;
    });
}

hipError_t hipStreamEndCapture(hipStream_t handle, hipGraph_t * result) {
    return device_call([&]() -> hip_error {
        const stream_ptr which = find_stream(handle);
        if (!which) {
            return hipErrorInvalidHandle;
        }
        device_queues & queues = device_queues::instance();
        const recording_ptr what = queues.capturing(which);
        if (!what || result == nullptr) {
            return fail(what ? hipErrorInvalidValue : hipErrorIllegalState,
                        "hipStreamEndCapture: the stream is not capturing, or there is no result pointer");
        }
        if (what->origin != which.get()) {
            return fail(hipErrorStreamCaptureUnmatched, "hipStreamEndCapture: the capture was begun in another stream");
        }
        auto made = std::make_shared<graph>();
        made->nodes = queues.finish(what);
        *result = handle_tables::instance().graphs.add(std::move(made));
        return hipSuccess;
    });
}

hipError_t hipStreamIsCapturing(hipStream_t handle, int * status) {
    return device_call([&]() -> hip_error {
        const stream_ptr which = find_stream(handle);
        if (!which || status == nullptr) {
            return which ? fail(hipErrorInvalidValue, "hipStreamIsCapturing: a null pointer for the result") : hipErrorInvalidHandle;
        }
        *status = device_queues::instance().capturing(which) ? 1 : 0;
        return hipSuccess;
    });
}

hipError_t hipGraphInstantiate(hipGraphExec_t * exec, hipGraph_t handle, hipGraphNode_t *, char *, size_t) {
    return device_call([&]() -> hip_error {
        const std::shared_ptr<graph> from = find_graph("hipGraphInstantiate", handle);
        if (!from || exec == nullptr) {
            return from ? fail(hipErrorInvalidValue, "hipGraphInstantiate: a null pointer for the result") : hipErrorInvalidValue;
        }
        auto made = std::make_shared<graph_exec>();
        made->nodes = std::make_shared<const std::vector<recorded_command>>(from->nodes);
        made->what = footprint_of(from->nodes);
        count_graph(graph_call::instantiated);
        *exec = handle_tables::instance().graph_execs.add(std::move(made));
        return hipSuccess;
    });
}

// HIP wants the same kinds of nodes with the same dependencies; here their number is asked for.
hipError_t hipGraphExecUpdate(hipGraphExec_t handle, hipGraph_t source, hipGraphNode_t * error_node, int * result) {
    return device_call([&]() -> hip_error {
        const std::shared_ptr<graph> from = find_graph("hipGraphExecUpdate", source);
        const std::shared_ptr<graph_exec> exec = from ? find_exec("hipGraphExecUpdate", handle) : nullptr;
        if (!exec) {
            return hipErrorInvalidValue;
        }
        if (error_node != nullptr) {
            *error_node = nullptr;
        }
        std::lock_guard guard(exec->lock);
        const bool same = exec->nodes->size() == from->nodes.size();
        if (result != nullptr) {
            *result = same ? hipGraphExecUpdateSuccess : hipGraphExecUpdateErrorTopologyChanged;
        }
        if (!same) {
            return fail(hipErrorGraphExecUpdateFailure, format("hipGraphExecUpdate: the graph has %zu nodes, the executable one %zu",
                                                               from->nodes.size(), exec->nodes->size()));
        }
        exec->nodes = std::make_shared<const std::vector<recorded_command>>(from->nodes);
        exec->what = footprint_of(from->nodes);
        return hipSuccess;
    });
}

hipError_t hipGraphLaunch(hipGraphExec_t handle, hipStream_t stream_handle) {
    return device_call([&]() -> hip_error {
        const std::shared_ptr<graph_exec> exec = find_exec("hipGraphLaunch", handle);
        if (!exec) {
            return hipErrorInvalidValue;
        }
        const stream_ptr stream = find_stream(stream_handle);
        if (!stream) {
            return hipErrorInvalidHandle;
        }
        std::lock_guard guard(exec->lock);
        device_queues::instance().submit(stream, [nodes = exec->nodes]() -> outcome {
            for (const recorded_command & node : *nodes) {
                if (outcome result = node.run(); result.error != hipSuccess) {
                    return result;
                }
            }
            return {};
        }, {}, exec->what);
        count_graph(graph_call::launched);
        return hipSuccess;
    });
}

hipError_t hipGraphDestroy(hipGraph_t handle) {
    return call([&]() -> hip_error {
        return handle_tables::instance().graphs.remove(handle) ? hipSuccess
                                                               : fail(hipErrorInvalidValue, "hipGraphDestroy: this is no graph");
    });
}

hipError_t hipGraphExecDestroy(hipGraphExec_t handle) {
    return call([&]() -> hip_error {
        return handle_tables::instance().graph_execs.remove(handle)
                   ? hipSuccess
                   : fail(hipErrorInvalidValue, "hipGraphExecDestroy: this is no executable graph");
    });
}

}  // namespace strata
