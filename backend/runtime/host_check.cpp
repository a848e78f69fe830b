// Version and layout of the process's ggml: the plugin reads private structs, so both must be the pinned ones.
#include "runtime/host_check.h"

#include <cstring>

#include "ggml-impl.h"
#include "runtime/error.h"

namespace strata {

constexpr std::size_t object_size = 32;  // ggml_object, private to ggml.c

static constexpr std::size_t padded(std::size_t size, std::size_t to) {
    return (size + to - 1) / to * to;
}

/// What ggml_graph_overhead_custom(0) is for our ggml_cgraph: a graph without nodes has a hash table of two slots.
static constexpr std::size_t empty_graph_overhead() {
    const std::size_t use_counts = sizeof(ggml_cgraph) + 2 * sizeof(int32_t);
    const std::size_t keys = padded(use_counts, sizeof(void *)) + 2 * sizeof(ggml_tensor *);
    return object_size + padded(keys + sizeof(ggml_bitset_t), GGML_MEM_ALIGN);
}

static void expect(const char * what, std::size_t ours, std::size_t theirs) {
    if (ours != theirs) {
        throw failure(format("this plugin was built for ggml %s; the ggml of this process also says %s but its %s differs "
            "(%zu here, %zu there). Build the plugin against the same sources.", STRATA_GGML_VERSION, ggml_version(), what, ours, theirs));
    }
}

void check_host_ggml() {
    if (std::strcmp(ggml_version(), STRATA_GGML_VERSION) != 0) {
        throw failure(format("this plugin was built for ggml %s, but this process has ggml %s. "
            "Install llama-cpp-python %s, or build the plugin against the sources of the version in use.",
            STRATA_GGML_VERSION, ggml_version(), STRATA_LLAMA_CPP_PYTHON_VERSION));
    }
    expect("ggml_tensor size", object_size + sizeof(ggml_tensor), ggml_tensor_overhead());
    expect("ggml_cgraph size", empty_graph_overhead(), ggml_graph_overhead_custom(0, false));
    const struct {
        ggml_op op;
        const char * name;
    } ops[] = {
        {GGML_OP_ADD, "ADD"}, {GGML_OP_RMS_NORM, "RMS_NORM"}, {GGML_OP_MUL_MAT, "MUL_MAT"}, {GGML_OP_SET_ROWS, "SET_ROWS"},
        {GGML_OP_FLASH_ATTN_EXT, "FLASH_ATTN_EXT"}, {GGML_OP_GLU, "GLU"},
    };
    for (const auto & each : ops) {
        expect("list of operations", 0, static_cast<std::size_t>(std::strcmp(ggml_op_name(each.op), each.name) != 0));
    }
    expect("q4_K block", 144, ggml_type_size(GGML_TYPE_Q4_K));
    expect("q6_K block", 210, ggml_type_size(GGML_TYPE_Q6_K));
    expect("q8_0 block", 34, ggml_type_size(GGML_TYPE_Q8_0));
}

}  // namespace strata
