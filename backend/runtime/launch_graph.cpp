// Capture, instantiation and launch of HIP graphs.
#include "runtime/launch_graph.h"

#include "ggml-impl.h"
#include "runtime/counters.h"

namespace strata {

launch_graph::~launch_graph() {
    const gpu & device = work.device;
    const ggml_status waited = guarded([&] {
        device.activate();
        work.synchronize_if_busy();  // not every runtime keeps a graph that is running
    });
    const hipError_t error = device.hip.hipGraphExecDestroy(exec);
    if (waited == GGML_STATUS_SUCCESS && !device.lost()) {
        guarded([&] { device.check(error, "hipGraphExecDestroy"); });
    }
}

void launch_graph::launch() {
    const hipError_t error = work.device.hip.hipGraphLaunch(exec, work.stream);
    work.submitted();
    work.device.check(error, "hipGraphLaunch", 0, "STRATA_DISABLE=graphs launches kernels one by one");
    count(counter::graph_launches);
}

graph_recorder::~graph_recorder() {
    if (stream != nullptr) {
        work.device.hip.hipStreamDestroy(stream);
    }
}

bool graph_recorder::usable() const {
#define STRATA_X(result, name, parameters) && work.device.hip.name != nullptr
    return !failed STRATA_HIP_OPTIONAL_FUNCTIONS(STRATA_X);
#undef STRATA_X
}

hipGraph_t graph_recorder::capture(const std::function<void(hipStream_t)> & body) {
    const gpu & device = work.device;
    if (stream == nullptr) {
        device.check(device.hip.hipStreamCreateWithFlags(&stream, hipStreamNonBlocking), "hipStreamCreateWithFlags");
    }
    device.check(device.hip.hipStreamBeginCapture(stream, hipStreamCaptureModeRelaxed), "hipStreamBeginCapture");
    hipGraph_t graph = nullptr;
    try {
        body(stream);
    } catch (...) {
        if (device.hip.hipStreamEndCapture(stream, &graph) == hipSuccess && graph != nullptr) {
            device.hip.hipGraphDestroy(graph);
        }
        device.hip.hipGetLastError();
        throw;
    }
    device.check(device.hip.hipStreamEndCapture(stream, &graph), "hipStreamEndCapture");
    return graph;
}

std::unique_ptr<launch_graph> graph_recorder::record(const std::function<void(hipStream_t)> & body) {
    const gpu & device = work.device;
    try {
        const hipGraph_t graph = capture(body);
        hipGraphExec_t exec = nullptr;
        const hipError_t error = device.hip.hipGraphInstantiate(&exec, graph, nullptr, nullptr, 0);
        device.hip.hipGraphDestroy(graph);
        device.check(error, "hipGraphInstantiate");
        count(counter::graphs_captured);
        return std::make_unique<launch_graph>(work, exec);
    } catch (const failure & error) {
        failed = true;
        GGML_LOG_WARN("strata-hip: kernels are launched one by one, without a HIP graph: %s\n", error.what());
        return nullptr;
    }
}

}  // namespace strata
