// How often each fusion was applied, and whether fusions are on: what llama.cpp's test-fusion reads and sets.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace strata {

/// Off between ggml_backend_fusion_set_enabled(..., false) and the next call with true. Graphs planned before keep their plans only
/// while this has the value it had then.
bool fusions_enabled();

/// Adds to the count of what is called `label`: a pattern's name, or the name of what a planner shares between nodes.
void count_fusion(const char * label, uint64_t times);

/// Times that a fusion was applied since the library was loaded; false if there is none of that name.
bool fusions_counted(std::string_view label, uint64_t * times);

/// The names of all fusions, and of what planners share.
const std::vector<const char *> & fusion_labels();

/// The function that ggml_backend_reg_get_proc_address() gives for one of the names ggml_backend_fusion_*, or nullptr.
void * fusion_proc_address(std::string_view name);

}  // namespace strata
