// Preloaded (LD_PRELOAD) into programs of llama.cpp.
//
// Loads all ggml backends before main, the one that GGML_BACKEND_PATH names included: most programs do so only when their
// arguments name a device, some never.
//
// STRATA_REFUSALS=print  Writes to stderr what the plugin is asked for and refuses, once each:
//     @refused <tab> op <tab> the tensor and its sources <tab> reason
// STRATA_REFUSALS=all    Has it refuse everything, which makes test-backend-ops list its cases without running any. What it
//     would have refused is written each time it is asked.
// STRATA_CLEAR_BUFFERS=1 Fills what ggml_backend_alloc_ctx_tensors gives out with zeros. test-backend-ops --test-file leaves the guards
//     around its tensors and what lies between the rows of its views uninitialised, and takes a NaN there for a failure.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

#include <dlfcn.h>

#include "ggml-alloc.h"
#include "ggml-backend-impl.h"
#include "ggml-backend.h"

namespace {

bool (*real_supports_op)(ggml_backend_dev_t, const ggml_tensor *) = nullptr;
const char * (*refusal_of)(const ggml_tensor *) = nullptr;
bool refuse_all = false;

/// "f32[64,2,1,1]"
std::string describe(const ggml_tensor * tensor) {
    std::string text = ggml_type_name(tensor->type);
    for (int i = 0; i < GGML_MAX_DIMS; ++i) {
        text += (i == 0 ? "[" : ",") + std::to_string(tensor->ne[i]);
    }
    return text + (ggml_is_contiguous(tensor) ? "]" : "]*");
}

bool supports_op(ggml_backend_dev_t device, const ggml_tensor * op) {
    if (real_supports_op(device, op)) {
        return !refuse_all;
    }
    std::string line = std::string("@refused\t") + ggml_op_desc(op) + "\t" + describe(op) + " <-";
    for (const ggml_tensor * source : op->src) {
        line += source != nullptr ? " " + describe(source) : "";
    }
    const char * reason = refusal_of != nullptr ? refusal_of(op) : nullptr;
    line += std::string("\t") + (reason != nullptr ? reason : "?") + "\n";
    static std::mutex mutex;
    static auto * told = new std::set<std::string>;
    std::lock_guard lock(mutex);
    if (refuse_all || told->insert(line).second) {
        std::fputs(line.c_str(), stderr);
    }
    return false;
}

__attribute__((constructor)) void load() {
    ggml_backend_load_all();
    const char * wanted = std::getenv("STRATA_REFUSALS");
    const char * path = std::getenv("GGML_BACKEND_PATH");
    if (wanted == nullptr || path == nullptr) {
        return;
    }
    refuse_all = std::strcmp(wanted, "all") == 0;
    if (void * plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD)) {
        refusal_of = reinterpret_cast<decltype(refusal_of)>(dlsym(plugin, "strata_hip_refusal"));
    }
    for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (std::strncmp(ggml_backend_dev_name(device), "STRATA", 6) == 0) {
            real_supports_op = device->iface.supports_op;
            device->iface.supports_op = supports_op;
        }
    }
}

}  // namespace

extern "C" ggml_backend_buffer_t ggml_backend_alloc_ctx_tensors(ggml_context * ctx, ggml_backend_t backend) {
    static const auto real = reinterpret_cast<decltype(&ggml_backend_alloc_ctx_tensors)>(dlsym(RTLD_NEXT, "ggml_backend_alloc_ctx_tensors"));
    ggml_backend_buffer_t buffer = real(ctx, backend);
    if (buffer != nullptr && std::getenv("STRATA_CLEAR_BUFFERS") != nullptr) {
        ggml_backend_buffer_clear(buffer, 0);
    }
    return buffer;
}
