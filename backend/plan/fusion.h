// Fusions: several nodes of a graph computed by one launch, with the bits that a launch each would give.
//
// Every fusion is declared once, as a pattern in a file fuse_*.cpp, and listed in the table of fusion_table.cpp. graph_optimize and
// graph_compute both ask find_fusions(), which reads that table alone, so they cannot disagree on what belongs together.
//
// A fusion runs where its last node stands. What it leaves out ("elided") is never written, so nothing else may read it: use counts,
// OUTPUT flags and views are checked here for all patterns alike. So is memory: ggml's allocator may have given the memory of an operand
// to a result, or to a node that now runs earlier than the fusion.
#pragma once

#include <initializer_list>
#include <unordered_map>
#include <vector>

#include "ggml-impl.h"
#include "ops/op.h"
#include "runtime/settings.h"

namespace strata {

/// What a source of a step is: the result of an earlier step, or an operand of the fusion. The same operand number means the same tensor.
struct step_source {
    enum class kind : uint8_t { result, operand } what;
    int index;
    bool reshaped = false;   ///< may have another shape, of as many elements in the same order
    bool optional = false;   ///< may be absent: the operand is then null
};
constexpr step_source result_of(int step) { return {step_source::kind::result, step}; }
constexpr step_source reshaped(int step) { return {step_source::kind::result, step, true}; }
constexpr step_source operand(int number) { return {step_source::kind::operand, number}; }
constexpr step_source optional_operand(int number) { return {step_source::kind::operand, number, false, true}; }

constexpr int any_kind = -1;

/// A node of a pattern. Sources that it has beyond those listed must be absent. ADD and MUL match in either order of their sources.
struct fusion_step {
    ggml_op op;
    std::vector<step_source> sources;
    bool written = false;   ///< its result is written; that of the last step always is
    int kind = any_kind;    ///< ggml_unary_op or ggml_glu_op
};

struct fusion_pattern;

/// Nodes that one launch computes.
struct fusion_match {
    const fusion_pattern * pattern = nullptr;
    std::vector<const ggml_tensor *> nodes;      ///< of the steps, in their order
    std::vector<const ggml_tensor *> operands;   ///< null: an optional one that is absent
    std::vector<const ggml_tensor *> written;    ///< those of `nodes` whose results are written; the last node is one of them
    std::vector<int> taken;                      ///< places in the graph of the nodes and of the views between them, ascending

    /// Where in the graph it runs.
    int place() const { return taken.back(); }

    /// Nodes, operands, results and places of another match come behind those of this one.
    void append(const fusion_match & other);

    /// What append() has joined: so many nodes and operands, from the first ones given on, and the results among the nodes. Without places.
    fusion_match part(std::size_t first_node, std::size_t node_count, std::size_t first_operand, std::size_t operand_count) const;
};

/// A graph, and where its nodes stand.
class graph_index {
public:
    explicit graph_index(const ggml_cgraph * graph);

    /// The place of a node, or -1 if the graph does not have it.
    int find(const ggml_tensor * node) const;

    /// Whether a fusion found so far has the node at a place, and where that node runs.
    bool fused(int place) const { return runs[std::size_t(place)].fused; }
    int runs_at(int place) const { return runs[std::size_t(place)].at; }

    /// Notes that a fusion takes its nodes.
    void take(const fusion_match & match);

    const ggml_cgraph * const graph;

private:
    struct run {
        bool fused;
        int at;
    };
    std::unordered_map<const ggml_tensor *, int> places;
    std::vector<run> runs;
};

/// What a guard may know besides the nodes.
struct fusion_target {
    const device_caps & caps;
    const settings & options;

    bool disabled(const char * name) const { return options.disabled.count(name) != 0; }
};

struct fusion_pattern {
    const char * name;                           ///< its switch in STRATA_DISABLE, and its label in counts

    /// In the order in which they are computed; the last one is the last node.
    std::vector<fusion_step> steps;

    /// Bit n: kernels read each element of operand n before they write to its place, so a result may have the same memory, element by element.
    uint32_t in_place = 0;

    /// Bit n: operand n is what a result is written into, as the cache of SET_ROWS; kernels do not read it.
    uint32_t targets = 0;

    /// True if the launches of this match read all operands before they write anything, so that results may lie anywhere. Null: never.
    bool (*reads_first)(const fusion_match & match) = nullptr;

    /// True if the kernels compute exactly these types, shapes and strides. Tensors may have no data yet.
    bool (*guard)(const fusion_target & target, const fusion_match & match) = nullptr;

    /// Adds the launches.
    void (*plan)(planner & plan, const fusion_match & match) = nullptr;

    /// For patterns of no fixed number of nodes, instead of `steps`: fills nodes, operands, written and taken (in any order) of a match
    /// whose last node is `last`; false if there is none. Use counts and memory are checked by the caller.
    bool (*find)(const graph_index & graph, const ggml_tensor * last, fusion_match & match) = nullptr;
};

/// All patterns, those to be tried first at the front.
const std::vector<const fusion_pattern *> & fusion_table();

/// `operands` as the bits of fusion_pattern::in_place and targets.
constexpr uint32_t operand_bits(std::initializer_list<int> operands) {
    uint32_t bits = 0;
    for (const int each : operands) {
        bits |= 1u << each;
    }
    return bits;
}

/// Fills nodes, operands, written and taken of a match of these steps whose last node is `last`; false if there is none.
bool match_steps(const graph_index & graph, const std::vector<fusion_step> & steps, const ggml_tensor * last, fusion_match & match);

/// What `source` is reshaped from, or itself. The reshapes between, if they are nodes of the graph, are added to `taken`.
const ggml_tensor * behind_reshapes(const graph_index & graph, const ggml_tensor * source, std::vector<int> & taken);

/// Adds the places of a match's nodes to those that are taken. False if any that is taken is none of the graph.
bool add_places(const graph_index & graph, fusion_match & match);

/// Puts the nodes of a match, which have been found from the last one backwards, into the order of the graph.
void sort_nodes(const graph_index & graph, fusion_match & match);

/// True if there is such a node, of this op.
inline bool is(const ggml_tensor * t, ggml_op op) { return t != nullptr && t->op == op; }

/// True if a node that runs before the node at `until` reads what the node at `place` computes.
bool read_before(const graph_index & graph, int place, int until);

/// The tensor that has the memory of this one: itself, or what it is a view of.
inline const ggml_tensor * owner_of(const ggml_tensor * t) { return t->view_src ? t->view_src : t; }

/// How much is known of the tensors.
enum class fusion_stage {
    optimize,   ///< no memory has been given out yet
    compute,    ///< all tensors have their memory, which is checked
};

/// The fusions of a graph, in the order of their places; no node is in two of them.
std::vector<fusion_match> find_fusions(const fusion_target & target, const ggml_cgraph * graph, fusion_stage stage);

/// True if `op` computes nothing: NONE, VIEW, RESHAPE, PERMUTE, TRANSPOSE.
bool is_empty_op(ggml_op op);

/// True if a node of a graph is to be computed: it has the flag, elements, and an op that computes something.
bool computes(const ggml_tensor * node);

}  // namespace strata
