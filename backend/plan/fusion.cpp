// Matching patterns, and the checks that hold for all of them.
#include "plan/fusion.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "plan/fusion_stats.h"

namespace strata {

bool is_empty_op(ggml_op op) {
    return op == GGML_OP_NONE || op == GGML_OP_VIEW || op == GGML_OP_RESHAPE || op == GGML_OP_PERMUTE || op == GGML_OP_TRANSPOSE;
}

bool computes(const ggml_tensor * node) {
    return (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 && !is_empty_op(node->op) && !ggml_is_empty(node);
}

void fusion_match::append(const fusion_match & other) {
    nodes.insert(nodes.end(), other.nodes.begin(), other.nodes.end());
    operands.insert(operands.end(), other.operands.begin(), other.operands.end());
    written.insert(written.end(), other.written.begin(), other.written.end());
    taken.insert(taken.end(), other.taken.begin(), other.taken.end());
}

fusion_match fusion_match::part(std::size_t first_node, std::size_t node_count, std::size_t first_operand, std::size_t operand_count) const {
    fusion_match result;
    result.pattern = pattern;
    const auto node = nodes.begin() + std::ptrdiff_t(first_node);
    const auto operand = operands.begin() + std::ptrdiff_t(first_operand);
    result.nodes.assign(node, node + std::ptrdiff_t(node_count));
    result.operands.assign(operand, operand + std::ptrdiff_t(operand_count));
    std::copy_if(written.begin(), written.end(), std::back_inserter(result.written), [&](const ggml_tensor * each) {
        return std::find(result.nodes.begin(), result.nodes.end(), each) != result.nodes.end();
    });
    return result;
}

graph_index::graph_index(const ggml_cgraph * g) : graph(g) {
    places.reserve(std::size_t(g->n_nodes));
    for (int i = 0; i < g->n_nodes; ++i) {
        places.emplace(g->nodes[i], i);
        runs.push_back({false, i});
    }
}

void graph_index::take(const fusion_match & match) {
    for (const int place : match.taken) {
        runs[std::size_t(place)] = {true, match.place()};
    }
}

int graph_index::find(const ggml_tensor * node) const {
    const auto found = places.find(node);
    return found == places.end() ? -1 : found->second;
}

static bool is_reshape(const ggml_tensor * t) {
    return t->op == GGML_OP_RESHAPE ||
           (t->op == GGML_OP_VIEW && t->src[0] != nullptr && t->view_offs == t->src[0]->view_offs && ggml_is_contiguous(t) &&
            ggml_is_contiguous(t->src[0]) && ggml_nelements(t) == ggml_nelements(t->src[0]));
}

const ggml_tensor * behind_reshapes(const graph_index & graph, const ggml_tensor * source, std::vector<int> & taken) {
    for (int place; is_reshape(source) && (place = graph.find(source)) >= 0; source = source->src[0]) {
        taken.push_back(place);
    }
    return source;
}

bool add_places(const graph_index & graph, fusion_match & match) {
    for (const ggml_tensor * node : match.nodes) {
        match.taken.push_back(graph.find(node));
    }
    return std::find(match.taken.begin(), match.taken.end(), -1) == match.taken.end();
}

void sort_nodes(const graph_index & graph, fusion_match & match) {
    std::sort(match.nodes.begin(), match.nodes.end(),
              [&](const ggml_tensor * a, const ggml_tensor * b) { return graph.find(a) < graph.find(b); });
}

bool read_before(const graph_index & graph, int place, int until) {
    const ggml_tensor * node = graph.graph->nodes[place];
    for (int i = place + 1; i < until; ++i) {
        const ggml_tensor * reader = graph.graph->nodes[i];
        if (is_empty_op(reader->op) || graph.runs_at(i) > until) {
            continue;
        }
        for (const ggml_tensor * source : reader->src) {
            if (source != nullptr && (source == node || source->view_src == node)) {
                return true;
            }
        }
    }
    return false;
}

namespace {

bool contains(const std::vector<const ggml_tensor *> & list, const ggml_tensor * tensor) {
    return std::find(list.begin(), list.end(), tensor) != list.end();
}

int kind_of(const ggml_tensor * node) {
    return node->op == GGML_OP_UNARY ? int(ggml_get_unary_op(node)) : node->op == GGML_OP_GLU ? int(ggml_get_glu_op(node)) : any_kind;
}

/// Finds the nodes of a pattern's steps, from the last one back.
class step_matcher {
public:
    step_matcher(const graph_index & index, const std::vector<fusion_step> & wanted) : graph(index), steps(wanted) {}

    bool match(const ggml_tensor * last, fusion_match & result) {
        found.nodes.assign(steps.size(), nullptr);
        if (!match_step(int(steps.size()) - 1, last)) {
            return false;
        }
        for (std::size_t i = 0; i < steps.size(); ++i) {
            if (steps[i].written || i + 1 == steps.size()) {
                found.written.push_back(found.nodes[i]);
            }
        }
        result.nodes = std::move(found.nodes);
        result.operands = std::move(found.operands);
        result.written = std::move(found.written);
        result.taken = std::move(found.taken);
        return true;
    }

private:
    bool match_step(int index, const ggml_tensor * node) {
        const fusion_step & step = steps[std::size_t(index)];
        if (found.nodes[std::size_t(index)] != nullptr) {
            return found.nodes[std::size_t(index)] == node;
        }
        const int place = graph.find(node);
        if (place < 0 || contains(found.nodes, node) || node->op != step.op || (step.kind != any_kind && kind_of(node) != step.kind)) {
            return false;
        }
        found.nodes[std::size_t(index)] = node;
        found.taken.push_back(place);
        const fusion_match before = found;
        if (match_sources(step, node, false)) {
            return true;
        }
        found = before;
        return (step.op == GGML_OP_ADD || step.op == GGML_OP_MUL) && match_sources(step, node, true);
    }

    bool match_sources(const fusion_step & step, const ggml_tensor * node, bool swapped) {
        for (std::size_t i = 0; i < GGML_MAX_SRC; ++i) {
            const ggml_tensor * source = node->src[i];
            if (i >= step.sources.size()) {
                if (source != nullptr) {
                    return false;
                }
            } else if (!match_source(step.sources[swapped && i < 2 ? 1 - i : i], source)) {
                return false;
            }
        }
        return true;
    }

    bool match_source(const step_source & wanted, const ggml_tensor * source) {
        if (source == nullptr && !wanted.optional) {
            return false;
        }
        const auto index = std::size_t(wanted.index);
        if (wanted.what == step_source::kind::operand) {
            if (found.operands.size() <= index) {
                found.operands.resize(index + 1, nullptr);
            }
            if (found.operands[index] == nullptr) {
                found.operands[index] = source;
            }
            return found.operands[index] == source;
        }
        return match_step(wanted.index, wanted.reshaped ? behind_reshapes(graph, source, found.taken) : source);
    }

    const graph_index & graph;
    const std::vector<fusion_step> & steps;
    fusion_match found;
};

/// Nothing outside may read what is elided, nothing inside may read it but through the steps, and all of it is to be computed.
bool uses_allow(const graph_index & graph, const fusion_match & match) {
    for (const int place : match.taken) {
        const ggml_tensor * node = graph.graph->nodes[place];
        const bool empty = is_empty_op(node->op);
        if (ggml_is_empty(node) || (!empty && (node->flags & GGML_TENSOR_FLAG_COMPUTE) == 0)) {
            return false;
        }
        if (contains(match.written, node)) {
            continue;
        }
        // What writes into other memory must be written, unless that memory is left out as well, as where SET_ROWS fills in a mask.
        const bool into_elided = node->view_src != nullptr && contains(match.nodes, node->view_src) && !contains(match.written, node->view_src);
        if ((node->flags & GGML_TENSOR_FLAG_OUTPUT) != 0 || (node->view_src != nullptr && !empty && !into_elided)) {
            return false;
        }
        int inside = 0;
        for (const int other : match.taken) {
            for (const ggml_tensor * source : graph.graph->nodes[other]->src) {
                inside += source == node;
            }
        }
        if (inside != ggml_node_get_use_count(graph.graph, place)) {
            return false;
        }
    }
    for (const ggml_tensor * each : match.operands) {
        if (each == nullptr) {
            continue;
        }
        if (ggml_is_empty(each)) {
            return false;
        }
        const ggml_tensor * owner = owner_of(each);
        if ((contains(match.nodes, owner) && !contains(match.written, owner)) || contains(match.nodes, each)) {
            return false;
        }
    }
    return true;
}

struct range {
    uintptr_t begin, end;

    explicit range(const ggml_tensor * t) : begin(reinterpret_cast<uintptr_t>(t->data)), end(begin + ggml_nbytes(t)) {}
    bool overlaps(const range & other) const { return begin < other.end && other.begin < end; }
};

/// Both have their n-th element in the same place, for every n.
bool same_places(const ggml_tensor * a, const ggml_tensor * b) {
    if (a->data != b->data || a->type != b->type || ggml_nelements(a) != ggml_nelements(b)) {
        return false;
    }
    return ggml_are_same_layout(a, b) || (ggml_is_contiguous(a) && ggml_is_contiguous(b));
}

/// Sources of a node that are not made within the fusion.
template <class Body>
bool every_outer_source(const fusion_match & match, const ggml_tensor * node, const Body & holds) {
    for (const ggml_tensor * source : node->src) {
        if (source != nullptr && !contains(match.nodes, source) && !contains(match.nodes, owner_of(source)) && !holds(source)) {
            return false;
        }
    }
    return true;
}

/// The place of the node that computes `source`, or -1 if it was there before.
int writer(const graph_index & graph, const ggml_tensor * source) { return graph.find(is_empty_op(source->op) ? owner_of(source) : source); }

/// The kernels read operands and write results in no particular order.
bool operands_survive(const graph_index & graph, const fusion_match & match) {
    const bool anywhere = match.pattern->reads_first != nullptr && match.pattern->reads_first(match);
    for (const ggml_tensor * result : match.written) {
        const range written(result);
        for (std::size_t i = 0; i < match.operands.size() && !anywhere; ++i) {
            const ggml_tensor * each = match.operands[i];
            if (each == nullptr || (match.pattern->targets >> i & 1) != 0) {
                continue;
            }
            if (written.overlaps(range(each)) && !((match.pattern->in_place >> i & 1) != 0 && same_places(result, each))) {
                return false;
            }
        }
        for (const ggml_tensor * other : match.written) {
            if (other != result && written.overlaps(range(other))) {
                return false;
            }
        }
    }
    // What would have been read after a step had written over it.
    for (std::size_t i = 0; i < match.nodes.size(); ++i) {
        const range made(match.nodes[i]);
        const int place = graph.find(match.nodes[i]);
        const auto intact = [&](const ggml_tensor * source) { return writer(graph, source) > place || !made.overlaps(range(source)); };
        for (std::size_t later = i + 1; later < match.nodes.size(); ++later) {
            if (!every_outer_source(match, match.nodes[later], intact)) {
                return false;
            }
        }
    }
    return true;
}

/// Nodes between the first and the last one of a fusion run before it does: none of them may depend on it, or write what it reads.
bool can_wait(const graph_index & graph, const fusion_match & match) {
    const ggml_cgraph * g = graph.graph;
    for (int between = match.taken.front() + 1; between < match.place(); ++between) {
        const ggml_tensor * other = g->nodes[between];
        if (!computes(other) || std::binary_search(match.taken.begin(), match.taken.end(), between) ||
            graph.runs_at(between) > match.place()) {
            continue;
        }
        const range made(other);
        for (const int place : match.taken) {
            const ggml_tensor * node = g->nodes[place];
            if (place > between || is_empty_op(node->op)) {
                continue;
            }
            if (!every_outer_source(match, node, [&](const ggml_tensor * source) { return !made.overlaps(range(source)); })) {
                return false;
            }
            if (!contains(match.written, node)) {
                continue;
            }
            const range written(node);
            if (written.overlaps(made)) {
                return false;
            }
            for (const ggml_tensor * source : other->src) {
                if (source != nullptr && !ggml_is_empty(source) && written.overlaps(range(source))) {
                    return false;
                }
            }
        }
    }
    return true;
}

bool all_have_memory(const ggml_cgraph * graph) {
    for (int i = 0; i < graph->n_nodes; ++i) {
        if (graph->nodes[i]->data == nullptr && !ggml_is_empty(graph->nodes[i])) {
            return false;
        }
    }
    return true;
}

}  // namespace

bool match_steps(const graph_index & graph, const std::vector<fusion_step> & steps, const ggml_tensor * last, fusion_match & match) {
    return step_matcher(graph, steps).match(last, match);
}

std::vector<fusion_match> find_fusions(const fusion_target & target, const ggml_cgraph * graph, fusion_stage stage) {
    std::vector<fusion_match> result;
    if (target.disabled("fusion") || !fusions_enabled() || (stage == fusion_stage::compute && !all_have_memory(graph))) {
        return result;
    }
    graph_index index(graph);
    for (const fusion_pattern * pattern : fusion_table()) {
        if (target.disabled(pattern->name)) {
            continue;
        }
        for (int i = graph->n_nodes - 1; i >= 0; --i) {   // backwards: of a pattern's longer and shorter forms the longer ends later
            const ggml_tensor * node = graph->nodes[i];
            if (index.fused(i) || is_empty_op(node->op) || (!pattern->find && node->op != pattern->steps.back().op)) {
                continue;
            }
            fusion_match match;
            match.pattern = pattern;
            if (!(pattern->find ? pattern->find(index, node, match) : match_steps(index, pattern->steps, node, match))) {
                continue;
            }
            std::sort(match.taken.begin(), match.taken.end());
            match.taken.erase(std::unique(match.taken.begin(), match.taken.end()), match.taken.end());
            if (std::any_of(match.taken.begin(), match.taken.end(), [&](int place) { return index.fused(place); }) ||
                match.place() != i || !uses_allow(index, match) || !pattern->guard(target, match)) {
                continue;
            }
            if (stage == fusion_stage::compute && !(operands_survive(index, match) && can_wait(index, match))) {
                continue;
            }
            index.take(match);
            result.push_back(std::move(match));
        }
    }
    std::sort(result.begin(), result.end(), [](const fusion_match & a, const fusion_match & b) { return a.place() < b.place(); });
    return result;
}

}  // namespace strata
