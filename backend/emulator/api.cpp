// HIP's error calls, the emulator's own calls, and the state that all calls share.
#include "api.h"

#include "machine.h"

namespace strata {

namespace emulator {

handle_tables & handle_tables::instance() {
    static handle_tables & tables = *new handle_tables;
    return tables;
}

namespace {

/// The stream of hipStreamPerThread. It ends with its thread, or with a device reset.
struct own_stream {
    stream_ptr stream;
    ~own_stream() {
        if (stream && device_queues::usable()) {
            device_queues::instance().close(stream);
        }
    }
};

stream_ptr stream_of_thread() {
    static thread_local own_stream own;
    device_queues & queues = device_queues::instance();
    if (!own.stream || !queues.is_open(own.stream)) {
        own.stream = queues.create(true);
    }
    return own.stream;
}

}  // namespace

stream_ptr find_stream(hipStream_t handle) {
    if (handle == nullptr || handle == hipStreamLegacy) {
        return device_queues::instance().null_stream();
    }
    if (handle == hipStreamPerThread) {
        return stream_of_thread();
    }
    stream_ptr found = handle_tables::instance().streams.find(handle);
    if (!found) {
        fail(hipErrorInvalidHandle, format("%p is no stream, or one that was destroyed", static_cast<void *>(handle)));
    }
    return found;
}

hip_error device_state() {
    device_queues & queues = device_queues::instance();
    const hip_error sticky = queues.sticky_error();
    if (sticky == hipSuccess) {
        return sticky;
    }
    return fail(sticky, (sticky == hipErrorDeinitialized ? "" : "an earlier kernel has failed: ") + queues.sticky_message());
}

}  // namespace emulator

using namespace emulator;

hipError_t hipGetLastError() {
    const hipError_t of_thread = take_last_error();
    if (of_thread != hipSuccess || !device_queues::usable()) {
        return of_thread;
    }
    return device_queues::instance().sticky_error();
}

const char * hipGetErrorName(hipError_t error) {
    return error_name(error);
}

const char * hipGetErrorString(hipError_t error) {
    return error_text(error);
}

const char * strata_emulator_last_message() {
    return last_message();
}

const char * strata_emulator_last_fault() {
    thread_local std::string copy;
    copy = device_queues::usable() ? device_queues::instance().sticky_message() : std::string();
    return copy.c_str();
}

void strata_emulator_counters(uint64_t out[3]) {
    const counters now = totals();
    out[0] = now.launches;
    out[1] = now.waves;
    out[2] = now.instructions;
}

}  // namespace strata
