// The quantized types that kernels decode.
#pragma once

#include <cstdint>

#include "ggml.h"

namespace strata {

/// Name of a quantized type in kernel names ("q4_K"), or nullptr if no kernel decodes it.
const char * quantized_type_name(ggml_type type);

/// Lanes that make a block of a type, or 0 if no kernel quantizes to it.
uint32_t lanes_of_quantizer(ggml_type type);

}  // namespace strata
