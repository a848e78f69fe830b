// The quantized types that kernels decode.
#pragma once

#include "ggml.h"

namespace strata {

/// Name of a quantized type in kernel names ("q4_K"), or nullptr if no kernel decodes it.
const char * quantized_type_name(ggml_type type);

}  // namespace strata
