// ggml_backend_i: one queue of work on a device.
#pragma once

#include "ggml-backend-impl.h"
#include "runtime/gpu.h"

namespace strata {

/// A new backend instance, or nullptr after reporting why.
ggml_backend_t make_backend(gpu & target, ggml_backend_dev_t owner);

/// Events for device_i: made on `target`, recorded and awaited by backends.
ggml_backend_event_t make_event(gpu & target, ggml_backend_dev_t owner);
void free_event(gpu & target, ggml_backend_event_t event);
void synchronize_event(gpu & target, ggml_backend_event_t event);

}  // namespace strata
