// A launch list: what a graph became. It is data, replayed without allocating anything.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ggml-impl.h"
#include "runtime/gpu.h"

namespace strata {

/// One entry of a launch list.
struct step {
    enum class kind : uint8_t { launch, copy, fill } what = kind::launch;
    int node = 0;  ///< index in the graph, for messages; of a fusion its last node
    const char * fusion = nullptr;  ///< name of the fusion it belongs to, or null

    kernel_handle kernel{nullptr, ""};
    dims grid, block;
    uint32_t lds_bytes = 0;    ///< dynamic LDS
    uint32_t args_offset = 0;  ///< in launch_plan::args
    uint32_t args_size = 0;

    void * dst = nullptr;  ///< copy, fill
    const void * src = nullptr;
    std::size_t size = 0;
    int byte = 0;
};

/// All launches of one graph.
struct launch_plan {
    // identity of the graph it was made for
    uint64_t uid = 0;
    int n_nodes = 0;
    const ggml_tensor * first = nullptr;
    const ggml_tensor * last = nullptr;
    const void * first_data = nullptr;
    const void * last_data = nullptr;
    bool fusions_enabled = true;  ///< as it was when the list was made

    std::vector<step> steps;
    std::vector<uint8_t> args;                            ///< all args structs, 16-byte aligned each
    std::vector<std::shared_ptr<device_memory>> scratch;  ///< keeps the memory that args point to
    int nodes = 0;                                        ///< nodes that compute something, those left out by fusions included
    int64_t columns = 0;                                  ///< the most that weights are multiplied with: of a model, the tokens
    std::vector<std::pair<const char *, uint64_t>> fusions;  ///< how often each fusion is applied

    bool is_for(const ggml_cgraph * graph) const;
};

/// The list as text, a line a step: node, op, name, kernel, grid, block.
std::string describe(const launch_plan & plan, const ggml_cgraph * graph);

}  // namespace strata
