// Identity and printout of launch lists.
#include "plan/plan.h"

#include "plan/fusion_stats.h"

namespace strata {

bool launch_plan::is_for(const ggml_cgraph * graph) const {
    if (uid != graph->uid || n_nodes != graph->n_nodes || fusions_enabled != strata::fusions_enabled()) {
        return false;
    }
    if (n_nodes == 0) {
        return true;
    }
    const ggml_tensor * a = graph->nodes[0];
    const ggml_tensor * b = graph->nodes[n_nodes - 1];
    return a == first && b == last && a->data == first_data && b->data == last_data;
}

std::string describe(const launch_plan & plan, const ggml_cgraph * graph) {
    std::string text = format("strata-hip plan: graph uid %llu, %d nodes (%d computed), %zu steps, %zu bytes of arguments\n",
        static_cast<unsigned long long>(plan.uid), plan.n_nodes, plan.nodes, plan.steps.size(), plan.args.size());
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
        const step & each = plan.steps[i];
        const ggml_tensor * node = graph->nodes[each.node];
        text += format("%5zu  node %4d %-16s %-28s ", i, each.node, ggml_op_desc(node), node->name);
        switch (each.what) {
            case step::kind::launch:
                text += format("%s grid %u,%u,%u block %u,%u,%u", each.kernel.name, each.grid.x, each.grid.y, each.grid.z,
                    each.block.x, each.block.y, each.block.z);
                if (each.lds_bytes != 0) {
                    text += format(" lds %u", each.lds_bytes);
                }
                break;
            case step::kind::copy:
                text += "copy " + readable_size(each.size);
                break;
            case step::kind::fill:
                text += format("fill 0x%02x ", each.byte) + readable_size(each.size);
                break;
        }
        if (each.fusion != nullptr) {
            text += format("  (%s)", each.fusion);
        }
        text += '\n';
    }
    for (const auto & [name, times] : plan.fusions) {
        text += format("       fusion %s: %llu\n", name, static_cast<unsigned long long>(times));
    }
    return text;
}

}  // namespace strata
