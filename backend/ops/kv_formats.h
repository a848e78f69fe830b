// How kernels decode the rows of a key/value cache.
#pragma once

#include <optional>

#include "ggml.h"
#include "strata/args/kv_format.h"

namespace strata {

/// The format of a type, or nothing if no attention kernel decodes it.
std::optional<kv_format> find_kv_format(ggml_type type);

}  // namespace strata
