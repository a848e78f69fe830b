// What a node makes of one tensor and later nodes can use as well: activations quantized for several products, pairs of tokens and slots
// sorted by expert. It lives until something writes to the tensor.
#pragma once

#include <vector>

#include "ops/op.h"

namespace strata {

/// The names under which planners share, and under which they make what is shared ahead; each is a switch in STRATA_DISABLE.
constexpr const char * shared_names[] = {"shared_q8_1", "shared_routing", "rms_norm_q8_1", "glu_q8_1", "gate_q8_1", "get_rows_q8_1",
                                        "hc_pre_q8_1"};

/// Which results exist, and where in a piece of memory of their own. Sizes and addresses in bytes.
class shared_results {
public:
    /// The address of the result of this name, source and parameters, or nullptr.
    void * find(const char * name, const ggml_tensor * source, std::initializer_list<uint64_t> parameters) const;

    /// The end of the lowest free `size` bytes, counted from `base`.
    std::size_t end_of_space(const void * base, std::size_t size) const;

    /// Keeps a result of `size` bytes that ends `end` bytes after `base`; returns its address. The oldest gives way where there are many.
    /// `fresh`: made of what the current node writes.
    void * add(const char * name, const ggml_tensor * source, std::initializer_list<uint64_t> parameters, void * base, std::size_t end,
               std::size_t size, bool fresh);

    /// Forgets what was made of this memory, unless it is fresh.
    void overwritten(const ggml_tensor * result);

    /// The current node is done: nothing is fresh any more.
    void settle();

    void clear() { results.clear(); }

private:
    struct entry {
        const char * name;
        ggml_tensor source;   ///< as it was: only type, shape, strides and address count
        std::vector<uint64_t> parameters;
        uintptr_t begin, end;
        bool fresh;
    };
    std::vector<entry> results;   // oldest first
};

}  // namespace strata
