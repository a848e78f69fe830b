// The planner that ops see, and the walk over a graph's nodes.
#include "plan/builder.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <unordered_map>

#include "buffer.h"
#include "plan/fusion.h"
#include "plan/fusion_stats.h"
#include "plan/shared.h"
#include "runtime/counters.h"

namespace strata {

static constexpr std::size_t alignment = 256;
static constexpr std::size_t smallest_arena = 1 << 20;

static std::size_t round_up(std::size_t size, std::size_t to) {
    return (size + to - 1) / to * to;
}

std::shared_ptr<device_memory> scratch_arena::at_least(gpu & device, std::size_t size) {
    if (!memory || memory->size() < size) {
        // half as much again, so that growing prompts do not leave a trail of arenas
        const std::size_t wanted = round_up(std::max(size + size / 2, smallest_arena), smallest_arena);
        memory.reset();
        memory = std::make_shared<device_memory>(device, wanted, "scratch memory of kernels");
    }
    return memory;
}

namespace {

class builder final : public planner {
public:
    builder(gpu & target, const settings & switches, plan_memory & both, launch_plan & result, const ggml_cgraph * graph)
        : device(target), options(switches), memory(both), plan(result), places(graph),
          quantized_readers(count_quantized_readers(graph, places)) {}

    void begin(int index) {
        node = index;
        fusion = nullptr;
        used = 0;
    }

    void begin(const fusion_match & match) {
        begin(match.place());
        fusion = match.pattern->name;
        applied(fusion);
    }

    /// What the node or fusion has written.
    void wrote(const std::vector<const ggml_tensor *> & results) {
        for (const ggml_tensor * each : results) {
            shareable.overwritten(each);
        }
        shareable.settle();
    }

    /// After a node that may have written to its sources.
    void wrote_anything() { shareable.clear(); }

    const device_caps & caps() const override { return device.caps; }

    bool disabled(const char * name) const override {
        return options.disabled.count(name) != 0;
    }

    void * scratch(std::size_t size) override {
        const std::size_t offset = used;
        used += round_up(std::max<std::size_t>(size, 1), alignment);
        return held(memory.node.at_least(device, used)) + offset;
    }

    shared_memory shared(const char * name, const ggml_tensor * source, std::size_t size, std::initializer_list<uint64_t> parameters,
                         made_of what) override {
        if (!is_on(name) || is_own(source->data)) {
            return {scratch(size), false};
        }
        void * found = what == made_of::operand ? shareable.find(name, source, parameters) : nullptr;
        if (found != nullptr) {
            applied(name);
            return {found, true};
        }
        size = round_up(std::max<std::size_t>(size, 1), alignment);
        std::size_t end = size;
        std::shared_ptr<device_memory> piece = memory.shared.at_least(device, end);
        while ((end = shareable.end_of_space(piece->data(), size)) > piece->size()) {
            piece = memory.shared.at_least(device, end);   // a larger piece elsewhere, with nothing in it yet
        }
        return {shareable.add(name, source, parameters, held(piece), end, size, what == made_of::result), false};
    }

    bool quantizes_result(const char * name, const ggml_tensor * result) override {
        if (!is_on(name) || !is_on("shared_q8_1") || quantized_readers.count(result) == 0) {
            return false;
        }
        applied(name);
        return true;
    }

    bool quantized_here_alone(const ggml_tensor * x, int readers) const override {
        if (disabled("fusion") || !fusions_enabled() || shareable.find("shared_q8_1", x, {}) != nullptr) {
            return false;
        }
        std::vector<int> reshapes;
        const auto found = quantized_readers.find(behind_reshapes(places, x, reshapes));
        return found != quantized_readers.end() && found->second == readers;
    }

    void copy(void * dst, const void * src, std::size_t size) override {
        if (size == 0) {
            return;
        }
        step & added = add(step::kind::copy);
        added.kernel.name = "copy";
        added.dst = dst;
        added.src = src;
        added.size = size;
    }

    void fill(void * dst, int byte, std::size_t size) override {
        if (size == 0) {
            return;
        }
        step & added = add(step::kind::fill);
        added.kernel.name = "fill";
        added.dst = dst;
        added.byte = byte;
        added.size = size;
    }

protected:
    void launch_raw(const char * family, const char * kernel, dims grid, dims block, const void * args, std::size_t size,
            uint32_t lds_bytes) override {
        if (grid.x == 0 || grid.y == 0 || grid.z == 0) {
            return;
        }
        const kernel_handle handle = device.kernel(family, kernel);
        const std::size_t offset = round_up(plan.args.size(), 16);
        plan.args.resize(offset + size);
        std::memcpy(plan.args.data() + offset, args, size);
        step & added = add(step::kind::launch);
        added.kernel = handle;
        added.grid = grid;
        added.block = block;
        added.lds_bytes = lds_bytes;
        added.args_offset = static_cast<uint32_t>(offset);
        added.args_size = static_cast<uint32_t>(size);
    }

private:
    step & add(step::kind what) {
        plan.steps.emplace_back();
        plan.steps.back().what = what;
        plan.steps.back().node = node;
        plan.steps.back().fusion = fusion;
        return plan.steps.back();
    }

    /// The address of a piece that the plan from now on keeps alive.
    char * held(const std::shared_ptr<device_memory> & piece) {
        if (std::find(plan.scratch.begin(), plan.scratch.end(), piece) == plan.scratch.end()) {
            plan.scratch.push_back(piece);
        }
        return static_cast<char *>(piece->data());
    }

    /// True for memory that this planner gave out: other nodes will get it too.
    bool is_own(const void * address) const {
        return std::any_of(plan.scratch.begin(), plan.scratch.end(), [&](const std::shared_ptr<device_memory> & piece) {
            const auto begin = static_cast<const char *>(piece->data());
            return std::greater_equal<>()(address, static_cast<const void *>(begin)) &&
                   std::less<>()(address, static_cast<const void *>(begin + piece->size()));
        });
    }

    using reader_counts = std::unordered_map<const ggml_tensor *, int>;

    /// What products with quantized weights read, and how many of them.
    static reader_counts count_quantized_readers(const ggml_cgraph * graph, const graph_index & index) {
        reader_counts found;
        for (int i = 0; i < graph->n_nodes; ++i) {
            const ggml_tensor * node = graph->nodes[i];
            if ((node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID) && ggml_is_quantized(node->src[0]->type)) {
                std::vector<int> reshapes;
                ++found[behind_reshapes(index, node->src[1], reshapes)];
            }
        }
        return found;
    }

    /// True if STRATA_DISABLE allows what several nodes share, and fusions are on.
    bool is_on(const char * name) const {
        return !disabled(name) && !disabled("fusion") && fusions_enabled();
    }

    void applied(const char * name) {
        for (auto & [known, times] : plan.fusions) {
            if (std::strcmp(known, name) == 0) {
                ++times;
                return;
            }
        }
        plan.fusions.emplace_back(name, 1);
    }

    gpu & device;
    const settings & options;
    plan_memory & memory;
    launch_plan & plan;
    shared_results shareable;
    const graph_index places;
    const reader_counts quantized_readers;
    int node = 0;
    const char * fusion = nullptr;
    std::size_t used = 0;  // scratch bytes of this node
};

/// Ops that also write to some of their sources.
bool writes_sources(ggml_op op) { return op == GGML_OP_OPT_STEP_ADAMW || op == GGML_OP_OPT_STEP_SGD; }

/// Kernels read and write our device buffers only, never host memory that the CPU may touch meanwhile.
void require_device_memory(const gpu & device, const ggml_tensor * node, const ggml_tensor * tensor, const char * role) {
    const ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    if (buffer == nullptr || tensor->data == nullptr || !is_buffer_of(device, buffer)) {
        throw failure(format("node %s (%s): its %s %s is not in the memory of %s (%s)", node->name, ggml_op_desc(node), role, tensor->name,
            device.name.c_str(), buffer == nullptr ? "not allocated" : ggml_backend_buffer_name(buffer)));
    }
}

/// Throws a failure unless kernels compute this node and its tensors are in this device's memory.
void require_computable(const gpu & device, const ggml_tensor * node) {
    if (const char * reason = op_refusal(device.caps, node)) {
        throw failure(format("node %s (%s) cannot be computed on %s: %s", node->name, ggml_op_desc(node), device.name.c_str(), reason));
    }
    require_device_memory(device, node, node, "result");
    for (const ggml_tensor * source : node->src) {
        if (source != nullptr && !ggml_is_empty(source)) {
            require_device_memory(device, node, source, "source");
        }
    }
}

/// How many columns are multiplied with a matrix of weights; 0 if the node is no such product.
int64_t columns(const ggml_tensor * node) {
    if (node->op == GGML_OP_MUL_MAT_ID) {
        return node->src[2]->ne[1];
    }
    const bool is_dense = node->op == GGML_OP_MUL_MAT && node->src[0]->op == GGML_OP_NONE;  // an indexer's heads are columns, but no tokens
    return is_dense && node->src[0]->ne[2] == 1 && node->src[0]->ne[3] == 1 ? ggml_nrows(node->src[1]) : 0;
}

}  // namespace

std::unique_ptr<launch_plan> build_plan(gpu & device, const settings & options, plan_memory & memory, const ggml_cgraph * graph) {
    auto plan = std::make_unique<launch_plan>();
    plan->uid = graph->uid;
    plan->n_nodes = graph->n_nodes;
    plan->fusions_enabled = fusions_enabled();
    if (graph->n_nodes > 0) {
        plan->first = graph->nodes[0];
        plan->last = graph->nodes[graph->n_nodes - 1];
        plan->first_data = plan->first->data;
        plan->last_data = plan->last->data;
    }
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        if (computes(node)) {
            require_computable(device, node);
            ++plan->nodes;
            plan->columns = std::max(plan->columns, columns(node));
        }
    }
    const std::vector<fusion_match> fusions = find_fusions({device.caps, options}, graph, fusion_stage::compute);
    std::vector<const fusion_match *> fusion_of(std::size_t(graph->n_nodes));
    for (const fusion_match & match : fusions) {
        for (const int place : match.taken) {
            fusion_of[std::size_t(place)] = &match;
        }
    }
    builder planner(device, options, memory, *plan, graph);
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        if (const fusion_match * match = fusion_of[std::size_t(i)]) {
            if (match->place() == i) {
                planner.begin(*match);
                match->pattern->plan(planner, *match);
                planner.wrote(match->written);
            }
        } else if (computes(node)) {
            planner.begin(i);
            find_op(node->op)->plan(planner, node);
            planner.wrote({node});
            if (writes_sources(node->op)) {
                planner.wrote_anything();
            }
        }
    }
    count(counter::graphs_planned);
    count(counter::nodes, plan->nodes);
    return plan;
}

}  // namespace strata
