// The registry, and the two functions that ggml looks for in a backend library.
#include "plugin.h"

#include <mutex>

#include "ggml-impl.h"
#include "plan/fusion_stats.h"
#include "runtime/host_check.h"
#include "runtime/kfd.h"
#include "runtime/settings.h"
#include "switches.h"

namespace strata {

namespace {

const char * get_name(ggml_backend_reg_t) {
    return "strata-hip";
}

plugin & of(ggml_backend_reg_t registry) {
    return *static_cast<plugin *>(registry->context);
}

std::size_t get_device_count(ggml_backend_reg_t registry) {
    return of(registry).devices.size();
}

ggml_backend_dev_t get_device(ggml_backend_reg_t registry, std::size_t index) {
    return index < of(registry).devices.size() ? &of(registry).devices[index]->ggml : nullptr;
}

/// Shown by llama.cpp in its system information.
ggml_backend_feature * get_features(ggml_backend_reg_t registry) {
    static std::vector<ggml_backend_feature> features;
    static std::string disabled;
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    if (features.empty()) {
        const plugin & self = of(registry);
        features.push_back({"ARCH", self.devices.front()->target.caps.arch});
        features.push_back({"RUNTIME", self.library.kind.c_str()});
        for (const std::string & name : settings::from_environment().disabled) {
            disabled += (disabled.empty() ? "" : ",") + name;
        }
        if (!disabled.empty()) {
            features.push_back({"DISABLED", disabled.c_str()});
        }
        features.push_back({nullptr, nullptr});
    }
    return features.data();
}

void * get_proc_address(ggml_backend_reg_t, const char * name) {
    if (std::string_view(name) == "ggml_backend_get_features") {
        return reinterpret_cast<void *>(get_features);
    }
    return fusion_proc_address(name);
}

std::mutex start_mutex;
plugin * running = nullptr;

std::unique_ptr<plugin> make_plugin() {
    check_host_ggml();
    check_switches();
    auto made = std::make_unique<plugin>();
    made->library = load_hip_library();
    made->ggml = {GGML_BACKEND_API_VERSION, {get_name, get_device_count, get_device, get_proc_address}, made.get()};
    int count = 0;
    made->library.api.hipGetDeviceCount(&count);
    std::string refused;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        try {
            made->devices.push_back(std::make_unique<device>(made->library, static_cast<int>(made->devices.size()), ordinal, &made->ggml));
        } catch (const failure & error) {
            refused += std::string("\n    ") + error.what();
        }
    }
    if (made->devices.empty()) {
        throw failure("no supported GPU. " + made->library.path + " lists:" + refused + "\n  Driver: " + describe(look_at_kfd()) + ".\n  " +
            emulator_hint);
    }
    if (!refused.empty()) {
        GGML_LOG_INFO("strata-hip: devices not used:%s\n", refused.c_str());
    }
    return made;
}

}  // namespace

plugin & start() {
    std::lock_guard lock(start_mutex);
    if (running == nullptr) {
        running = make_plugin().release();
    }
    return *running;
}

plugin * started() {
    std::lock_guard lock(start_mutex);
    return running;
}

}  // namespace strata

extern "C" {

/// The registry, or NULL after logging why; strata_hip_last_error() has the same message.
__attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void) {
    ggml_backend_reg_t registry = nullptr;
    strata::guarded([&] { registry = &strata::start().ggml; });
    return registry;
}

/// Never 0: a machine without a supported GPU is told so by ggml_backend_init.
__attribute__((visibility("default"))) int ggml_backend_score(void) {
    return 100;
}

}
