// HIP's modules and kernel launches.
#include "api.h"
#include "memory.h"

#include <cstring>
#include <mutex>

namespace strata {

using namespace emulator;

namespace {

hip_error error_of(const fault & what) {
    switch (what.what) {
        case fault::kind::none: return hipSuccess;
        case fault::kind::memory: return hipErrorIllegalAddress;
        case fault::kind::hang: return hipErrorLaunchTimeOut;
        case fault::kind::unknown_instruction:
        case fault::kind::bad_launch: return hipErrorLaunchFailure;
    }
    return hipErrorUnknown;
}

// The machine takes one dispatch at a time and spreads it over all threads itself.
std::mutex & machine_lock() {
    static std::mutex & lock = *new std::mutex;
    return lock;
}

hip_error load(hipModule_t * module, const void * image, size_t size) {
    if (module == nullptr || image == nullptr) {
        return fail(hipErrorInvalidValue, "hipModuleLoadData: a null pointer for the module or the image");
    }
    hip_error error = hipSuccess;
    std::shared_ptr<loaded_module> loaded = load_code_object(image, size, error);
    if (!loaded) {
        return error;
    }
    *module = handle_tables::instance().modules.add(std::move(loaded));
    return hipSuccess;
}

}  // namespace

namespace emulator {

/// The memory whose addresses a kernel is given, for the sanitizer: it may use all of it.
static footprint_ptr footprint_of(const dispatch & launch) {
    if (!watching_host()) {
        return nullptr;
    }
    auto result = std::make_shared<footprint>();
    result->what = "kernel " + launch.kernel->name;
    const auto map = device_memory::instance().snapshot();
    for (size_t at = 0; at + 8 <= launch.kernarg.size(); at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, launch.kernarg.data() + at, sizeof(word));
        const allocation * a = map->find(word, 1);
        if (a != nullptr && a->writable) {
            const bool pinned = std::strcmp(a->kind, "hipHostMalloc") == 0;
            result->ranges.push_back({pinned ? word : a->begin, a->end, footprint::use::may_use, pinned, pinned});
        }
    }
    return result;
}

hip_error launch(const launched_kernel & what, const launch_request & request, hipStream_t handle) {
    const stream_ptr stream = find_stream(handle);
    if (!stream) {
        return hipErrorInvalidHandle;
    }
    auto prepared = std::make_shared<dispatch>();
    if (const hip_error e = prepare_launch(what.kernel, request, *prepared); e != hipSuccess) {
        return e;
    }
    footprint_ptr used = footprint_of(*prepared);
    device_queues::instance().submit(stream, [prepared, module = what.module]() -> outcome {
        const std::shared_ptr<const allocation_map> memory = device_memory::instance().snapshot();
        std::lock_guard one_at_a_time(machine_lock());
        fault what_happened = run(*prepared, *memory);
        return {error_of(what_happened), std::move(what_happened.message)};
    }, {}, std::move(used));
    return hipSuccess;
}

}  // namespace emulator

hipError_t hipModuleLoadData(hipModule_t * module, const void * image) {
    return device_call([&] { return load(module, image, 0); });
}

hipError_t strata_emulator_module_load(hipModule_t * module, const void * image, size_t size) {
    return device_call([&]() -> hip_error {
        return size != 0 ? load(module, image, size) : fail(hipErrorInvalidImage, "bad code object: it is empty");
    });
}

hipError_t hipModuleUnload(hipModule_t module) {
    return call([&]() -> hip_error {
        if (!handle_tables::instance().modules.find(module)) {
            return fail(hipErrorInvalidHandle,
                        format("hipModuleUnload: %p is no module, or one that was unloaded", static_cast<void *>(module)));
        }
        device_queues::instance().wait_all();  // launches in flight run in the module's memory
        handle_tables::instance().modules.remove(module);
        return device_state();
    });
}

hipError_t hipModuleGetFunction(hipFunction_t * result, hipModule_t module, const char * name) {
    return device_call([&]() -> hip_error {
        if (result == nullptr || name == nullptr) {
            return fail(hipErrorInvalidValue, "hipModuleGetFunction: a null pointer for the name or the result");
        }
        const std::shared_ptr<loaded_module> found = handle_tables::instance().modules.find(module);
        if (!found) {
            return fail(hipErrorInvalidHandle, format("hipModuleGetFunction: %p is no module", static_cast<void *>(module)));
        }
        const auto kernel = found->kernels.find(name);
        if (kernel == found->kernels.end()) {
            return fail(hipErrorNotFound,
                        format("the code object has no kernel named %s (it has %zu kernels)", name, found->kernels.size()));
        }
        *result = handle_tables::instance().functions.add(std::make_shared<function>(function{found, kernel->second}));
        return hipSuccess;
    });
}

namespace {

hipError_t launch_function(const char * call, hipFunction_t handle, const launch_request & request, hipStream_t stream_handle) {
    return device_call([&]() -> hip_error {
        const std::shared_ptr<function> kernel = handle_tables::instance().functions.find(handle);
        const std::shared_ptr<loaded_module> module = kernel ? kernel->module.lock() : nullptr;
        if (!module) {
            return fail(hipErrorInvalidHandle,
                        format("%s: %p is no function of a loaded module", call, static_cast<void *>(handle)));
        }
        return launch({kernel->kernel, module}, request, stream_handle);
    });
}

}  // namespace

hipError_t hipModuleLaunchKernel(hipFunction_t handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                 unsigned block_y, unsigned block_z, unsigned shared_bytes, hipStream_t stream_handle, void ** params,
                                 void ** extra) {
    return launch_function("hipModuleLaunchKernel", handle,
                           {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, params, extra}, stream_handle);
}

hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                            unsigned block_y, unsigned block_z, unsigned shared_bytes, hipStream_t stream_handle,
                                            void ** params) {
    return launch_function("hipModuleLaunchCooperativeKernel", handle,
                           {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, params, nullptr, true}, stream_handle);
}

}  // namespace strata
