// What the files that define HIP's functions share: the declarations with C linkage, the entry of every call, the handles.
#pragma once

#include "code_object.h"
#include "errors.h"
#include "guest_abi.h"
#include "handles.h"
#include "launch.h"
#include "runtime/hip_abi.h"
#include "stream.h"

#include <exception>
#include <new>

namespace strata {

#define STRATA_EXPORT extern "C" __attribute__((visibility("default")))

#define STRATA_X(result, name, parameters) STRATA_EXPORT result name parameters;
STRATA_HIP_FUNCTIONS(STRATA_X)
STRATA_HIP_OPTIONAL_FUNCTIONS(STRATA_X)
STRATA_GUEST_FUNCTIONS(STRATA_X)
#undef STRATA_X
STRATA_EXPORT hipError_t hipDeviceReset(void);

/// The message of this thread's last failed call; valid until its next failed call.
STRATA_EXPORT const char * strata_emulator_last_message(void);
/// The device fault that is in force, "" if there is none; valid until this thread's next call.
STRATA_EXPORT const char * strata_emulator_last_fault(void);
/// Launches, waves and wave instructions since the process started; exact for launches that are finished.
STRATA_EXPORT void strata_emulator_counters(uint64_t out[3]);
/// hipModuleLoadData for an image whose size is known: a truncated one is certainly found out.
STRATA_EXPORT hipError_t strata_emulator_module_load(hipModule_t * module, const void * image, std::size_t size);

namespace emulator {

/// A recorded event: the fence of its last record, nullptr before; or the recording that it was part of.
struct event {
    std::mutex lock;
    fence_ptr recorded;
    recording_ptr captured;
    bool timed = true;
};

struct function {
    std::weak_ptr<loaded_module> module;
    loaded_kernel kernel;
};

/// A captured graph, and one that can be launched: commands in the order in which they were captured.
struct graph {
    std::vector<recorded_command> nodes;
};
struct graph_exec {
    std::mutex lock;
    std::shared_ptr<const std::vector<recorded_command>> nodes;  ///< launches in flight keep theirs when it is updated
    footprint_ptr what;  ///< memory that all of them use; nullptr if the sanitizer does not watch the host
};

/// Handles that the program holds. Never destroyed.
struct handle_tables {
    handle_table<hipStream_t, stream> streams{0x51};
    handle_table<hipEvent_t, event> events{0x52};
    handle_table<hipModule_t, loaded_module> modules{0x53};
    handle_table<hipFunction_t, function> functions{0x54};
    handle_table<hipGraph_t, graph> graphs{0x55};
    handle_table<hipGraphExec_t, graph_exec> graph_execs{0x56};
    static handle_tables & instance();
};

/// The stream of a handle (null: the null stream), or nullptr with the message set: return hipErrorInvalidHandle.
stream_ptr find_stream(hipStream_t handle);

/// A kernel and what keeps its code loaded.
struct launched_kernel {
    loaded_kernel kernel;
    std::shared_ptr<loaded_module> module;
};
/// Checks a launch and appends it to the stream.
hip_error launch(const launched_kernel & what, const launch_request & request, hipStream_t stream);

/// Code that programs have registered is loaded anew when it is next launched (hipDeviceReset).
void unload_registered_code();

/// Runs a call's body; what it returns or throws becomes the thread's last error.
template <class F>
hipError_t call(F && body) noexcept {
    hip_error result = hipErrorUnknown;
    try {
        result = device_queues::usable()
                     ? body()
                     : fail(hipErrorNotInitialized,
                            "this process was forked after the emulator had been started, and its threads are gone; start it in the child "
                            "only (in Python: multiprocessing's \"spawn\")");
    } catch (const std::bad_alloc &) {
        result = fail(hipErrorOutOfMemory, "the host is out of memory");
    } catch (const std::exception & e) {
        result = fail(hipErrorUnknown, std::string("the emulator failed: ") + e.what());
    }
    if (result != hipSuccess) {
        set_last_error(result);
    }
    return result;
}

/// hipSuccess, or the device's sticky error with its fault as the message.
hip_error device_state();

/// A call that does not run on a device which a fault has poisoned.
template <class F>
hipError_t device_call(F && body) noexcept {
    return call([&]() -> hip_error {
        const hip_error sticky = device_state();
        return sticky != hipSuccess ? sticky : body();
    });
}

}  // namespace emulator
}  // namespace strata
