// The planner that ops see, and the walk over a graph's nodes.
#include "plan/builder.h"

#include <algorithm>
#include <cstring>

#include "buffer.h"
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
    builder(gpu & target, const settings & switches, scratch_arena & memory, launch_plan & result)
        : device(target), options(switches), arena(memory), plan(result) {}

    void begin(int index) {
        node = index;
        used = 0;
    }

    const device_caps & caps() const override { return device.caps; }

    bool disabled(const char * name) const override {
        note_switch(name);
        return options.disabled.count(name) != 0;
    }

    void * scratch(std::size_t size) override {
        const std::size_t offset = used;
        used += round_up(std::max<std::size_t>(size, 1), alignment);
        std::shared_ptr<device_memory> memory = arena.at_least(device, used);
        if (plan.scratch.empty() || plan.scratch.back() != memory) {
            plan.scratch.push_back(memory);
        }
        return static_cast<char *>(memory->data()) + offset;
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
        return plan.steps.back();
    }

    gpu & device;
    const settings & options;
    scratch_arena & arena;
    launch_plan & plan;
    int node = 0;
    std::size_t used = 0;  // scratch bytes of this node
};

bool is_empty_op(ggml_op op) {
    return op == GGML_OP_NONE || op == GGML_OP_VIEW || op == GGML_OP_RESHAPE || op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

/// Kernels read and write our device buffers only, never host memory that the CPU may touch meanwhile.
void require_device_memory(const gpu & device, const ggml_tensor * node, const ggml_tensor * tensor, const char * role) {
    const ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
    if (buffer == nullptr || tensor->data == nullptr || !is_buffer_of(device, buffer)) {
        throw failure(format("node %s (%s): its %s %s is not in the memory of %s (%s)", node->name, ggml_op_desc(node), role, tensor->name,
            device.name.c_str(), buffer == nullptr ? "not allocated" : ggml_backend_buffer_name(buffer)));
    }
}

}  // namespace

std::unique_ptr<launch_plan> build_plan(gpu & device, const settings & options, scratch_arena & arena, const ggml_cgraph * graph) {
    auto plan = std::make_unique<launch_plan>();
    plan->uid = graph->uid;
    plan->n_nodes = graph->n_nodes;
    if (graph->n_nodes > 0) {
        plan->first = graph->nodes[0];
        plan->last = graph->nodes[graph->n_nodes - 1];
        plan->first_data = plan->first->data;
        plan->last_data = plan->last->data;
    }
    builder planner(device, options, arena, *plan);
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        if ((node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0 || is_empty_op(node->op) || ggml_is_empty(node)) {
            continue;
        }
        if (const char * reason = op_refusal(device.caps, node)) {
            throw failure(format("node %s (%s) cannot be computed on %s: %s", node->name, ggml_op_desc(node), device.name.c_str(), reason));
        }
        require_device_memory(device, node, node, "result");
        for (const ggml_tensor * source : node->src) {
            if (source != nullptr && !ggml_is_empty(source)) {
                require_device_memory(device, node, source, "source");
            }
        }
        planner.begin(i);
        find_op(node->op)->plan(planner, node);
        ++plan->nodes;
    }
    count(counter::graphs_planned);
    count(counter::nodes, plan->nodes);
    return plan;
}

}  // namespace strata
