// ggml_backend_reg_i: the registry "strata-hip" and its devices.
#pragma once

#include <memory>
#include <vector>

#include "device.h"

namespace strata {

/// What a successful start leaves behind; never destroyed.
struct plugin {
    hip_library library;
    std::vector<std::unique_ptr<device>> devices;
    ggml_backend_reg ggml;
};

/// Starts the plugin at the first call: checks ggml, loads the HIP library, opens the devices. Later calls return the same;
/// after a failure the next call tries again. Throws a failure that says everything the user must know.
plugin & start();

/// The plugin if it has been started, otherwise nullptr.
plugin * started();

}  // namespace strata
