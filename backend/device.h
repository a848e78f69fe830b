// ggml_backend_device_i: one GPU as ggml sees it.
#pragma once

#include "buffer.h"

namespace strata {

/// A ggml device with everything that lives as long as it does, which is as long as the process.
struct device {
    device(const hip_library & library, int index, int ordinal, ggml_backend_reg_t registry);
    device(const device &) = delete;

    gpu target;
    buffer_types types;
    ggml_backend_device ggml;
};

}  // namespace strata
