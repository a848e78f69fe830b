// Finds and opens the HIP library: STRATA_RUNTIME, STRATA_HIP_LIBRARY, STRATA_EMULATOR_LIBRARY.
#include "runtime/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "runtime/error.h"
#include "runtime/kfd.h"

namespace strata {

const char * const emulator_hint =
    "To run on the CPU instead, in the gfx1151 emulator (slow, for tests and machines without the chip), ask for it: "
    "STRATA_RUNTIME=emulator, or device=\"emulator\" in Python, or --runtime emulator on the command line.";

static constexpr int oldest_hip = 60200000;

static std::string setting(const char * name) {
    const char * value = std::getenv(name);
    return value ? value : "";
}

static std::string hip_version_text(int version) {
    return format("%d.%d.%d", version / 10000000, version / 100000 % 100, version % 100000);
}

/// The folder of this very library.
static std::string own_folder() {
    Dl_info info;
    if (dladdr(reinterpret_cast<const void *>(&load_hip_library), &info) == 0 || info.dli_fname == nullptr) {
        return ".";
    }
    const std::string path = info.dli_fname;
    const auto slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash);
}

static void load_functions(void * handle, const std::string & name, hip_api & api) {
    std::string missing;
    const auto find = [&](const char * function) {
        void * address = dlsym(handle, function);
        if (address == nullptr) {
            missing += (missing.empty() ? "" : ", ") + std::string(function);
        }
        return address;
    };
#define STRATA_X(result, name, parameters) api.name = reinterpret_cast<result(*) parameters>(find(#name));
    STRATA_HIP_FUNCTIONS(STRATA_X)
#undef STRATA_X
#define STRATA_X(result, name, parameters) api.name = reinterpret_cast<result(*) parameters>(dlsym(handle, #name));
    STRATA_HIP_OPTIONAL_FUNCTIONS(STRATA_X)
#undef STRATA_X
    if (!missing.empty()) {
        throw failure(format("%s is too old or not a HIP library: it lacks %s; ROCm 6.2 or newer is needed", name.c_str(), missing.c_str()));
    }
}

static std::string loaded_path(void * symbol, const std::string & otherwise) {
    Dl_info info;
    return dladdr(symbol, &info) != 0 && info.dli_fname ? info.dli_fname : otherwise;
}

/// Opens one library and asks it for its version. Throws a failure naming the file.
static hip_library open_library(const std::string & name, bool emulated) {
    void * handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char * why = dlerror();
        throw failure(why ? why : name + ": cannot be loaded");
    }
    hip_library library;
    load_functions(handle, name, library.api);
    library.emulated = emulated;
    library.kind = emulated ? "emulator" : "hip";
    library.path = loaded_path(reinterpret_cast<void *>(library.api.hipInit), name);
    if (emulated) {
        library.failure_message = reinterpret_cast<const char * (*)()>(dlsym(handle, "strata_emulator_last_message"));
    }
    library.api.hipRuntimeGetVersion(&library.runtime_version);
    library.api.hipDriverGetVersion(&library.driver_version);
    if (!emulated && library.runtime_version < oldest_hip) {
        throw failure(format("%s is HIP %s, too old: ROCm 6.2 or newer is needed", library.path.c_str(),
            hip_version_text(library.runtime_version).c_str()));
    }
    return library;
}

/// Throws a failure unless the library has a device.
static void require_device(const hip_library & library) {
    hipError_t error = library.api.hipInit(0);
    int devices = 0;
    const char * call = "hipInit";
    if (error == hipSuccess) {
        call = "hipGetDeviceCount";
        error = library.api.hipGetDeviceCount(&devices);
    }
    if (error != hipSuccess) {
        throw failure(format("%s was loaded, but %s failed: %s (%s)", library.path.c_str(), call,
            library.api.hipGetErrorName(error), library.api.hipGetErrorString(error)));
    }
    if (devices == 0) {
        throw failure(library.path + " was loaded, but it lists no device");
    }
}

static std::vector<std::string> hip_candidates() {
    if (const std::string path = setting("STRATA_HIP_LIBRARY"); !path.empty()) {
        return {path};
    }
    std::vector<std::string> names = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"};
    if (const std::string rocm = setting("ROCM_PATH"); !rocm.empty()) {
        names.push_back(rocm + "/lib/libamdhip64.so");
    }
    names.push_back("/opt/rocm/lib/libamdhip64.so");
    names.push_back("libamdhip64.so.5");  // only to say that it is too old
    return names;
}

static hip_library load_hip() {
    std::string tried;
    for (const std::string & name : hip_candidates()) {
        try {
            hip_library library = open_library(name, false);
            require_device(library);
            return library;
        } catch (const failure & error) {
            const bool named = std::string_view(error.what()).starts_with(name);
            tried += "\n    " + (named ? "" : name + ": ") + error.what();
        }
    }
    throw failure("no usable AMD GPU.\n"
        "  HIP libraries tried (STRATA_HIP_LIBRARY or ROCM_PATH can name another):" + tried + "\n"
        "  Driver: " + describe(look_at_kfd()) + ".\n  " + emulator_hint);
}

static hip_library load_emulator() {
    std::string name = setting("STRATA_EMULATOR_LIBRARY");
    if (name.empty()) {
        name = own_folder() + "/libstrata-emulator.so";
    }
    try {
        hip_library library = open_library(name, true);
        require_device(library);
        return library;
    } catch (const failure & error) {
        throw failure(format("the emulator cannot be used: %s. STRATA_EMULATOR_LIBRARY can name another file.", error.what()));
    }
}

hip_library load_hip_library() {
    const std::string runtime = setting("STRATA_RUNTIME");
    if (runtime == "emulator") {
        return load_emulator();
    }
    if (runtime.empty() || runtime == "auto" || runtime == "hip") {
        return load_hip();
    }
    throw failure("STRATA_RUNTIME=" + runtime + " is not known; use auto, hip or emulator.");
}

}  // namespace strata
