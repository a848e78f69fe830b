// ggml_backend_buffer_type_i and ggml_backend_buffer_i: device memory, and pinned host memory.
#pragma once

#include "ggml-backend-impl.h"
#include "runtime/gpu.h"

namespace strata {

/// The types of one device's buffers; live as long as the device.
struct buffer_types {
    ggml_backend_buffer_type device;
    ggml_backend_buffer_type host;  ///< pinned, readable and writable by the CPU
};

/// Fills `types` for `target`, of which `owner` is the ggml device.
void make_buffer_types(buffer_types & types, gpu & target, ggml_backend_dev_t owner);

/// True if the buffer is memory of that device.
bool is_buffer_of(const gpu & device, ggml_backend_buffer_t buffer);

/// True if buffers of this type are memory of that device.
bool is_type_of(const gpu & device, ggml_backend_buffer_type_t type);

}  // namespace strata
