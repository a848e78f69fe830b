// Device identity, lazily loaded kernels, checked calls.
#include "runtime/gpu.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "runtime/code_objects.h"
#include "runtime/counters.h"
#include "runtime/queue.h"
#include "runtime/settings.h"

namespace strata {

static const embedded_code_object * find_code_object(std::string_view family, const char * target) {
    for (unsigned i = 0; i < embedded_code_object_count; ++i) {
        const embedded_code_object & object = embedded_code_objects[i];
        if (std::strcmp(object.target, target) == 0 && (family.empty() || family == object.family)) {
            return &object;
        }
    }
    return nullptr;
}

static std::string targets_text() {
    std::set<std::string> targets;
    for (unsigned i = 0; i < embedded_code_object_count; ++i) {
        targets.insert(embedded_code_objects[i].target);
    }
    std::string text;
    for (const std::string & target : targets) {
        text += (text.empty() ? "" : ", ") + target;
    }
    return text.empty() ? "none" : text;
}

gpu::gpu(const hip_library & from, int index, int hip_ordinal)
    : library(from), hip(from.api), ordinal(hip_ordinal), name(format("STRATA%d", index)) {
    hipDeviceProp_tR0600 properties;
    std::memset(&properties, 0, sizeof(properties));
    description = format("device %d", ordinal);
    check(hip.hipGetDevicePropertiesR0600(&properties, ordinal), "hipGetDevicePropertiesR0600");
    properties.name[sizeof(properties.name) - 1] = '\0';
    description = properties.name;

    char arch[256];
    std::memcpy(arch, reinterpret_cast<const char *>(&properties) + hip_prop_gcn_arch_name_offset, sizeof(arch));
    arch[sizeof(arch) - 1] = '\0';
    if (char * features = std::strchr(arch, ':')) {
        *features = '\0';
    }
    std::snprintf(caps.arch, sizeof(caps.arch), "%.31s", arch);
    if (find_code_object("", caps.arch) == nullptr) {
        throw failure(format("device %d (%s) is %s, for which this build has no code objects (it has: %s). "
            "Build with -DSTRATA_TARGETS=%s to try it.", ordinal, description.c_str(), caps.arch, targets_text().c_str(), caps.arch));
    }

    // Matrix instructions as wmma.h uses them; STRATA_DISABLE=wmma: as on a card without them.
    caps.wmma = std::strncmp(caps.arch, "gfx11", 5) == 0 && settings::from_environment().disabled.count("wmma") == 0;
    if (std::strncmp(caps.arch, "gfx9", 4) == 0) {
        throw failure(format("device %d (%s) is %s, whose waves have 64 lanes: not all kernels can do with those yet", ordinal,
                             description.c_str(), caps.arch));
    }

    int units = 0;
    check(hip.hipDeviceGetAttribute(&units, hip_attribute_compute_units, ordinal), "hipDeviceGetAttribute");
    caps.compute_units = static_cast<uint32_t>(units);

    char id[64] = "";
    if (hip.hipDeviceGetPCIBusId(id, sizeof(id), ordinal) == hipSuccess) {
        pci_id = id;
        std::transform(pci_id.begin(), pci_id.end(), pci_id.begin(), [](unsigned char c) { return std::tolower(c); });
    }
    activate();
    transfers = std::make_unique<queue>(*this);
}

gpu::~gpu() = default;

void gpu::activate() const {
    check(hip.hipSetDevice(ordinal), "hipSetDevice");
}

void gpu::memory(std::size_t * free, std::size_t * total) const {
    activate();
    check(hip.hipMemGetInfo(free, total), "hipMemGetInfo");
}

kernel_handle gpu::kernel(const char * family, const char * kernel_name) {
    std::lock_guard lock(kernel_mutex);
    const std::string key = std::string(family) + "/" + kernel_name;
    if (const auto found = kernels.find(key); found != kernels.end()) {
        return {found->second, found->first.c_str()};
    }
    auto module = modules.find(family);
    if (module == modules.end()) {
        const embedded_code_object * object = find_code_object(family, caps.arch);
        if (object == nullptr) {
            throw failure(format("kernel %s: this build has no code object of that family for %s", key.c_str(), caps.arch));
        }
        hipModule_t loaded = nullptr;
        check(hip.hipModuleLoadData(&loaded, object->begin), "hipModuleLoadData", static_cast<std::size_t>(object->end - object->begin),
            (std::string("code object ") + family + " for " + caps.arch).c_str());
        module = modules.emplace(object->family, loaded).first;
    }
    hipFunction_t function = nullptr;
    check(hip.hipModuleGetFunction(&function, module->second, kernel_name), "hipModuleGetFunction", 0,
        ("kernel " + key + " for " + caps.arch).c_str());
    return {function, kernels.emplace(key, function).first->first.c_str()};
}

void gpu::wait_for_queues() {
    std::lock_guard lock(queues_mutex);
    for (queue * live : queues) {
        live->synchronize_if_busy();
    }
}

void gpu::add(queue * live) {
    std::lock_guard lock(queues_mutex);
    queues.insert(live);
}

void gpu::remove(queue * dead) {
    std::lock_guard lock(queues_mutex);
    queues.erase(dead);
}

queue & gpu::transfer_queue() {
    return *transfers;
}

void gpu::finish_transfer() {
    transfers->synchronize();
}

static const char * remedy(hipError_t error) {
    switch (error) {
        case hipErrorOutOfMemory:
            return "Use a smaller context, batch or model, or fewer layers on the device; on an APU the share of system memory the GPU "
                   "may use is set by the kernel parameters ttm.pages_limit and amdgpu.gttsize.";
        case hipErrorIllegalAddress:
        case hipErrorLaunchFailure:
            return "A kernel failed, and with it all work queued on the device; with STRATA_SYNC=1 the message names the graph node. "
                   "The device can be used again in a new process.";
        case hipErrorNoBinaryForGpu:
        case hipErrorInvalidImage:
            return "The code object does not fit this device: rebuild with -DSTRATA_TARGETS set to its arch.";
        case hipErrorLaunchTimeOut:
            return "The driver stopped a kernel that ran too long; the kernel log says more.";
        default:
            return "The kernel log (dmesg) may say more.";
    }
}

void gpu::fail(hipError_t error, const char * call, std::size_t size, const char * what) const {
    std::string sentence;
    if (library.failure_message != nullptr && library.failure_message() != nullptr) {
        sentence = library.failure_message();
    }
    hip.hipGetLastError();  // a handled error must not surface in a later call
    std::string text = call;
    if (size != 0) {
        text += " of " + readable_size(size);
    }
    if (*what != '\0') {
        text += std::string(" (") + what + ")";
    }
    text += format(" on %s (%s%s%s) failed: %s (%s). ", name.c_str(), description.c_str(), *caps.arch ? ", " : "", caps.arch,
        hip.hipGetErrorName(error), hip.hipGetErrorString(error));
    if (error == hipErrorOutOfMemory) {
        std::size_t free = 0;
        std::size_t total = 0;
        if (hip.hipMemGetInfo(&free, &total) == hipSuccess) {
            text += readable_size(free) + " of " + readable_size(total) + " are free. ";
        }
    }
    if (!sentence.empty()) {
        text += sentence + (sentence.ends_with('.') ? " " : ". ");
    }
    throw failure(text + remedy(error), error == hipErrorOutOfMemory ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED);
}

device_memory::device_memory(gpu & owner, std::size_t size, const char * what) : device(owner), bytes(size) {
    device.activate();
    device.check(device.hip.hipMalloc(&address, size), "hipMalloc", size, what);
    count(counter::allocated_bytes, static_cast<int64_t>(bytes));
}

device_memory::~device_memory() {
    const ggml_status waited = guarded([&] {
        device.activate();
        device.wait_for_queues();  // running work may still use it
    });
    const hipError_t error = device.hip.hipFree(address);
    if (waited == GGML_STATUS_SUCCESS && !device.lost()) {
        guarded([&] { device.check(error, "hipFree", bytes); });
    }
    count(counter::allocated_bytes, -static_cast<int64_t>(bytes));
}

}  // namespace strata
