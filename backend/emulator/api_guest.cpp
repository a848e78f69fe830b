// The calls of a program that HIP's own compiler made: its device code is embedded in its host objects, registered when they
// are loaded, and launched by the address of a host function. Code objects are loaded at the first launch out of them.
#include "api.h"
#include "memory.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

namespace strata {

using namespace emulator;

namespace {

constexpr machine_properties device;
constexpr char bundle_magic[] = "__CLANG_OFFLOAD_BUNDLE__";

/// The device code of a host object. Its address is the handle that the object gets.
struct fat_binary {
    const void * bundle = nullptr;
    std::shared_ptr<loaded_module> module;
};
struct registered_function {
    fat_binary * from = nullptr;
    std::string name;
};

struct registry {
    std::mutex lock;
    std::vector<std::unique_ptr<fat_binary>> binaries;
    std::map<const void *, registered_function> functions;  ///< by host function
    static registry & instance() {
        static registry & all = *new registry;
        return all;
    }
};

template <class T>
T read_at(const void * base, uint64_t offset) {
    T value;
    std::memcpy(&value, static_cast<const char *>(base) + offset, sizeof(T));
    return value;
}

/// The code object for this device in a bundle: its address and size, or the error with its message set.
hip_error find_in_bundle(const void * bundle, const void *& image, size_t & size) {
    constexpr size_t magic_size = sizeof(bundle_magic) - 1;
    if (std::memcmp(bundle, "CCOB", 4) == 0) {
        return fail(hipErrorInvalidImage, "the program's device code is a compressed bundle; build it with --no-offload-compress");
    }
    if (std::memcmp(bundle, "\177ELF", 4) == 0) {
        image = bundle;
        size = 0;
        return hipSuccess;
    }
    if (std::memcmp(bundle, bundle_magic, magic_size) != 0) {
        return fail(hipErrorInvalidImage, "the program's device code is neither a clang offload bundle nor an ELF file");
    }
    std::string others;
    uint64_t at = magic_size + 8;
    for (uint64_t n = read_at<uint64_t>(bundle, magic_size); n != 0; --n) {
        const auto offset = read_at<uint64_t>(bundle, at), bytes = read_at<uint64_t>(bundle, at + 8);
        const auto length = read_at<uint64_t>(bundle, at + 16);
        const std::string_view triple(static_cast<const char *>(bundle) + at + 24, length);
        if (triple.starts_with("hip") && triple.ends_with(std::string("-") + device.arch)) {
            image = static_cast<const char *>(bundle) + offset;
            size = bytes;
            return hipSuccess;
        }
        if (triple.starts_with("hip")) {
            others += (others.empty() ? "" : ", ") + std::string(triple);
        }
        at += 24 + length;
    }
    return fail(hipErrorNoBinaryForGpu, std::string("the program has no device code for ") + device.arch +
                    (others.empty() ? std::string() : ", but for " + others));
}

/// The kernel behind a host function; loads its code object if that has not happened yet.
hip_error find_kernel(const char * call, const void * host_function, std::shared_ptr<loaded_module> & module, loaded_kernel & kernel) {
    registry & all = registry::instance();
    std::lock_guard guard(all.lock);
    const auto found = all.functions.find(host_function);
    if (found == all.functions.end()) {
        return fail(hipErrorInvalidDeviceFunction, format("%s: %p is no kernel that a loaded program has registered", call, host_function));
    }
    fat_binary & binary = *found->second.from;
    if (!binary.module) {
        const void * image = nullptr;
        size_t size = 0;
        if (const hip_error e = find_in_bundle(binary.bundle, image, size); e != hipSuccess) {
            return e;
        }
        hip_error error = hipSuccess;
        binary.module = load_code_object(image, size, error);
        if (!binary.module) {
            return error;
        }
    }
    const auto entry = binary.module->kernels.find(found->second.name);
    if (entry == binary.module->kernels.end()) {
        return fail(hipErrorInvalidDeviceFunction, format("%s: the code object has no kernel %s", call, found->second.name.c_str()));
    }
    module = binary.module;
    kernel = entry->second;
    return hipSuccess;
}

struct call_configuration {
    hip_dim3 grid, block;
    size_t shared_bytes;
    hipStream_t stream;
};
thread_local std::vector<call_configuration> configurations;

}  // namespace

namespace emulator {

void unload_registered_code() {
    registry & all = registry::instance();
    std::lock_guard guard(all.lock);
    for (const auto & binary : all.binaries) {
        binary->module.reset();
    }
}

}  // namespace emulator

void ** __hipRegisterFatBinary(const void * wrapper) {
    const auto * given = static_cast<const hip_fat_binary *>(wrapper);
    registry & all = registry::instance();
    std::lock_guard guard(all.lock);
    auto & binary = all.binaries.emplace_back(std::make_unique<fat_binary>());
    if (given != nullptr && given->magic == hip_fat_magic) {
        binary->bundle = given->bundle;
    }
    return reinterpret_cast<void **>(binary.get());
}

void __hipUnregisterFatBinary(void ** handle) {
    if (device_queues::usable()) {
        device_queues::instance().wait_all();  // launches in flight run in the module's memory
    }
    registry & all = registry::instance();
    std::lock_guard guard(all.lock);
    std::erase_if(all.functions, [&](const auto & entry) { return entry.second.from == reinterpret_cast<fat_binary *>(handle); });
    std::erase_if(all.binaries, [&](const auto & binary) { return binary.get() == reinterpret_cast<fat_binary *>(handle); });
}

void __hipRegisterFunction(void ** handle, const void * host_function, char *, const char * name, unsigned, void *, void *, void *, void *,
                           int *) {
    registry & all = registry::instance();
    std::lock_guard guard(all.lock);
    all.functions[host_function] = {reinterpret_cast<fat_binary *>(handle), name};
}

hipError_t __hipPushCallConfiguration(hip_dim3 grid, hip_dim3 block, size_t shared_bytes, hipStream_t stream) {
    return call([&]() -> hip_error {
        configurations.push_back({grid, block, shared_bytes, stream});
        return hipSuccess;
    });
}

hipError_t __hipPopCallConfiguration(hip_dim3 * grid, hip_dim3 * block, size_t * shared_bytes, hipStream_t * stream) {
    return call([&]() -> hip_error {
        if (configurations.empty()) {
            return fail(hipErrorInvalidConfiguration, "__hipPopCallConfiguration: no launch was configured");
        }
        const call_configuration & last = configurations.back();
        *grid = last.grid;
        *block = last.block;
        *shared_bytes = last.shared_bytes;
        *stream = last.stream;
        configurations.pop_back();
        return hipSuccess;
    });
}

hipError_t hipLaunchKernel(const void * function, hip_dim3 grid, hip_dim3 block, void ** params, size_t shared_bytes, hipStream_t stream) {
    return device_call([&]() -> hip_error {
        std::shared_ptr<loaded_module> module;
        loaded_kernel kernel;
        if (const hip_error e = find_kernel("hipLaunchKernel", function, module, kernel); e != hipSuccess) {
            return e;
        }
        if (shared_bytes > std::numeric_limits<uint32_t>::max()) {
            return fail(hipErrorInvalidValue, format("hipLaunchKernel: %zu bytes of dynamic LDS", shared_bytes));
        }
        return launch({kernel, std::move(module)},
                      {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, static_cast<uint32_t>(shared_bytes), params, nullptr}, stream);
    });
}

// Kernels of programs that HIP's compiler made wait for each other by an instruction (ds_gws_barrier) that knows a grid of one only.
hipError_t hipLaunchCooperativeKernel(const void *, hip_dim3, hip_dim3, void **, unsigned, hipStream_t) {
    return call([]() -> hip_error {
        return fail(hipErrorNotSupported, "hipLaunchCooperativeKernel: the emulated device does not offer cooperative launches");
    });
}

hipError_t hipLaunchHostFunc(hipStream_t handle, hip_host_function function, void * data) {
    return device_call([&]() -> hip_error {
        const stream_ptr stream = find_stream(handle);
        if (!stream) {
            return hipErrorInvalidHandle;
        }
        if (function == nullptr) {
            return fail(hipErrorInvalidValue, "hipLaunchHostFunc: a null pointer for the function");
        }
        device_queues::instance().submit(stream, [function, data]() -> outcome {
            function(data);
            return {};
        });
        return hipSuccess;
    });
}

hipError_t hipFuncSetAttribute(const void * function, int attribute, int value) {
    return call([&]() -> hip_error {
        std::shared_ptr<loaded_module> module;
        loaded_kernel kernel;
        if (const hip_error e = find_kernel("hipFuncSetAttribute", function, module, kernel); e != hipSuccess) {
            return e;
        }
        if (attribute != hipFuncAttributeMaxDynamicSharedMemorySize) {
            return hipSuccess;  // preferences
        }
        if (value < 0 || static_cast<uint64_t>(value) + kernel.image->static_lds > device.max_lds) {
            return fail(hipErrorInvalidValue, format("hipFuncSetAttribute: %d bytes of dynamic LDS beside the %u of the kernel exceed %u", value,
                                                     kernel.image->static_lds, device.max_lds));
        }
        return hipSuccess;  // launches are checked against the device's limit anyway
    });
}

// As AMD's runtime counts: waves by registers on the four SIMDs of a workgroup processor, workgroups by 64 KiB of LDS.
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int * blocks, const void * function, int block_size, size_t shared_bytes) {
    return call([&]() -> hip_error {
        constexpr uint32_t simds = 4, most_waves = 16, registers = 1536, granule = 24;
        if (blocks == nullptr || block_size <= 0) {
            return fail(hipErrorInvalidValue, "hipOccupancyMaxActiveBlocksPerMultiprocessor: no result pointer, or an empty block");
        }
        std::shared_ptr<loaded_module> module;
        loaded_kernel kernel;
        if (const hip_error e = find_kernel("hipOccupancyMaxActiveBlocksPerMultiprocessor", function, module, kernel); e != hipSuccess) {
            return e;
        }
        const uint32_t allocated = (std::max(kernel.image->vgprs, 1u) + granule - 1) / granule * granule;
        const uint32_t waves = simds * std::min(most_waves, registers / allocated);
        const uint64_t waves_a_block = (static_cast<uint64_t>(block_size) + device.wave_size - 1) / device.wave_size;
        uint64_t result = waves / waves_a_block;
        if (const uint64_t lds = kernel.image->static_lds + uint64_t{shared_bytes}; lds != 0) {
            result = std::min(result, device.max_lds / lds);
        }
        *blocks = static_cast<int>(result);
        return hipSuccess;
    });
}

// One device: nobody is its peer.
hipError_t hipDeviceCanAccessPeer(int * can, int number, int peer) {
    return call([&]() -> hip_error {
        if (can == nullptr || number != 0 || peer != 0) {
            return fail(can == nullptr ? hipErrorInvalidValue : hipErrorInvalidDevice,
                        format("hipDeviceCanAccessPeer: devices %d and %d, result %p", number, peer, static_cast<void *>(can)));
        }
        *can = 0;
        return hipSuccess;
    });
}

hipError_t hipDeviceEnablePeerAccess(int peer, unsigned) {
    return call([&]() -> hip_error {
        return fail(hipErrorInvalidDevice, format("hipDeviceEnablePeerAccess: device %d is no peer of device 0", peer));
    });
}

hipError_t hipDeviceDisablePeerAccess(int peer) {
    return call([&]() -> hip_error {
        return fail(peer == 0 ? hipErrorPeerAccessNotEnabled : hipErrorInvalidDevice,
                    format("hipDeviceDisablePeerAccess: device %d is no peer of device 0", peer));
    });
}

}  // namespace strata
